"""Screen one: the verdict, what needs a human, what is wrong, who does what, runs, and what comes next."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path

from msgspec import Struct

from allswell.domain.log_line import entries
from allswell.domain.names import TaskId
from allswell.domain.question import Act, Option
from allswell.doors.http.call import Call
from allswell.doors.page.drawing import DrawnLease, DrawnWaterfall, draw_lease, draw_waterfall
from allswell.engine.explaining.front import AGENTS, Front, Hand, OpenQuestion, front
from allswell.engine.explaining.words import many
from allswell.errors import Refused
from allswell.runtime.attempt.log import LogPlace, LogReader, log_files
from allswell.runtime.receipts import Home

_LAST_LINES = 6
_ORDER = ("held", "ready", "delayed", "waiting", "done", "failed", "cancelled", "skipped", "split")
_TAKES = {
    Act.CLARIFY: "text",
    Act.REPLY: "text",
    Act.SPLIT: "parts",
    Act.INCREASE_TIMEOUT: "time",
    Act.INCREASE_IDLE: "time",
    Act.INCREASE_COST: "cost",
}
"""What an option takes beside its button."""


class ShownOption(Struct, frozen=True):
    """A way to answer, and what it takes: nothing, a text, names of smaller tasks, a length of time, or money."""

    option: Option
    takes: str | None


class ShownQuestion(Struct, frozen=True):
    """A question as a card."""

    asked: OpenQuestion
    options: list[ShownOption]
    output: list[str]
    """What its task printed last."""


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
    first = _first(call)
    seen = await front(call.views, agents_from=first)
    now = seen.overview.now
    needs = len(seen.overview.needs)
    return FrontScreen(
        seen,
        now,
        "All's well." if seen.overview.well else f"{many(needs, 'thing needs', 'things need')} you.",
        [(state, seen.overview.counts[state]) for state in _ORDER if seen.overview.counts.get(state)],
        [_question(call, one) for one in seen.questions],
        [ShownAgent(one, None if one.lease is None else draw_lease(one.lease, one.outer, now)) for one in seen.hands],
        [draw_waterfall(one, now) for one in seen.runs],
        first,
        None if first == 0 else max(first - AGENTS, 0),
        first + AGENTS if first + AGENTS < seen.agents else None,
        "All's well" if seen.overview.well else f"({needs}) {many(needs, 'thing needs', 'things need')} you",
    )


def _first(call: Call) -> int:
    given = call.query.get("agents", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 6:
        raise Refused("bad_query", "`agents` is the number of the first agent to be shown", where="agents")
    return int(given)


def _question(call: Call, one: OpenQuestion) -> ShownQuestion:
    options = [ShownOption(option, _TAKES.get(option.act)) for option in one.question.options]
    task = one.task
    output = [] if task is None else last_output(call.house.home, task.task.id)
    return ShownQuestion(one, options, output)


def last_output(home: Path, task: TaskId, most: int = _LAST_LINES) -> list[str]:
    """The last lines that the latest attempt at a task has printed here, as a person reads them."""
    files = log_files([LogPlace(Home(home).transcripts, f"{task}.")])
    if not files:
        return []
    found: deque[str] = deque(maxlen=most)
    path = files[max(files)].get("stdout")
    if path is None:
        return []
    with contextlib.suppress(OSError):
        reader = LogReader(path)
        try:
            for line in reader.lines(over=True):
                found.extend(text for entry in entries(line) for text in entry.text.splitlines() if text.strip())
        finally:
            reader.close()
    return list(found)
