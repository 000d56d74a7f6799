"""What one attempt has printed, on a screen of its own: its end, which follows, and what stands before it."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.domain.task import Task
from allswell.doors.http.call import Call
from allswell.doors.page.output import OutputTail, read_tail
from allswell.doors.page.query import address, number_of
from allswell.doors.page.task import row_of


class PrintedScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    task: Task
    attempt: int
    output: OutputTail | None
    upto: int
    earlier: str | None
    """The address of what stands before it."""


async def look(call: Call) -> PrintedScreen:
    """Look at what was printed."""
    check_beside(call.key, "log")
    task = (await row_of(call)).task
    attempt, upto = number_of(call, "attempt"), number_of(call, "upto", 1 << 34)
    output = await asyncio.to_thread(read_tail, call.house.home, task, attempt or None, upto or None)
    earlier = None
    if output is not None and output.begin:
        earlier = address(f"/tasks/{task.id}/log", attempt=output.attempt, upto=output.begin)
    now = (await call.views.view_agenda()).now
    number = attempt if output is None else output.attempt
    return PrintedScreen(f"Log of {task.name}", now, task, number, output, upto, earlier)
