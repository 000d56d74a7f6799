"""Workers on queues of messages, and what is set where the server runs. Only to be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from allswell.domain.access.rights import check_beside
from allswell.domain.ids import TaskId
from allswell.domain.rules.event import KINDS, Entry, Event
from allswell.domain.task.model import TaskFilter, folded
from allswell.engine.status.journal import MARKS, about, look_back, tell
from allswell.engine.status.overview import OpenQuestion
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.questions import show_question
from allswell.interfaces.web.screen import Seen, address, choice_of, number_of, text_of
from allswell.views.worker import TROUBLES, UNASKED, QueueShape, look_at_queues

_QUESTIONS = 50
_LOOKED_AT = 5_000
_WORST_FIRST = ("critical", "degraded", "healthy")


async def look_at_worker(call: RequestContext) -> Seen:
    """Look at the queues of the store's database, and at the messages that wait for an operator."""
    check_beside(call.key, "queues")
    url = call.house.url
    seen = await asyncio.to_thread(look_at_queues, url)
    asked = [one for one in await call.views.view_questions(limit=_LOOKED_AT) if one.message is not None]
    shown = []
    for one, troubled in seen:
        queue = QueueShape.of(one)
        health, why = _health(queue)
        troubles = [(words, queue.troubles[state]) for state, words in TROUBLES.items() if queue.troubles.get(state)]
        more = sum(count for state, count in queue.troubles.items() if state in UNASKED) - len(troubled)
        shown.append(
            Seen(queue=queue, health=health, why=why, troubles=troubles, troubled=troubled, troubled_more=max(more, 0))
        )
    return Seen(
        title="Worker",
        now=(await call.views.view_agenda()).now,
        queues=shown,
        words=TROUBLES,
        questions=[show_question(call, OpenQuestion(one, None, 0)) for one in asked[:_QUESTIONS]],
        questions_more=max(len(asked) - _QUESTIONS, 0),
        postgres=url.startswith("postgresql:"),
    )


def _health(queue: QueueShape) -> tuple[str, list[str]]:
    there = [one for one in queue.processes if not one.gone]
    if not there:
        return "", []
    worst = min((one.condition for one in there), key=_WORST_FIRST.index)
    return worst, [f"process {one.pid}: {one.why}" for one in there if one.why]


# What is set where the server runs: each setting with its value and where that comes from. Only to be looked at.


def never(_: RequestContext, _entry: Entry) -> bool:
    """No event changes a setting: they are read when the server starts."""
    return False


async def look_at_settings(call: RequestContext) -> Seen:
    """Look at the settings."""
    check_beside(call.key, "settings")
    settings, text = call.house.settings, text_of(call, "text")
    wanted = folded(text)
    found = [one for one in settings.explain() if wanted in folded(f"{one.name}\n{one.description}\n{one.shown}")]
    now = (await call.views.view_agenda()).now
    return Seen(title="Settings", now=now, settings=found, files=settings.files, unknown=settings.strangers, text=text)


# The journal: what has happened, the newest first, by kind, by what it is about, and by a text in it.

PAGE = 100
_BAD = "✗✋"


async def look_at_journal(call: RequestContext) -> Seen:
    """Look at a page of the journal."""
    kind, text = choice_of(call, "kind", KINDS), text_of(call, "text")
    ids = {name: text_of(call, name) for name in ("task", "run", "agent")}
    before = number_of(call, "before", 1 << 39)
    page = await look_back(call.views, _fits(kind, text, ids), PAGE, before or None)
    names = await _names(call, page.entries)
    kept = {"kind": kind, "text": text, **ids}
    return Seen(
        title="Journal",
        now=(await call.views.view_agenda()).now,
        lines=[_line(entry, names) for entry in page.entries],
        kinds=sorted(KINDS),
        kind=kind,
        text=text,
        **ids,
        newest=address("/journal", **kept) if before else None,
        older=None if page.before is None else address("/journal", before=page.before, **kept),
        looked_at=page.looked_at,
        filtered=bool(kind or text or any(ids.values())),
    )


def _fits(kind: str, text: str, ids: dict[str, str]) -> Callable[[Entry], bool]:
    wanted = folded(text)
    named = about((kind,) if kind else (), **{field: value or None for field, value in ids.items()})
    return lambda entry: named(entry) and (not wanted or wanted in folded(_said(entry.event)))


def _said(event: Event) -> str:
    """All that a text could be found in."""
    data = msgspec.json.encode(event.data).decode()
    return "\n".join((event.kind, tell(event), event.task or "", event.run or "", event.agent or "", data))


async def _names(call: RequestContext, entries: Sequence[Entry]) -> dict[str, str]:
    ids = tuple(dict.fromkeys(TaskId(entry.event.task) for entry in entries if entry.event.task is not None))
    found = await call.views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    return {row.task.id: row.task.name for row in found}


def _line(entry: Entry, names: dict[str, str]) -> Seen:
    """An event: its place in letters that an address may have, the task that it is about, and what it says."""
    event, place = entry.event, entry.position
    mark = MARKS.get(event.kind, "")
    name = "" if event.task is None else names.get(event.task, event.task)
    bad = bool(mark) and mark in _BAD
    return Seen(id=f"{place.xid}-{place.id}", entry=entry, mark=mark, bad=bad, name=name, says=tell(event))
