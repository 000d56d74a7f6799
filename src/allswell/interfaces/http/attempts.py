"""What attempts on the server's machine have left: receipts, what they printed, what they changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from allswell.domain.access.rights import check_beside
from allswell.domain.agents.log import entries
from allswell.domain.task.model import Task
from allswell.errors import Refused
from allswell.interfaces.http.events import PULSE, STREAM, until_closed
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.interfaces.http.tasks import Limit
from allswell.views.detail import ShownReceiptShape
from allswell.views.log import LogShape, LogsShape, PrintedLines, PrintedLog, PrintedPlace
from allswell.views.receipt import DiffShape, ReceiptPageShape

_MOST = 1 << 20
"""Bytes of each stream that one answer tells of."""
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
    task = (await call.task_row()).task
    printed = PrintedLog(call.house.home, task)
    attempts = await asyncio.to_thread(printed.attempts)
    given = _place(call.header("Last-Event-ID") or asked.after)
    number = asked.attempt if given is None else given[0]
    if number is None:
        number = max(attempts, default=0)
    if number not in attempts:
        raise _nothing(task, number, asked.attempt)
    place = PrintedPlace() if given is None else given[1]
    if STREAM in (call.header("Accept") or ""):
        lines = _followed(call, printed, task, number, place)
        return StreamingResponse(lines, media_type=STREAM, headers={"X-Accel-Buffering": "no"})
    read = await _read(printed, number, place, asked.limit if given is None else None)
    if asked.raw:
        body = b"".join(line + b"\n" for _, line in read.lines)
        return Response(body, media_type="text/plain; charset=utf-8", headers={"Allswell-Next": _cursor(number, read)})
    told = await asyncio.to_thread(_told, task, number, read)
    return LogsShape(task.id, number, told, _cursor(number, read), read.over)


async def _read(printed: PrintedLog, attempt: int, place: PrintedPlace, last: int | None) -> PrintedLines:
    """A piece from a place on; with `last`, all there is, and of that the last lines."""
    read = await asyncio.to_thread(printed.read, attempt, place, _MOST)
    if last is None:
        return read
    kept = read.lines[-last:]
    while read.lines and not read.over:
        before = read.place
        read = await asyncio.to_thread(printed.read, attempt, before, _MOST)
        kept = [*kept, *read.lines][-last:]
        if read.place == before:
            break
    return msgspec.structs.replace(read, lines=kept)


async def _followed(
    call: RequestContext, printed: PrintedLog, task: Task, attempt: int, place: PrintedPlace
) -> AsyncIterator[bytes]:
    closing = asyncio.ensure_future(until_closed(call))
    try:
        async for lines in _growing(printed, task, attempt, place, closing):
            yield lines
    finally:
        closing.cancel()


async def _growing(
    printed: PrintedLog, task: Task, attempt: int, place: PrintedPlace, closing: asyncio.Future[None]
) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    quiet = 0.0
    while not closing.done():
        read = await asyncio.to_thread(printed.read, attempt, place, _MOST)
        place = read.place
        told = await asyncio.to_thread(_told, task, attempt, read)
        if told:
            body = b"".join(b"event: line\ndata: %s\n\n" % msgspec.json.encode(one) for one in told)
            yield b"id: %s\n%s" % (_cursor(attempt, read).encode(), body)
            quiet = 0.0
        if read.over:
            yield b"event: over\ndata: {}\n\n"
            return
        await asyncio.wait([closing], timeout=0 if told else _LOOK_SECONDS)
        quiet += _LOOK_SECONDS
        if quiet >= PULSE:
            yield b": still here\n\n"
            quiet = 0.0


def _told(task: Task, attempt: int, read: PrintedLines) -> list[LogShape]:
    """What lines say; in a thread: an agent can print megabytes that take seconds to be read, and others are served."""
    return [LogShape.of(entry, task.id, attempt, stream) for stream, line in read.lines for entry in entries(line)]


def _cursor(attempt: int, read: PrintedLines) -> str:
    return f"{attempt}.{read.place.stdout}.{read.place.stderr}"


def _place(cursor: str) -> tuple[int, PrintedPlace] | None:
    if not cursor:
        return None
    parts = cursor.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 12 for part in parts):
        text = f"{cursor[:40]!r} is not a place in what was printed; give the `next` of a page"
        raise Refused("bad_cursor", text, where="after")
    attempt, stdout, stderr = map(int, parts)
    return attempt, PrintedPlace(stdout, stderr)


def _nothing(task: Task, number: int, wanted: int | None) -> Refused:
    which = "no attempt at it" if wanted is None else f"attempt {number or wanted}"
    text = f"nothing is kept here of what {which} printed: it printed nothing, or another machine ran it"
    return Refused("no_log", f"{task.name}: {text}", where="task")


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
