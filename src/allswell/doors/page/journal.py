"""The journal: what has happened, the newest first, by kind, by what it is about, and by a text in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from allswell.domain.event import KINDS, Event
from allswell.domain.journal import Entry
from allswell.domain.listing import TaskFilter, folded
from allswell.domain.names import TaskId
from allswell.doors.http.call import Call
from allswell.doors.page.query import address, choice_of, number_of, text_of
from allswell.engine.explaining.backwards import look_back
from allswell.engine.explaining.telling import MARKS, tell

PAGE = 100
_BAD = "✗✋"


class JournalLine(Struct, frozen=True):
    """One event."""

    id: str
    """Its place in the journal, in letters that an address may have."""
    entry: Entry
    mark: str
    bad: bool
    name: str
    """Of the task that it is about."""
    says: str


class JournalScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    lines: list[JournalLine]
    kinds: Sequence[str]
    kind: str
    text: str
    task: str
    run: str
    agent: str
    newest: str | None
    """Where the newest are, if this is not their page."""
    older: str | None
    looked_at: int
    filtered: bool


async def look(call: Call) -> JournalScreen:
    """Look at a page of the journal."""
    kind, text = choice_of(call, "kind", KINDS), text_of(call, "text")
    about = {name: text_of(call, name) for name in ("task", "run", "agent")}
    before = number_of(call, "before", 1 << 39)
    page = await look_back(call.views, _fits(kind, text, about), PAGE, before or None)
    names = await _names(call, page.entries)
    kept = {"kind": kind, "text": text, **about}
    return JournalScreen(
        title="Journal",
        now=(await call.views.view_agenda()).now,
        lines=[_line(entry, names) for entry in page.entries],
        kinds=sorted(KINDS),
        kind=kind,
        text=text,
        **about,
        newest=address("/journal", **kept) if before else None,
        older=None if page.before is None else address("/journal", before=page.before, **kept),
        looked_at=page.looked_at,
        filtered=bool(kind or text or any(about.values())),
    )


def _fits(kind: str, text: str, about: dict[str, str]) -> Callable[[Entry], bool]:
    wanted = folded(text)
    named = [(field, value) for field, value in about.items() if value]

    def fits(entry: Entry) -> bool:
        event = entry.event
        if kind and event.kind != kind:
            return False
        if any(getattr(event, field) != value for field, value in named):
            return False
        return not wanted or wanted in folded(_said(event))

    return fits


def _said(event: Event) -> str:
    """All that a text could be found in."""
    data = msgspec.json.encode(event.data).decode()
    return "\n".join((event.kind, tell(event), event.task or "", event.run or "", event.agent or "", data))


async def _names(call: Call, entries: Sequence[Entry]) -> dict[str, str]:
    ids = tuple(dict.fromkeys(TaskId(entry.event.task) for entry in entries if entry.event.task is not None))
    found = await call.views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    return {row.task.id: row.task.name for row in found}


def _line(entry: Entry, names: dict[str, str]) -> JournalLine:
    event, place = entry.event, entry.position
    mark = MARKS.get(event.kind, "")
    name = "" if event.task is None else names.get(event.task, event.task)
    return JournalLine(f"{place.xid}-{place.id}", entry, mark, bool(mark) and mark in _BAD, name, tell(event))
