"""A task's life on one clock: a row for each stretch of it, so that waiting, queueing and each attempt stand apart."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.names import Millis
from allswell.doors.page.drawing import DrawnLane, DrawnWaterfall, draw_waterfall
from allswell.engine.explaining.shapes import Span
from allswell.engine.explaining.waterfall import TaskLane, Waterfall

_FIRST, _LAST = 4, 26
_CALLED = {"waiting": "waited", "asked": "asked you", "paused": "paused", "ready": "in the queue"}
_CALLED_NOW = {"waiting": "waits", "asked": "asks you", "paused": "pauses", "ready": "in the queue"}


class LifeRow(Struct, frozen=True):
    """One stretch."""

    lane: DrawnLane
    span: Span
    called: str


class DrawnLife(Struct, frozen=True):
    """All of it; of a very long one, the beginning and the end."""

    fall: DrawnWaterfall
    rows: list[LifeRow]
    left_out: int
    """Stretches between the beginning and the end that have no row."""


def draw_life(spans: tuple[Span, ...], now: Millis, *, state: str, limit: Millis | None) -> DrawnLife:
    """Draw the stretches of a task's life; `limit` is when the attempt that runs reaches its own."""
    left_out = max(len(spans) - _FIRST - _LAST, 0)
    shown = spans if not left_out else (*spans[:_FIRST], *spans[-_LAST:])
    lanes = tuple(
        TaskLane(
            task="",
            name="",
            state=state if span is spans[-1] else "done",
            asks=False,
            attempts=0,
            spans=(span,),
            limit=None if span is not spans[-1] or limit is None else limit,
        )
        for span in shown
    )
    start = spans[0].start if spans else now
    fall = draw_waterfall(Waterfall(None, "", start, None, False, lanes, 0, {}), now)
    rows = [LifeRow(lane, span, _called(span, now)) for lane, span in zip(fall.lanes, shown, strict=True)]
    return DrawnLife(fall, rows, left_out)


def _called(span: Span, now: int) -> str:
    if span.kind == "held":
        return f"attempt {span.token}"
    return (_CALLED_NOW if span.end >= now else _CALLED)[span.kind]
