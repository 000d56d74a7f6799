"""`events`: the journal, its end or all of it, and what happens from now on."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Exit, Frame, encoded, flush, write
from allswell.doors.cli.given import moment
from allswell.doors.cli.options import Json, Option, Store
from allswell.doors.cli.render import paint, plain, when
from allswell.doors.cli.width import columns, cut, width_of
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.journal import Entry, Position
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_CHUNK = 2_000
_BAD = ("task_failed", "agent_timeout", "agent_idle", "agent_stalled", "lease_lapsed", "task_retried", "late_result")
_ASKS = ("question_asked", "task_repeated_timeout")
_GOOD = ("task_completed", "question_answered")
_NAME = 20


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "events",
        events,
        "allswell events                            the last ones",
        "allswell events --follow",
        "allswell events --since 1h --kind task_failed --json",
        'allswell events --task "write the changelog" --limit 1000',
    )


def events(
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as things happen.")] = False,
    task: Annotated[
        str | None, Option("--task", "-t", metavar="ID", help="Only about this task.", of=("task",))
    ] = None,
    kind: Annotated[
        list[str] | None, Option("--kind", "-k", metavar="KIND", help="Only of this kind; repeatable.", of=("event",))
    ] = None,
    since: Annotated[
        str | None, Option("--since", metavar="WHEN", help="1h back, or 2026-01-31T08:00; then no limit.")
    ] = None,
    limit: Annotated[
        int | None,
        Option("--limit", "-n", metavar="N", min=1, help="The last N. Default: 50.", show_default=False),
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """The journal: what has happened, the newest last. With --json, one event on each line."""
    frame = Frame(store, json=json)
    kinds = frozenset(map(_kind, kind or ()))
    most = limit or (None if since else 50)
    telling = Telling(json=json)

    async def past(views: Views) -> tuple[Callable[[Entry], bool], Position | None]:
        from allswell.engine.finding import find_task

        about = None if task is None else await find_task(views, task)
        now = (await views.view_agenda()).now
        start = None if since is None else moment(since, now, "--since", past=True)

        def fits(entry: Entry) -> bool:
            event = entry.event
            return (about is None or event.task == about) and (not kinds or event.kind in kinds)

        last = None
        async for entry in _last(views, most, fits, start or 0):
            await telling.tell(entry, views, now)
            last = entry.position
        return fits, last

    if not follow:
        frame.look(past)
        if not telling.told and not json:
            write("No events.\n")
        return

    async def live(watch: Watch) -> None:
        from allswell.engine.journal_end import journal_end

        views = watch.views
        fits, last = await past(views)
        flush()
        async for entry in watch.events(after=last or await journal_end(views), follow=True):
            if fits(entry):
                await telling.tell(entry, views, None)
                flush()

    try:
        frame.run(live)
    except KeyboardInterrupt:
        frame.leave(Exit.INTERRUPTED)


def _kind(given: str) -> str:
    from allswell.domain.event import KINDS
    from allswell.engine.finding import did_you_mean

    if given in KINDS:
        return given
    hint = did_you_mean(given, KINDS) or f"; choose one of: {', '.join(KINDS)}"
    raise Refused("bad_kind", f"--kind: {given!r} is no kind of event{hint}", where="--kind")


# --- finding the last ones --------------------------------------------------------------------------------------------


async def _last(views: Views, most: int | None, fits: Callable[[Entry], bool], since: int) -> AsyncIterator[Entry]:
    """The last events that fit, at most so many, none before a moment; in order."""
    from allswell.engine.journal_end import first_number, numbering

    at = await numbering(views)
    end = await first_number(views, at, lambda entries: not entries)
    # Transactions that overlap may be stamped a little out of order: begin a minute early and look at each.
    begin = 0
    if since:
        begin = await first_number(views, at, lambda entries: not entries or entries[0].at >= since - 60_000) - 1
    if most is None:
        async for entry in _from(views, at(begin)):
            if entry.at >= since and fits(entry):
                yield entry
        return
    back = most
    while True:
        start = max(begin, end - back)
        kept: deque[Entry] = deque(maxlen=most)
        async for entry in _from(views, at(start)):
            if entry.at >= since and fits(entry):
                kept.append(entry)
        if len(kept) == most or start <= begin:
            break
        back *= 8
    for entry in kept:
        yield entry


async def _from(views: Views, after: Position) -> AsyncIterator[Entry]:
    while entries := await views.journal(after, _CHUNK):
        for entry in entries:
            yield entry
        after = entries[-1].position


# --- telling ----------------------------------------------------------------------------------------------------------


class Telling:
    """Writes events, one on each line; names of tasks are looked up once."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._names: dict[str, str] = {}
        self.told = 0

    async def tell(self, entry: Entry, views: Views, now: int | None) -> None:
        """One event; without `now`, it has just happened."""
        from allswell.doors.shapes.event import EventShape

        self.told += 1
        if self._json:
            write(encoded(EventShape.of(entry)) + "\n")
            return
        from allswell.engine.explaining.telling import MARKS, tell

        event = entry.event
        name = ""
        if event.task is not None:
            if event.task not in self._names:
                row = await views.view_task(event.task)
                self._names[event.task] = event.task if row is None else row.task.name
            name = self._names[event.task]
        moment_ = _clock(entry.at) if now is None else when(entry.at, now)
        room = columns()
        space = _NAME if room is None else min(_NAME * 3 // 2, max(_NAME, room // 4))
        name = plain(name) if room is None else cut(plain(name), space)
        padded = name + " " * (space - width_of(name))
        line = f"{moment_:>10}  {MARKS.get(event.kind, ' ')} {padded}  {plain(tell(event))}".rstrip()
        write(paint(line if room is None else cut(line, room), _style(event.kind)) + "\n")


def _clock(at: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def _style(kind: str) -> str:
    return "failed" if kind in _BAD else "warn" if kind in _ASKS else "ready" if kind in _GOOD else ""
