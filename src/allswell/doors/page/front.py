"""Screen one: the verdict, what needs a human, what is wrong, who does what, runs, and what comes next."""

from __future__ import annotations

from msgspec import Struct

from allswell.doors.http.call import Call
from allswell.doors.page.asking import ShownQuestion, show_question
from allswell.doors.page.drawing import DrawnLease, DrawnWaterfall, draw_lease, draw_waterfall
from allswell.doors.page.query import number_of
from allswell.engine.explaining.front import AGENTS, Front, Hand, front
from allswell.engine.explaining.words import many

_ORDER = ("held", "ready", "delayed", "waiting", "done", "failed", "cancelled", "skipped", "split")


class ShownAgent(Struct, frozen=True):
    """An agent as a row."""

    hand: Hand
    bar: DrawnLease | None


class FrontScreen(Struct, frozen=True):
    """All that the template shows."""

    front: Front
    now: int
    verdict: str
    counts: list[tuple[str, int]]
    questions: list[ShownQuestion]
    agents: list[ShownAgent]
    waterfalls: list[DrawnWaterfall]
    first: int
    """The number of the first agent on this page, from 0."""
    before: int | None
    after: int | None
    title: str


async def look(call: Call) -> FrontScreen:
    """Look at everything at once."""
    first = number_of(call, "agents")
    seen = await front(call.views, agents_from=first)
    now = seen.overview.now
    needs = len(seen.overview.needs)
    return FrontScreen(
        seen,
        now,
        "All's well." if seen.overview.well else f"{many(needs, 'thing needs', 'things need')} you.",
        [(state, seen.overview.counts[state]) for state in _ORDER if seen.overview.counts.get(state)],
        [show_question(call, one) for one in seen.questions],
        [ShownAgent(one, None if one.lease is None else draw_lease(one.lease, one.outer, now)) for one in seen.hands],
        [draw_waterfall(one, now) for one in seen.runs],
        first,
        None if first == 0 else max(first - AGENTS, 0),
        first + AGENTS if first + AGENTS < seen.agents else None,
        "All's well" if seen.overview.well else f"({needs}) {many(needs, 'thing needs', 'things need')} you",
    )
