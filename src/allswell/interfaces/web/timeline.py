"""Where on a bar a moment lies: time as shares of a width, and what each stretch of it is called.

Pages may have no styles of their own, so bars are drawn as SVG, whose places are attributes: percentages, made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from allswell.domain.ids import Millis
from allswell.domain.lease.model import LeaseRow, asked_at, idles_at
from allswell.engine.status.explanation import Span, clean, length, rough
from allswell.engine.status.task import outcome
from allswell.engine.status.timeline import TaskLane, Waterfall
from allswell.flows.graph import GraphLayout, arrange
from allswell.interfaces.web.screen import Seen

_BACK = ("released", "parked", "cancelled", "skipped", "split")
_ASKED_MOST = 12
"""Check-ins that a bar shows; of a lease that has more, the next one alone."""
_WORDS = {"waiting": "waited", "asked": "waited", "paused": "paused", "ready": "was in the queue"}


class BarPiece(Struct, frozen=True):
    """A stretch on a bar, in percent of its width."""

    left: float
    width: float
    kind: str
    says: str

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.left + self.width


class BarMark(Struct, frozen=True):
    """A moment on a bar."""

    at: float
    kind: str
    says: str


class DrawnLane(Struct, frozen=True):
    """One task's life on the clock of its waterfall."""

    task: str
    name: str
    state: str
    pieces: list[BarPiece]
    ticks: list[BarMark]
    took: str
    says: str
    """All of it in a sentence, for whoever does not see it."""


class DrawnWaterfall(Struct, frozen=True):
    """A waterfall on one clock."""

    about: Waterfall
    lanes: list[DrawnLane]
    now: float
    """Where now is; a hundred or more if everything has ended."""
    ticks: list[BarMark]
    limit: float | None
    """Where the run's limit is, if that is in sight."""


class DrawnLease(Struct, frozen=True):
    """How much of a lease's time is gone, and the moments on the way."""

    gone: float
    ticks: list[BarMark]
    says: str


def style_of(kind: str, outcome: str | None) -> str:
    """What a stretch of a task's life looks like: work is solid, and waiting never is."""
    if kind != "held":
        return {"ready": "queued"}.get(kind, kind)
    if outcome is None:
        return "working"
    if outcome == "done":
        return "done"
    if outcome == "asked":
        return "asking"
    return "back" if outcome in _BACK else "failed"


def _share(moment: int, start: int, end: int) -> float:
    return round(min(max((moment - start) / (end - start) * 100, 0), 100), 2)


def draw_waterfall(about: Waterfall, now: int) -> DrawnWaterfall:
    """A waterfall on a clock that reaches a little beyond now, as far as something is still open."""
    spans = [span for lane in about.lanes for span in lane.spans]
    start = min((span.start for span in spans), default=about.start)
    last = max((span.end for span in spans), default=now)
    open_ = any(lane.state in ("held", "ready", "waiting", "delayed", "nowhere") for lane in about.lanes)
    end = max(last, start + 1)
    if open_:
        end = _end(start, now, [limit for limit in (about.limit, *(lane.limit for lane in about.lanes)) if limit])
    lanes = [_lane(lane, start, end, now) for lane in about.lanes]
    limit = about.limit
    in_sight = None if limit is None or limit > end else _share(limit, start, end)
    return DrawnWaterfall(about, lanes, _share(now, start, end) if open_ else 100.0, _ticks(start, end), in_sight)


def _end(start: int, now: int, limits: Sequence[int]) -> int:
    """A little beyond now; as far as the next limit, where that is near."""
    past = max(now - start, 1_000)
    near = min((limit for limit in limits if limit > now), default=0)
    return start + past + (past // 10 if not near or near - now > past // 3 else (near - now) + past // 20)


def _lane(lane: TaskLane, start: int, end: int, now: int) -> DrawnLane:
    pieces = [
        BarPiece(
            _share(span.start, start, end),
            round(max(_share(span.end, start, end) - _share(span.start, start, end), 0.3), 2),
            style_of(span.kind, span.outcome),
            _told(span),
        )
        for span in lane.spans
    ]
    ticks = []
    if lane.limit is not None and start <= lane.limit <= end:
        ticks.append(
            BarMark(_share(lane.limit, start, end), "limit", f"its limit, {rough(max(lane.limit - now, 0))} away")
        )
    worked = sum(span.end - span.start for span in lane.spans if span.kind == "held")
    took = {"waiting": "asks" if lane.asks else "waits", "delayed": "pauses", "ready": "in the queue"}.get(lane.state)
    says = f"{lane.name}, {lane.state}: " + "; ".join(_told(span) for span in lane.spans)
    return DrawnLane(lane.task, lane.name, lane.state, pieces, ticks, took or length(worked), says)


def _told(span: Span) -> str:
    took = length(span.end - span.start)
    if span.kind != "held":
        return f"{_WORDS[span.kind]} {took} {span.says}"
    how = "holds it now" if span.outcome is None else outcome(span.outcome)
    return f"attempt {span.token}, {took}: {span.agent} {how}"


_STEPS = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000, 604_800_000)


