"""Workers on queues of messages: how the queues stand, how their processes are, and what is set aside for a human."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.doors.http.call import Call
from allswell.doors.page.asking import ShownQuestion, show_question
from allswell.doors.queues import queues_at
from allswell.doors.shapes.worker import QueueShape
from allswell.engine.explaining.front import OpenQuestion

_QUESTIONS = 50
_LOOKED_AT = 5_000


class WorkerScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    queues: list[QueueShape]
    questions: list[ShownQuestion]
    questions_more: int
    postgres: bool
    """Whether the store's database could have queues at all."""


async def look(call: Call) -> WorkerScreen:
    """Look at the queues of the store's database, and at the messages that wait for an operator."""
    check_beside(call.key, "queues")
    url = call.house.url
    seen = await asyncio.to_thread(queues_at, url)
    asked = [one for one in await call.views.view_questions(limit=_LOOKED_AT) if one.message is not None]
    return WorkerScreen(
        title="Worker",
        now=(await call.views.view_agenda()).now,
        queues=[QueueShape.of(one) for one in seen],
        questions=[show_question(call, OpenQuestion(one, None, 0)) for one in asked[:_QUESTIONS]],
        questions_more=max(len(asked) - _QUESTIONS, 0),
        postgres=url.startswith("postgresql:"),
    )
