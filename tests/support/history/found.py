"""What the store says when all is over: every task with what went in and came out, the journal, and what is amiss."""

from __future__ import annotations

from typing import Any

import msgspec

from allswell.domain.rules.event import Entry
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.testing.sim.process import engine_of

_PAGE = 1_000


class FoundTask(msgspec.Struct, frozen=True):
    """A task as the store has it."""

    id: str
    state: str
    payload: Any
    result: Any
    done_by: tuple[int, ...] = ()
    """The tokens of the attempts that ended as done."""


class Found(msgspec.Struct, frozen=True):
    """The whole store, read at one quiet moment."""

    tasks: dict[str, FoundTask]
    journal: list[Entry]
    unaccounted: list[str]
    shared_clock: bool
    """Whether the store's clock is a server's, which no jump of a client's clock can touch."""


async def inspect(watch: Watch) -> Found:
    """Read everything; nobody else may be at work."""
    tasks: dict[str, FoundTask] = {}
    after = ""
    while rows := await watch.tasks(TaskFilter(after=after, limit=_PAGE)):
        for row in rows:
            id_ = row.task.id
            payload, result = await watch.views.view_payload(id_)
            done = tuple(attempt.token for attempt in await watch.attempts(id_) if attempt.outcome == "done")
            tasks[id_] = FoundTask(id_, str(row.task.state), _decoded(payload), _decoded(result), done)
        after = rows[-1].task.id
    journal = [entry async for entry in watch.events()]
    unaccounted = [str(task) for task in await watch.unaccounted()]
    return Found(tasks, journal, unaccounted, engine_of(watch).store.shared_clock)


def _decoded(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)
