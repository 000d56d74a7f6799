"""Looking at the whole: how things stand, who does what, what was said between agents, what attempts have left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from allswell.domain.access import Act, check_act
from allswell.domain.comms import HEARS
from allswell.doors.http.call import Call
from allswell.doors.http.events import cursor_of, position_of
from allswell.doors.http.route import Nothing, Route
from allswell.doors.http.tasks import Limit
from allswell.doors.shapes.board import BoardShape
from allswell.doors.shapes.comm import CommShape
from allswell.doors.shapes.crew import AgentsShape
from allswell.doors.shapes.receipt import ReceiptShape, ReceiptsShape
from allswell.doors.shapes.shown import ShownReceiptShape
from allswell.doors.shapes.status import StatusShape
from allswell.doors.shapes.tracking import TrackingShape
from allswell.engine.explaining.board import board
from allswell.engine.explaining.communication import comm_of
from allswell.engine.explaining.crew import look as look_at_crew
from allswell.engine.explaining.overview import look
from allswell.engine.explaining.tracking import pending_questions, track
from allswell.errors import Refused
from allswell.runtime.receipts import Receipts

_CHUNK = 500
_THRESHOLD = 3


class CommsShape(Struct, frozen=True):
    """Messages between agents, in their order; `next` is what to give as `after` for the next page."""

    comms: list[CommShape]
    next: str | None


async def show_status(call: Call, _: Nothing) -> StatusShape:
    """Whether all is well, and what needs somebody."""
    return StatusShape.of(call.store, await look(call.views))


async def show_board(call: Call, _: Nothing) -> BoardShape:
    """Everything that is at work, at one look."""
    return BoardShape.of(call.store, await board(call.views))


async def list_agents(call: Call, _: Nothing) -> AgentsShape:
    """Who does what: health, misses, last proof of progress, time left."""
    crew = await look_at_crew(call.views, [], _THRESHOLD)
    return AgentsShape.of(crew, len(await call.views.view_questions()))


async def show_tracking(call: Call, _: Nothing) -> TrackingShape:
    """Missed check-ins, stalled agents, timeouts and open questions."""
    return TrackingShape.of(await track(call.views), await pending_questions(call.views))


class CommsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on, and how many."""

    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100


async def list_comms(call: Call, asked: CommsAsked) -> CommsShape:
    """Every message between agents with the protocol's nine fields, a page at a time."""
    after, found = position_of(asked.after), list[CommShape]()
    while entries := await call.views.journal(after, _CHUNK):
        for entry in entries:
            after = entry.position
            if entry.event.kind in HEARS and (comm := await comm_of(call.views, entry)) is not None:
                found.append(CommShape.of(comm))
                if len(found) == asked.limit:
                    return CommsShape(found, cursor_of(after))
    return CommsShape(found, None)


async def list_receipts(call: Call, asked: CommsAsked) -> ReceiptsShape:
    """What attempts on the server's machine have left, the newest first."""
    check_act(call.key, Act.LOOK)
    kept = Receipts(call.house.home / "receipts")
    found = [one for one in kept.all() if not asked.after or one.receipt.id < asked.after][: asked.limit]
    return ReceiptsShape([ReceiptShape.of(one.receipt, one.path, str) for one in found])


async def show_receipt(call: Call, _: Nothing) -> ShownReceiptShape:
    """Show a receipt: what an attempt did, what it left, and how to go on from there."""
    check_act(call.key, Act.LOOK)
    id_ = call.named("receipt")
    if not id_.startswith("rc_") or Path(id_).name != id_:
        raise Refused("unknown_receipt", f"there is no receipt {id_!r}", where="receipt")
    found = Receipts(call.house.home / "receipts").find(id_)
    if found is None:
        raise Refused("unknown_receipt", f"there is no receipt {id_!r}", where="receipt")
    return ShownReceiptShape(ReceiptShape.of(found.receipt, found.path, str))


ROUTES = (
    Route("GET", "/status", show_status, Nothing, (StatusShape,)),
    Route("GET", "/board", show_board, Nothing, (BoardShape,)),
    Route("GET", "/agents", list_agents, Nothing, (AgentsShape,)),
    Route("GET", "/tracking", show_tracking, Nothing, (TrackingShape,)),
    Route("GET", "/comms", list_comms, CommsAsked, (CommsShape,)),
    Route("GET", "/receipts", list_receipts, CommsAsked, (ReceiptsShape,)),
    Route("GET", "/receipts/{receipt}", show_receipt, Nothing, (ShownReceiptShape,)),
)
