"""`events` and `comms`: the journal, and the communication log between agents that is read from it."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from allswell.errors import Refused
from allswell.interfaces.cli.arguments import moment
from allswell.interfaces.cli.context import CliContext, Exit, encoded, flush, write
from allswell.interfaces.cli.options import Option
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import Column, columns, cut, paint, plain, table, when, width_of

if TYPE_CHECKING:
    from allswell.domain.mesh.comms import Comm
    from allswell.domain.rules.event import Entry, Position
    from allswell.engine.watch import Watch
    from allswell.store.views import Views


_BAD = ("task_failed", "agent_timeout", "agent_idle", "agent_stalled", "lease_lapsed", "task_retried", "late_result")
_ASKS = ("question_asked", "task_repeated_timeout")
_GOOD = ("task_completed", "question_answered")
_NAME = 20


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "comms",
        comms,
        "allswell comms                             who asked whom, and the result",
        "allswell comms --agent oracle --status blocked --since 1d",
        "allswell comms --follow --json",
        "allswell comms --csv > log.csv",
    )
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
    follow: Annotated[bool, Option("--follow", "-f", help="Keep printing new ones as they happen.")] = False,
    task: Annotated[
        str | None, Option("--task", "-t", metavar="ID", help="Only about this task.", of=("task",))
    ] = None,
    kind: Annotated[
        list[str] | None, Option("--kind", "-k", metavar="KIND", help="Only of this kind; repeatable.", of=("event",))
    ] = None,
    since: Annotated[
        str | None,
        Option("--since", metavar="WHEN", help="Only since 1h ago, or since 2026-01-31T08:00; without a limit then."),
    ] = None,
    limit: Annotated[
        int | None,
        Option("--limit", "-n", metavar="N", min=1, help="Only the last N. Default: 50.", show_default=False),
    ] = None,
    *,
    context: CliContext,
) -> None:
    """List events: what has happened, the newest last. With --json, one event on each line."""
    kinds = frozenset(map(_kind, kind or ()))
    most = limit or (None if since else 50)
    telling = EventPrinter(json=context.json)

    async def past(views: Views) -> tuple[Callable[[Entry], bool], Position | None]:
        from allswell.engine.lookup import find_task
        from allswell.engine.status.journal import about

        task_id = None if task is None else await find_task(views, task)
        now = (await views.view_agenda()).now
        start = 0 if since is None else moment(since, now, "--since", past=True)
        fits = about(kinds, task=task_id)
        last = None
        async for entry in _last(views, most, lambda entry: entry.at >= start and fits(entry), start):
            await telling.tell(entry, views, now)
            last = entry.position
        return fits, last

    if not follow:
        context.look(past, or_empty=True)
        if not telling.told and not context.json:
            write(context.none("No events.") + "\n")
        return

    async def live(watch: Watch) -> None:
        from allswell.engine.status.journal import journal_end

        views = watch.views
        fits, last = await past(views)
        flush()
        async for entry in watch.events(after=last or await journal_end(views), follow=True):
            if fits(entry):
                await telling.tell(entry, views, None)
                flush()

    try:
        context.run(live, making=True)
    except KeyboardInterrupt:
        context.leave(Exit.INTERRUPTED)


def _kind(given: str) -> str:
    from allswell.domain.rules.event import KINDS
    from allswell.engine.lookup import did_you_mean

    if given in KINDS:
        return given
    hint = did_you_mean(given, KINDS) or f"; choose one of: {', '.join(KINDS)}"
    raise Refused("bad_kind", f"--kind: {given!r} is not a kind of event{hint}", where="--kind")


# --- finding the last ones --------------------------------------------------------------------------------------------


async def _last(views: Views, most: int | None, fits: Callable[[Entry], bool], since: int) -> AsyncIterator[Entry]:
    """The last events that fit, at most so many; in order. Before a moment there are none that fit."""
    from allswell.engine.status.journal import entries_after, look_back, number_before, numbering

    at = await numbering(views)
    start = await number_before(views, at, since) if since else 0
    if most is not None:
        for entry in (await look_back(views, fits, most, bound=sys.maxsize, start=start)).entries[:most][::-1]:
            yield entry
        return
    async for entry in entries_after(views, at(start)):
        if fits(entry):
            yield entry


# --- telling ----------------------------------------------------------------------------------------------------------


class EventPrinter:
    """Writes events, one on each line; names of tasks are looked up once."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._names: dict[str, str] = {}
        self.told = 0

    async def tell(self, entry: Entry, views: Views, now: int | None) -> None:
        """One event; without `now`, it has just happened."""
        from allswell.views.delivery import EventShape

        self.told += 1
        if self._json:
            write(encoded(EventShape.of(entry)) + "\n")
            return
        from allswell.engine.status.journal import MARKS, tell

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
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def _style(kind: str) -> str:
    return "failed" if kind in _BAD else "warn" if kind in _ASKS else "ready" if kind in _GOOD else ""


# `comms`: the communication log between agents, read from the journal.

HEADS = (
    *("Event", "Source Agent", "Target Agent", "Status", "Timeout (min)"),
    *("Blocked Task", "Resolution", "Timestamp", "Retry Count"),
)
"""The nine fields, as the protocol names them."""


