"""What attempts on the server's machine have left: receipts, what they printed, what they changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from allswell.domain.access.rights import check_beside
from allswell.domain.task.model import Task
from allswell.errors import Refused
from allswell.interfaces.http.events import PULSE, STREAM, until_closed
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.interfaces.http.tasks import Limit
from allswell.timing.moment import to_json
from allswell.views.detail import ShownReceiptShape
from allswell.views.log import LogsShape, OpenLog, PrintedLog, cursor_of, in_words
from allswell.views.receipt import DiffShape, ReceiptPageShape

_LOOK_SECONDS = 0.25


class ReceiptsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which receipts."""

    task: Annotated[str, Meta(description="Only those of this task.")] | None = None
    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100


async def list_receipts(call: RequestContext, asked: ReceiptsParams) -> ReceiptPageShape:
    """List what attempts on the server's machine have left, the newest first, a page at a time."""
    check_beside(call.key, "receipts")
    return await call.artifacts.receipts(asked.task, asked.after, asked.limit)


async def show_receipt(call: RequestContext, _: NoParams) -> ShownReceiptShape:
    """Show a receipt: what an attempt did, what it left, and how to go on from there."""
    check_beside(call.key, "receipts")
    found = await call.artifacts.receipt(name) if (name := call.named("receipt")).startswith("rc_") else None
    if found is None:
        raise Refused("unknown_receipt", f"there is no receipt {name!r}", where="receipt")
    return ShownReceiptShape(found)


class LogParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which attempt, from where on; without a place it is the end of what there is, `limit` lines of it."""

    attempt: Annotated[int, Meta(ge=1, le=999_999_999, description="Default: the last.")] | None = None
    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of lines.")] = 1_000
    raw: Annotated[bool, Meta(description="As it was printed, and not what it means.")] = False


async def show_log(call: RequestContext, asked: LogParams) -> LogsShape | Response:
    """Show what an attempt has printed; accepted as text/event-stream, as it prints, until the attempt has ended.

    `next` is where to go on, also while it runs. A stream ends with the event `over`.
    """
    check_beside(call.key, "log")
    row = await call.task_row()
    task, held = row.task, None if row.lease is None else row.lease.token
    printed = PrintedLog(call.house.home, task)
    after = call.header("Last-Event-ID") or asked.after
    opened = await asyncio.to_thread(printed.open, asked.attempt, after, held=held)
    if STREAM in (call.header("Accept") or ""):
        lines = _followed(call, opened, task)
        return StreamingResponse(lines, media_type=STREAM, headers={"X-Accel-Buffering": "no"})
    with opened:
        read = await asyncio.to_thread(opened.tail, None if after else asked.limit)
    number = opened.attempt
    if asked.raw:
        body = b"".join(line + b"\n" for _, line in read.lines)
        headers = {"Allswell-Next": cursor_of(number, read.place)}
        return Response(body, media_type="text/plain; charset=utf-8", headers=headers)
    return await asyncio.to_thread(LogsShape.of, task.id, number, read)


async def _followed(call: RequestContext, opened: OpenLog, task: Task) -> AsyncIterator[bytes]:
    closing = asyncio.ensure_future(until_closed(call))
    try:
        with opened:
            async for lines in _growing(opened, task, closing):
                yield lines
    finally:
        closing.cancel()


async def _growing(opened: OpenLog, task: Task, closing: asyncio.Future[None]) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    quiet = 0.0
    while not closing.done():
        read = await asyncio.to_thread(opened.read)
        told = await asyncio.to_thread(in_words, task.id, opened.attempt, read)
        if told:
            body = b"".join(b"event: line\ndata: %s\n\n" % to_json(one) for one in told)
            yield b"id: %s\n%s" % (cursor_of(opened.attempt, read.place).encode(), body)
            quiet = 0.0
        if read.over:
            yield b"event: over\ndata: {}\n\n"
            return
        await asyncio.wait([closing], timeout=0 if told else _LOOK_SECONDS)
        quiet += _LOOK_SECONDS
        if quiet >= PULSE:
            yield b": still here\n\n"
            quiet = 0.0


class DiffParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Of which attempt, and whether only the files and how much."""

    attempt: Annotated[int, Meta(ge=1, le=999_999_999, description="Default: the last.")] | None = None
    stat: bool = False


async def show_diff(call: RequestContext, asked: DiffParams) -> DiffShape:
    """Show what an attempt has changed since it began, whatever its end; while it runs, up to now."""
    check_beside(call.key, "diff")
    task = (await call.task_row()).task
    found, _ = await call.artifacts.diff(task.id, asked.attempt, stat=asked.stat)
    return found


ROUTES = (
    Route("GET", "/receipts", list_receipts, ReceiptsParams, (ReceiptPageShape,)),
    Route("GET", "/receipts/{receipt}", show_receipt, NoParams, (ShownReceiptShape,)),
    Route("GET", "/tasks/{task}/log", show_log, LogParams, (LogsShape,), also=(STREAM, "text/plain")),
    Route("GET", "/tasks/{task}/diff", show_diff, DiffParams, (DiffShape,)),
)
