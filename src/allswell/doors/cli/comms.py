"""`comms`: the communication log between agents, read from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Exit, Frame, encoded, flush, write
from allswell.doors.cli.options import Json, Option, Store
from allswell.doors.cli.render import Column, table, when
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allswell.domain.comms import Comm
    from allswell.domain.journal import Position
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_CHUNK = 2_000
HEADS = (
    *("Event", "Source Agent", "Target Agent", "Status", "Timeout (min)"),
    *("Blocked Task", "Resolution", "Timestamp", "Retry Count"),
)
"""The nine fields, as the protocol names them."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "comms",
        comms,
        "allswell comms                             who asked whom, and what came of it",
        "allswell comms --follow --json",
        "allswell comms --csv > log.csv",
    )


def comms(
    follow: Annotated[bool, Option("--follow", "-f", help="Go on as things happen.")] = False,
    csv: Annotated[bool, Option("--csv", help="Comma-separated, with the protocol's nine fields.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Every message between agents, the newest last: who asked whom, and what came of it."""
    frame = Frame(store, json=json)
    if csv and json:
        raise Refused("usage", "--csv and --json are two answers; which of them?", where="--csv")

    async def past(views: Views) -> tuple[list[Comm], Position, int]:
        found, after = await _past(views)
        return found, after, (await views.view_agenda()).now

    if not follow:
        found, _, now = frame.look(past)
        if csv or json:
            _writer(csv=csv)(found)
        else:
            frame.say(
                None, table(_COLUMNS, [_row(one, now) for one in found]) if found else "No agent has asked another."
            )
        return
    tell = _writer(csv=csv) if csv or json else _tell

    async def live(watch: Watch) -> None:
        from allswell.engine.explaining.communication import comm_of

        found, after, _ = await past(watch.views)
        tell(found)
        flush()
        async for entry in watch.events(after=after, follow=True):
            comm = await comm_of(watch.views, entry)
            if comm is not None:
                tell([comm])
                flush()

    try:
        frame.run(live)
    except KeyboardInterrupt:
        frame.leave(Exit.INTERRUPTED)


async def _past(views: Views) -> tuple[list[Comm], Position]:
    from allswell.domain.journal import Position
    from allswell.engine.explaining.communication import comm_of

    found = []
    after = Position()
    while entries := await views.journal(after, _CHUNK):
        for entry in entries:
            comm = await comm_of(views, entry)
            if comm is not None:
                found.append(comm)
        after = entries[-1].position
    return found, after


_COLUMNS = (
    Column("WHEN"),
    Column("STATUS"),
    Column("FROM", 8),
    Column("TO", 8),
    Column("EVENT", 24),
    Column("RESOLUTION", 10, spare=True),
)


def _row(one: Comm, now: int) -> list[str]:
    return [when(one.at, now), one.status, one.source, one.target, one.event, one.resolution]


def _tell(found: Iterable[Comm]) -> None:
    from allswell.doors.shapes.moment import moment

    for one in found:
        write(f"{moment(one.at)}  {one.status:<8}  {one.source} → {one.target}: {one.event}\n")


def _writer(*, csv: bool) -> Callable[[Iterable[Comm]], None]:
    """What writes rows for programs: JSON, one on each line, or CSV with a line of heads."""
    from allswell.doors.shapes.comm import CommShape

    if not csv:
        return lambda found: write("".join(encoded(CommShape.of(one)) + "\n" for one in found))
    import csv as tables
    import io

    def rows(found: Iterable[Comm]) -> None:
        text = io.StringIO()
        table_ = tables.writer(text)
        for one in found:
            shape = CommShape.of(one)
            waited = "" if shape.timeout_min is None else f"{shape.timeout_min:g}"
            table_.writerow(
                [
                    *(shape.event, shape.source_agent, shape.target_agent, shape.status, waited),
                    *(shape.blocked_task, shape.resolution, shape.occurred_at, shape.retry_count),
                ]
            )
        write(text.getvalue())

    write(",".join(HEADS) + "\r\n")
    return rows