def _ticks(start: int, end: int) -> list[BarMark]:
    span = end - start
    step = next((step for step in _STEPS if span / step <= 7), span // 7 or 1)
    return [
        BarMark(round(moment / span * 100, 2), "hour", length(moment))
        for moment in range(step, span - span // 20, step)
    ]


def draw_lease(lease: LeaseRow, outer: int | None, now: int) -> DrawnLease:
    """A lease as a bar: from when it was granted to its limit, with the moments inside and the limits outside."""
    start = lease.granted_at
    if lease.limit is None:
        return DrawnLease(0.0, [], "no limit")
    numbers = range(1, _ASKED_MOST + 2)
    if asked_at(lease, numbers[-1]) is not None:
        next_ = max(now - start, 0) // max(lease.ask_every, 1) + 1
        numbers = range(next_, next_ + 1)
    asked = [at for at in (asked_at(lease, number) for number in numbers) if at is not None]
    marks = [(at, "asked", "a check-in is asked for") for at in asked]
    idle = idles_at(lease)
    if idle is not None:
        marks.append((idle, "idle", "it counts as idle"))
    if lease.own is None:
        marks.append((lease.deadline, "limit", "its own limit"))
        if outer is not None:
            marks.append((outer, "outer", "the limit of its run"))
    else:
        marks.append((lease.deadline, "limit", "the limit of its run"))
        marks.append((lease.own, "outer", "its own limit, which it will not reach"))
    far = max((at for at, _, _ in marks if at - start <= 2 * (lease.deadline - start)), default=lease.deadline)
    end = start + max((far - start) * 26 // 25, 1)
    ticks = [
        BarMark(_share(at, start, end), kind, f"{says}, {_away(at, now)}") for at, kind, says in marks if at <= end
    ]
    left = lease.deadline - now
    says = f"{rough(left)} left of {length(lease.deadline - start)}" if left > 0 else "its time is up"
    return DrawnLease(_share(now, start, end), ticks, says)


def _away(at: int, now: int) -> str:
    return f"in {rough(at - now)}" if at > now else f"{rough(now - at)} ago"


# A task's life on one clock: a row for each stretch of it, so that waiting, queueing and each attempt stand apart.

_FIRST, _LAST = 4, 26
_CALLED = {"waiting": "waited", "asked": "asked you", "paused": "paused", "ready": "in the queue"}
_CALLED_NOW = {"waiting": "waits", "asked": "asks you", "paused": "pauses", "ready": "in the queue"}


def draw_life(spans: tuple[Span, ...], now: Millis, *, state: str, limit: Millis | None) -> Seen:
    """Draw the stretches of a task's life; `limit` is when the attempt that runs reaches its own.

    Of a very long one, the beginning and the end: `left_out` is how many stretches between these have no row.
    """
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
    rows = [(lane, span, _called(span, now)) for lane, span in zip(fall.lanes, shown, strict=True)]
    return Seen(fall=fall, rows=rows, left_out=left_out)


def _called(span: Span, now: int) -> str:
    if span.kind == "held":
        return f"attempt {span.token}"
    return (_CALLED_NOW if span.end >= now else _CALLED)[span.kind]


# What needs what, as a picture: waves from left to right, a box for each thing, and a line from what it needs.

MOST = 120
"""Boxes in one picture."""
_WIDE, _HIGH = 176, 40
_GAP_X, _GAP_Y = 46, 14
_MARGIN = 4
_LETTERS = 23


class GraphThing(Struct, frozen=True):
    """One thing that is to be drawn."""

    id: str
    name: str
    state: str
    under: str
    """What stands below its name, in small letters."""
    href: str
    needs: Sequence[str]


def draw_graph(things: Sequence[GraphThing], what: str) -> Seen:
    """Draw things and what they need of each other; needs that are not among them have no line."""
    by_id = {thing.id: thing for thing in things}
    needs = {thing.id: [need for need in thing.needs if need in by_id and need != thing.id] for thing in things}
    placed = arrange(needs)
    tallest = max(placed.sizes, default=0)
    boxes = [
        (by_id[id_], *_corner(placed, placed.wave[id_], placed.row[id_]), clean(by_id[id_].name, _LETTERS))
        for wave in placed.waves
        for id_ in wave
    ]
    edges = [
        (_path(placed, start, end, rows), by_id[start].state in ("done", "merged"))  # met: its start has ended well
        for (start, end), rows in placed.lines.items()
    ]
    waves = len(placed.sizes)
    width = 2 * _MARGIN + waves * _WIDE + max(waves - 1, 0) * _GAP_X
    height = 2 * _MARGIN + tallest * (_HIGH + _GAP_Y)
    says = f"{what}: " + "; ".join(_said(thing, needs, by_id) for thing in list(by_id.values())[:MOST])
    return Seen(width=width, height=height, box=(_WIDE, _HIGH), boxes=boxes, edges=edges, says=says)


def _said(thing: GraphThing, needs: Mapping[str, Sequence[str]], by_id: Mapping[str, GraphThing]) -> str:
    before = ", ".join(clean(by_id[need].name, 40) for need in needs[thing.id])
    return f"{clean(thing.name, 40)} ({thing.state})" + (f" needs {before}" if before else "")


def _corner(placed: GraphLayout, wave: int, row: int) -> tuple[float, float]:
    """The upper left corner of a place; a short wave stands in the middle."""
    down = (max(placed.sizes) - placed.sizes[wave]) / 2 + row
    return _MARGIN + wave * (_WIDE + _GAP_X), _MARGIN + down * (_HIGH + _GAP_Y)


def _path(placed: GraphLayout, start: str, end: str, rows: Sequence[int]) -> str:
    first = placed.wave[start]
    through = [(first + number, row) for number, row in enumerate((placed.row[start], *rows))]
    corners = [_corner(placed, wave, row) for wave, row in [*through, (placed.wave[end], placed.row[end])]]
    x, y = corners[0]
    parts = [f"M{x + _WIDE:g} {y + _HIGH / 2:g}"]
    for (left, high), (right, low) in pairwise(corners):
        middle = (left + _WIDE + right) / 2
        parts.append(f"C{middle:g} {high + _HIGH / 2:g} {middle:g} {low + _HIGH / 2:g} {right:g} {low + _HIGH / 2:g}")
        if (right, low) != corners[-1]:
            parts.append(f"L{right + _WIDE:g} {low + _HIGH / 2:g}")
    return "".join(parts)
