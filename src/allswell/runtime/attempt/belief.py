"""Whether the note that a dead supervisor left can be believed: the store must know of the attempt, and of its place.

Notes lie in a folder that agents can write to. One that an agent has made up could have us end somebody else's
processes, or keep somebody else's folder where the agent can read it. So before anything is done about a note, what it
says is compared: with its own name, with the attempts that the store has of its task, and its folder with the places
at which that task can have been worked on. Processes are compared when they are looked for (`left_over`).

A note that disagrees is left as it is, and told: it may be of another store that shares our folder, or of agents whose
settings have changed, and then somebody else knows more. Receipts lie there too: work goes back only to such a place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from allswell.domain.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.names import AgentId, TaskId, Token, can_name
from allswell.runtime.attempt.flight import Flight, note_name
from allswell.runtime.attempt.keeping import work_folder
from allswell.runtime.receipts import Home
from allswell.store.views import Views


class Known(msgspec.Struct, frozen=True):
    """What the store knows about a task that a note names."""

    name: str
    holders: dict[Token, AgentId]
    """Who has held it, by token."""
    place: str | None = None
    """Where its payload says that it is worked on."""


class _Asked(msgspec.Struct):
    cwd: str = ""


class _Payload(msgspec.Struct):
    """As much as is wanted of what commands and steps of flows carry."""

    run: _Asked | str = ""
    folder: str = ""


async def known_of(views: Views, task: TaskId) -> Known | None:
    """What the store knows of a task; None: nothing."""
    row = await views.view_task(task) if can_name(task) else None
    if row is None:
        return None
    holders = {past.token: past.agent for past in await views.view_attempts(task)}
    if row.lease is not None:
        holders[row.lease.token] = row.lease.agent
    if row.task.role not in (RUN_ROLE, STEP_ROLE):
        return Known(row.task.name, holders)
    payload, _ = await views.view_payload(task)
    return Known(row.task.name, holders, _place(payload))


def _place(payload: str | None) -> str | None:
    try:
        said = msgspec.json.decode(payload or "null", type=_Payload)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return (said.run.cwd if isinstance(said.run, _Asked) else said.folder) or None


def disagreement(file: str, flight: Flight, known: Known | None, home: Home, places: Iterable[str]) -> str | None:
    """What a note says that cannot be so, as the end of a sentence; None: it may be believed."""
    if file != note_name(flight.task, flight.attempt) or flight.attempt != flight.token:
        return f"is about another attempt than its name says ({flight.task}, attempt {flight.attempt})"
    if flight.record is None and flight.folder is None:
        return None  # nothing had begun: there is nothing to end, and nothing to keep
    if known is None or flight.token not in known.holders:
        return f"names an attempt that the store does not know ({flight.task}, attempt {flight.attempt})"
    if (flight.name, flight.agent) != (known.name, known.holders[flight.token]):
        return f"names another holder or another task than the store does ({flight.agent}, {flight.name!r})"
    if flight.folder is not None and not is_place(flight.folder, flight.task, known, home, places):
        return f"names {flight.folder}, and nothing says that this task was worked on there"
    return None


def is_place(folder: str, task: TaskId, known: Known | None, home: Home, places: Iterable[str]) -> bool:
    """Whether a task can have been worked on there: in its worktree, where its payload says, or at one of `places`."""
    there = Path(os.path.realpath(folder))
    own = Path(os.path.realpath(home.folder), home.worktrees.name, task)  # a link there is none of ours
    if own in (there, *there.parents):
        return True
    usual = (*places, *(() if known is None or known.place is None else (known.place,)))
    return any(there in (real, work_folder(real)) for real in (Path(os.path.realpath(place)) for place in usual))
