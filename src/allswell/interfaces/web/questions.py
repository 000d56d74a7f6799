"""Questions as cards: the ways to answer, what each of them takes, and what its task printed last."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from allswell.domain.agents.conversation import LogEntry, entries_of
from allswell.domain.question import OptionInput, in_order, takes
from allswell.domain.task.model import Task, count_in_order
from allswell.engine.status.overview import AGENTS, OpenQuestion, front
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.screen import Seen, number_of
from allswell.interfaces.web.timeline import draw_lease, draw_waterfall
from allswell.views.log import PrintedLog, Stream
from allswell.views.question import OptionShape

# What attempts have printed, as a page shows it: the end of it, bounded and made readable.
#
# A file may be large and may grow; only so many bytes before a place in it are ever read.

PIECE = 96 << 10
"""Bytes of each stream that one look shows."""
_ENTRY_LINES = 30
_ENTRY_MOST = 4_000


class OutputTail(Struct, frozen=True):
    """The end of what an attempt has printed, or what stands before a place in it."""

    attempt: int
    running: bool
    entries: list[Seen]
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


def _entry(entry: LogEntry, stream: Stream) -> Seen:
    """One thing that was printed; `more` lines of it are left out."""
    lines = entry.text[:_ENTRY_MOST].splitlines() or [""]
    more = max(len(lines) - _ENTRY_LINES, 0) or int(len(entry.text) > _ENTRY_MOST)
    text = "\n".join(lines[:_ENTRY_LINES])
    return Seen(stream=stream, kind=str(entry.kind), tool=entry.tool, text=text, more=more)


def last_lines(home: Path, task: Task, most: int) -> list[str]:
    """The last lines that the latest attempt at a task has printed here."""
    found = read_tail(home, task)
    if found is None:
        return []
    said = [line for one in found.entries if one.stream == "stdout" for line in one.text.splitlines() if line.strip()]
    return said[-most:]


_LAST_LINES = 6


def show_question(call: RequestContext, one: OpenQuestion) -> Seen:
    """A question as a card: the ways to answer, what each takes beside its button, and what its task printed last."""
    ways = [(OptionShape.of(option), takes(option.act)) for option in in_order(one.question.options)]
    options = [(option, None if wanted is OptionInput.REMARK else wanted) for option, wanted in ways]
    output = [] if one.task is None else last_lines(call.house.home, one.task.task, _LAST_LINES)
    return Seen(asked=one, options=options, output=output)


# Screen one: the verdict, what needs a human, what is wrong, who does what, runs, and what comes next.


async def look_at_front(call: RequestContext) -> Seen:
    """Look at everything at once."""
    first = number_of(call, "agents")
    seen = await front(call.views, agents_from=first, place=call.place)
    verdict = seen.verdict
    now, needs = verdict.now, len(verdict.needs)
    return Seen(
        title=f"({needs}) {verdict.headline}".removesuffix(".") if needs else verdict.headline.removesuffix("."),
        now=now,
        front=seen,
        verdict=verdict.headline,
        counts=count_in_order(verdict.counts),
        questions=[show_question(call, one) for one in seen.questions],
        agents=[(one, None if one.lease is None else draw_lease(one.lease, one.outer, now)) for one in seen.hands],
        waterfalls=[draw_waterfall(one, now) for one in seen.runs],
        first=first,
        before=None if first == 0 else max(first - AGENTS, 0),
        after=first + AGENTS if first + AGENTS < seen.agents else None,
    )
