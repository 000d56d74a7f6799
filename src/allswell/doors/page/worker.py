"""Workers on queues of messages: how the queues stand, how their processes are, and what is set aside for a human."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.doors.http.call import Call
from allswell.doors.page.asking import ShownQuestion, show_question
from allswell.doors.queues import TROUBLES, UNASKED, look_at_queues
from allswell.doors.shapes.worker import QueueShape
from allswell.engine.explaining.front import OpenQuestion

if TYPE_CHECKING:
    from allswell.worker.troubled import TroubledMessage

_QUESTIONS = 50
_LOOKED_AT = 5_000
_WORST_FIRST = ("critical", "degraded", "healthy")


class ShownQueue(Struct, frozen=True):
    """A queue: its health is that of the worst process that works on it; empty: there is none."""

    queue: QueueShape
    health: str
    why: list[str]
    troubles: list[tuple[str, int]]
    """How many messages did not go through, by how they stand, in words."""
    troubled: list[TroubledMessage]
    troubled_more: int


class WorkerScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    queues: list[ShownQueue]
    words: Mapping[str, str]
    """How messages in trouble stand, by their state."""
    questions: list[ShownQuestion]
    questions_more: int
    postgres: bool
    """Whether the store's database could have queues at all."""


async def look(call: Call) -> WorkerScreen:
    """Look at the queues of the store's database, and at the messages that wait for an operator."""
    check_beside(call.key, "queues")
    url = call.house.url
    seen = await asyncio.to_thread(look_at_queues, url)
    asked = [one for one in await call.views.view_questions(limit=_LOOKED_AT) if one.message is not None]
    shown = []
    for one, troubled in seen:
        queue = QueueShape.of(one)
        health, why = _health(queue)
        troubles = [(words, queue.troubles[state]) for state, words in TROUBLES.items() if queue.troubles.get(state)]
        more = sum(count for state, count in queue.troubles.items() if state in UNASKED) - len(troubled)
        shown.append(ShownQueue(queue, health, why, troubles, troubled, max(more, 0)))
    return WorkerScreen(
        title="Worker",
        now=(await call.views.view_agenda()).now,
        queues=shown,
        words=TROUBLES,
        questions=[show_question(call, OpenQuestion(one, None, 0)) for one in asked[:_QUESTIONS]],
        questions_more=max(len(asked) - _QUESTIONS, 0),
        postgres=url.startswith("postgresql:"),
    )


def _health(queue: QueueShape) -> tuple[str, list[str]]:
    there = [one for one in queue.processes if not one.gone]
    if not there:
        return "", []
    worst = min((one.condition for one in there), key=_WORST_FIRST.index)
    return worst, [f"process {one.pid}: {one.why}" for one in there if one.why]
