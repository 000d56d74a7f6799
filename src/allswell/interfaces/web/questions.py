"""Questions as cards: the ways to answer, what each of them takes, and what its task printed last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from allswell.domain.agents.conversation import LogEntry, entries_of
from allswell.domain.question import OptionInput, in_order, takes
from allswell.domain.task.model import Task, count_in_order
from allswell.engine.status.overview import AGENTS, BusyAgent, OpenQuestion, StatusOverview, front
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.screen import number_of
from allswell.interfaces.web.timeline import DrawnLease, DrawnWaterfall, draw_lease, draw_waterfall
from allswell.views.log import PrintedLog, Stream
from allswell.views.question import OptionShape

# What attempts have printed, as a page shows it: the end of it, bounded and made readable.
#
# A file may be large and may grow; only so many bytes before a place in it are ever read.

PIECE = 96 << 10
"""Bytes of each stream that one look shows."""
_ENTRY_LINES = 30
_ENTRY_MOST = 4_000


class PrintedEntry(Struct, frozen=True):
    """One thing that was printed."""

    stream: Stream
    kind: str
    tool: str
    text: str
    more: int
    """Lines of it that are left out."""


class OutputTail(Struct, frozen=True):
    """The end of what an attempt has printed, or what stands before a place in it."""

    attempt: int
    running: bool
    entries: list[PrintedEntry]
    begin: int
    """Where what is shown begins in the standard output, in bytes; 0: there is nothing before it."""
    end: int
    attempts: list[int]
    """Those of which something is kept."""


def read_tail(home: Path, task: Task, attempt: int | None = None, upto: int | None = None) -> OutputTail | None:
    """The end of what an attempt has printed, the last one's if none is named; None if nothing is kept here."""
    printed = PrintedLog(home, task)
    files = printed.attempts()
    number = attempt if attempt is not None else max(files, default=0)
    if number not in files:
        return None
    running = printed.is_running(number)
    lines, begin, end = printed.before(number, upto, PIECE, over=not running)
    found = [_entry(entry, stream) for stream, entry in entries_of(lines)]
    return OutputTail(number, running, found, begin, end, sorted(files))


def _entry(entry: LogEntry, stream: Stream) -> PrintedEntry:
    lines = entry.text[:_ENTRY_MOST].splitlines() or [""]
    more = max(len(lines) - _ENTRY_LINES, 0) or int(len(entry.text) > _ENTRY_MOST)
    return PrintedEntry(stream, str(entry.kind), entry.tool, "\n".join(lines[:_ENTRY_LINES]), more)


def last_lines(home: Path, task: Task, most: int) -> list[str]:
    """The last lines that the latest attempt at a task has printed here."""
    found = read_tail(home, task)
    if found is None:
        return []
    said = [line for one in found.entries if one.stream == "stdout" for line in one.text.splitlines() if line.strip()]
    return said[-most:]


_LAST_LINES = 6


class ShownQuestion(Struct, frozen=True):
    """A question as a card."""

    asked: OpenQuestion
    options: Sequence[tuple[OptionShape, OptionInput | None]]
    """Each way to answer, and what it takes beside its button, if anything."""
    output: list[str]
    """What its task printed last."""


def show_question(call: RequestContext, one: OpenQuestion) -> ShownQuestion:
    """A question with what one must know to answer it."""
    ways = [(OptionShape.of(option), takes(option.act)) for option in in_order(one.question.options)]
    options = [(option, None if wanted is OptionInput.REMARK else wanted) for option, wanted in ways]
    output = [] if one.task is None else last_lines(call.house.home, one.task.task, _LAST_LINES)
    return ShownQuestion(one, options, output)


# Screen one: the verdict, what needs a human, what is wrong, who does what, runs, and what comes next.


class ShownAgent(Struct, frozen=True):
    """An agent as a row."""

    hand: BusyAgent
    bar: DrawnLease | None


class FrontScreen(Struct, frozen=True):
    """All that the template shows."""

    front: StatusOverview
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


async def look(call: RequestContext) -> FrontScreen:
    """Look at everything at once."""
    first = number_of(call, "agents")
    seen = await front(call.views, agents_from=first, place=call.place)
    verdict = seen.verdict
    now, needs = verdict.now, len(verdict.needs)
    return FrontScreen(
        seen,
        now,
        verdict.headline,
        count_in_order(verdict.counts),
        [show_question(call, one) for one in seen.questions],
        [ShownAgent(one, None if one.lease is None else draw_lease(one.lease, one.outer, now)) for one in seen.hands],
        [draw_waterfall(one, now) for one in seen.runs],
        first,
        None if first == 0 else max(first - AGENTS, 0),
        first + AGENTS if first + AGENTS < seen.agents else None,
        f"({needs}) {verdict.headline}".removesuffix(".") if needs else verdict.headline.removesuffix("."),
    )