def comms(
    follow: Annotated[bool, Option("--follow", "-f", help="Keep printing new ones as they happen.")] = False,
    agent: Annotated[
        str, Option("--agent", "-a", metavar="NAME", help="Only messages to or from this agent.", of=("agent",))
    ] = "",
    status: Annotated[
        str, Option("--status", metavar="STATUS", help="Only Sent, Received, Timeout, Blocked or Resolved.")
    ] = "",
    since: Annotated[
        str | None, Option("--since", metavar="WHEN", help="Only since 1h ago, or since 2026-01-31T08:00.")
    ] = None,
    limit: Annotated[int | None, Option("--limit", "-n", metavar="N", min=1, help="Only the last N.")] = None,
    csv: Annotated[bool, Option("--csv", help="Comma-separated, with the protocol's nine fields.")] = False,
    *,
    context: CliContext,
) -> None:
    """List messages between agents, the newest last: who asked whom, and the result."""
    if csv and context.json:
        raise Refused("usage", "use either --csv or --json", where="--csv")

    wanted = _status(status)

    def fits(comm: Comm) -> bool:
        from allswell.domain.mesh.comms import is_among

        return is_among(comm, agent, wanted)

    async def past(views: Views) -> tuple[Sequence[Comm], Position, int]:
        now = (await views.view_agenda()).now
        start = 0 if since is None else moment(since, now, "--since", past=True)
        found, after = await _past(views, start, fits, limit)
        return found, after, now

    if not follow:
        found, _, now = context.look(past, or_empty=True)
        if csv or context.json:
            _writer(csv=csv)(found)
        else:
            none = (
                "No message between agents matches." if agent or wanted or since else "No agent has asked another one."
            )
            context.say(None, table(_COLUMNS, [_row(one, now) for one in found]) if found else context.none(none))
        return
    tell = _writer(csv=csv) if csv or context.json else _tell

    async def live(watch: Watch) -> None:
        from allswell.engine.status.journal import comm_of

        found, after, _ = await past(watch.views)
        tell(found)
        flush()
        async for entry in watch.events(after=after, follow=True):
            comm = await comm_of(watch.views, entry)
            if comm is not None and fits(comm):
                tell([comm])
                flush()

    try:
        context.run(live, making=True)
    except KeyboardInterrupt:
        context.leave(Exit.INTERRUPTED)


def _status(given: str) -> str:
    from allswell.domain.mesh.comms import STATUSES
    from allswell.engine.lookup import did_you_mean

    known = {status.casefold(): status for status in STATUSES}
    if given and given.casefold() not in known:
        hint = did_you_mean(given, STATUSES) or f"; choose one of: {', '.join(STATUSES)}"
        raise Refused("bad_status", f"--status: {given!r} is not a status{hint}", where="--status")
    return known.get(given.casefold(), "")


async def _past(
    views: Views, since: int, fits: Callable[[Comm], bool], limit: int | None
) -> tuple[Sequence[Comm], Position]:
    from allswell.domain.rules.event import Position
    from allswell.engine.status.journal import comm_of, entries_after, place_before

    found: deque[Comm] = deque(maxlen=limit)
    after = await place_before(views, since) if since else Position()
    async for entry in entries_after(views, after):
        comm = await comm_of(views, entry) if entry.at >= since else None
        if comm is not None and fits(comm):
            found.append(comm)
        after = entry.position
    return found, after


_COLUMNS = (
    Column("WHEN"),
    Column("STATUS"),
    Column("FROM", 6),
    Column("TO", 6),
    Column("EVENT", 26),
    Column("RESOLUTION", 10, spare=True),
    Column("TASK", 6),
    Column("RETRY", right=True),
    Column("ID", spare=True),
)


def _row(one: Comm, now: int) -> list[str]:
    about = [when(one.at, now), one.status, one.source, one.target, one.event, one.resolution]
    return [*about, one.task_name, str(one.retries), one.request]


def _tell(found: Iterable[Comm]) -> None:
    from allswell.timing.moment import moment as at

    for one in found:
        about = f"{one.task_name}, retry {one.retries}, {one.request}"
        said = plain(f"{one.source} → {one.target}: {one.event} ({about})")
        write(f"{at(one.at)}  {one.status:<8}  {said}\n")


def _writer(*, csv: bool) -> Callable[[Iterable[Comm]], None]:
    """What writes rows for programs: JSON, one on each line, or CSV with a line of heads."""
    from allswell.views.delivery import CommShape
    from allswell.views.fields import as_shape

    if not csv:
        return lambda found: write("".join(encoded(as_shape(one, CommShape)) + "\n" for one in found))
    import csv as tables

    def rows(found: Iterable[Comm]) -> None:
        text = io.StringIO()
        table_ = tables.writer(text)
        for one in found:
            shape = as_shape(one, CommShape)
            waited = "" if shape.timeout_min is None else f"{shape.timeout_min:g}"
            table_.writerow(
                [
                    *(shape.event, shape.source, shape.target, shape.status, waited),
                    *(shape.blocked_task, shape.resolution, shape.at, shape.retries),
                ]
            )
        write(text.getvalue())

    write(",".join(HEADS) + "\r\n")
    return rows
