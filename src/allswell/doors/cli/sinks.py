"""`sinks`: who is told of what happens, and whether that works; `alerts test` tries every route."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from allswell.doors.cli.advice import in_words
from allswell.doors.cli.commands import LOOKING, RUNNING, UPKEEP, Commands
from allswell.doors.cli.frame import Exit, Frame, flush
from allswell.doors.cli.options import Argument, Json, Store
from allswell.doors.cli.render import Column, block, paint, plain, table
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from allswell.domain.sink_spec import SinkSpec
    from allswell.doors.shapes.sink import RouteTestedShape, SinkCheckedShape, SinkShape
    from allswell.doors.sinks.sink import Sink
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_MOST = 1_000_000
Name = Annotated[str | None, Argument(metavar="[NAME]", help="Only this one.")]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(LOOKING, "sinks", sinks, "allswell sinks", "allswell sinks --json")
    app.add(UPKEEP, "sinks check", check, "allswell sinks check", "allswell sinks check oncall")
    app.add(
        UPKEEP,
        "sinks setup",
        setup,
        "allswell sinks setup log",
    )
    app.add(UPKEEP, "sinks forget", forget, "allswell sinks forget hook")
    app.add(RUNNING, "sinks run", run, "allswell sinks run                         beside a fleet elsewhere")
    app.add(UPKEEP, "alerts test", try_alerts, "allswell alerts test", "allswell alerts test oncall")


def sinks(store: Store = None, json: Json = False) -> None:
    """List who is told of what happens, and what still waits for them."""
    from allswell.domain.delivery import DeliveryFilter
    from allswell.doors.shapes.sink import SinkShape, SinksShape

    frame = Frame(store, json=json)
    specs = _known(frame)

    async def work(views: Views) -> list[SinkShape]:
        kept = await views.view_deliveries(DeliveryFilter(limit=_MOST))
        found = []
        for name in [*specs, *await _removed(views, specs)]:
            own = [one for one in kept if one.sink == name]
            waiting = [one for one in own if not one.given_up]
            reason = next((one.reason for one in waiting if one.tries), "")
            kind = specs[name].kind if name in specs else ""
            found.append(SinkShape(name, kind, name in specs, len(waiting), len(own) - len(waiting), reason))
        return found

    found = frame.look(work)
    heads = (
        *(Column("SINK", 8), Column("KIND")),
        *(Column("WAITING", None, right=True), Column("GIVEN UP", None, right=True), Column("WHY", 24)),
    )
    rows = [[one.sink, one.kind or "removed", str(one.waiting), str(one.given_up), one.reason] for one in found]
    words = table(heads, rows) if rows else "Nobody is told: add [sinks.NAME] to allswell.toml (docs/sinks.md)."
    gone = next((one.sink for one in found if not one.set_up), None)
    if gone is not None:
        words += (
            f"\n{plain(gone)} is not set up any more: `allswell sinks forget {plain(gone)}` drops what is kept of it."
        )
    frame.say(SinksShape(found), in_words(words))


async def _removed(views: Views, specs: Collection[str]) -> list[str]:
    """The sinks that something is kept of, and that are not set up here any more."""
    from allswell.domain.delivery import follower_name, sink_of

    known = {sink_of(key) or "" for key in await views.view_kept(follower_name(""))}
    return sorted(known - {"", *specs})


def forget(
    name: Annotated[str, Argument(metavar="NAME", help="A sink that is not set up any more.")],
    store: Store = None,
    json: Json = False,
) -> None:
    """Forget a sink that was removed from the settings: how far it was told, and what still waited for it."""
    from allswell.domain.delivery import DeliveryFilter, follower_name
    from allswell.doors.shapes.sink import SinkForgottenShape
    from allswell.engine.explaining.words import many
    from allswell.engine.finding import did_you_mean

    frame = Frame(store, json=json)
    frame.for_humans("sinks forget")
    specs = _known(frame)
    if name in specs:
        text = f"the sink {name} is set up here: remove [sinks.{name}] from the settings first"
        raise Refused("sink_set_up", text, where="NAME")

    async def work(watch: Watch) -> int:
        gone = await _removed(watch.views, specs)
        if name not in gone:
            hint = did_you_mean(name, gone) or (f"; there are: {', '.join(gone)}" if gone else "")
            raise Refused("unknown_sink", f"nothing is kept of a sink {name!r}{hint}", where="NAME")
        waiting = await watch.outbox.view_deliveries(DeliveryFilter(name, limit=_MOST))
        await watch.outbox.forget(follower_name(name), name)
        return len(waiting)

    dropped = frame.run(work)
    words = f"Forgotten: {plain(name)}, with {many(dropped, 'delivery', 'deliveries')} that waited for it."
    frame.say(SinkForgottenShape(name, dropped), words)


def check(name: Name = None, store: Store = None, json: Json = False) -> None:
    """Check that each sink has what it needs: its secrets, its library, routes and addresses that can be read."""
    import asyncio

    from allswell.doors.shapes.sink import SinksCheckedShape

    frame = Frame(store, json=json)
    found = asyncio.run(_checked(_chosen(frame, name).values()))
    words = [
        f"{plain(one.sink)} ({one.kind}): {paint('ok', 'ready') if one.fits else paint('wrong', 'failed')}\n"
        + block(in_words(one.says), "  ")
        for one in found
    ]
    frame.say(SinksCheckedShape(found), "\n".join(words))
    if not all(one.fits for one in found):
        frame.leave(Exit.FAILED)


async def _checked(specs: Iterable[SinkSpec]) -> list[SinkCheckedShape]:
    from allswell.doors.shapes.sink import SinkCheckedShape
    from allswell.doors.sinks.making import make_sink

    found = []
    for spec in specs:
        try:
            sink = make_sink(spec)
            try:
                says, fits = await sink.check(), True
            finally:
                await sink.close()
        except Refused as error:
            says, fits = error.message, False
        found.append(SinkCheckedShape(spec.name, spec.kind, fits, says))
    return found


def setup(
    name: Annotated[str, Argument(metavar="NAME", help="A sink of kind notion.")],
    store: Store = None,
    json: Json = False,
) -> None:
    """Make the Notion database that a sink writes to, or check the one it has."""
    import asyncio

    from allswell.doors.shapes.sink import SetUpShape
    from allswell.doors.sinks.making import make_sink
    from allswell.doors.sinks.notion import NotionSink

    frame = Frame(store, json=json)
    spec = _chosen(frame, name)[name]
    sink = make_sink(spec)
    if not isinstance(sink, NotionSink):
        raise Refused(
            "nothing_to_set_up", f"the sink {name} needs no setting up: it is of kind {spec.kind}", where="NAME"
        )

    async def work() -> str:
        try:
            return await sink.check() if spec.database else await sink.set_up()
        finally:
            await sink.close()

    said = asyncio.run(work())
    if spec.database:
        frame.say(SetUpShape(name, spec.database, made=False), f"{said[0].upper()}{said[1:]}.")
    else:
        words = f'Made. Add this to [sinks.{name}] in allswell.toml:\n\ndatabase = "{said}"'
        frame.say(SetUpShape(name, said, made=True), words)


async def _both(*work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    await asyncio.gather(*work)


def run(name: Name = None, store: Store = None, json: Json = False) -> None:
    """Tell the sinks of what happens, until Ctrl-C; `allswell up` does it by itself."""
    import asyncio
    import signal

    from allswell.doors.shapes.moment import moment
    from allswell.doors.shapes.said import SaidShape
    from allswell.doors.sinks.making import make_sink, posting_of
    from allswell.doors.sinks.running import run_sinks
    from allswell.doors.sinks.webhook_requests import deliver_requests

    frame = Frame(store, json=json)
    made: list[Sink] = [make_sink(spec) for spec in _chosen(frame, name).values()]

    async def live(watch: Watch) -> None:
        delivering = deliver_requests(watch, posting_of(frame.settings, watch.clock.wall))
        following = asyncio.ensure_future(_both(run_sinks(watch, made), delivering))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, following.cancel)
        said = f"telling {', '.join(sink.name for sink in made)}; Ctrl-C stops"
        frame.say(SaidShape(moment(await watch.now()), said), said)
        flush()
        await asyncio.wait([following])
        if not following.cancelled():
            following.result()

    frame.run(live, making=True)


def try_alerts(name: Name = None, store: Store = None, json: Json = False) -> None:
    """Send a test alert on every route, and say which arrived."""
    import asyncio

    from allswell.doors.shapes.sink import AlertsTestedShape

    frame = Frame(store, json=json)
    specs = [spec for spec in _chosen(frame, name).values() if spec.kind == "alerts"]
    if not specs:
        said = "no sink of kind alerts is set up here" if name is None else f"the sink {name} is not of kind alerts"
        raise Refused("no_alerts", f"{said}; docs/sinks.md shows one", where="sinks")
    found = asyncio.run(_tested(specs))
    words = []
    for one in found:
        ended = paint("arrived", "ready") if one.delivered else paint("failed", "failed")
        words.append(f"{plain(one.sink)}, {one.severity}, route {one.route}: {ended}")
        words += [block(one.reason, "  ")] if one.reason else []
    frame.say(AlertsTestedShape(found), "\n".join(words))
    if not all(one.delivered for one in found):
        frame.leave(Exit.FAILED)


async def _tested(specs: Sequence[SinkSpec]) -> list[RouteTestedShape]:
    from allswell.domain.sink_spec import SEVERITIES
    from allswell.doors.shapes.sink import RouteTestedShape
    from allswell.doors.sinks.alerts import AlertsSink
    from allswell.doors.sinks.making import make_sink
    from allswell.doors.sinks.sink import NotDelivered

    found = []
    for spec in specs:
        sink = make_sink(spec)
        assert isinstance(sink, AlertsSink)  # noqa: S101 - of this kind
        for severity in SEVERITIES:
            for target in [one for one in sink.targets if one.startswith(f"{severity}.")]:
                reason = ""
                try:
                    await sink.tell(target, severity, "A test", f"Allswell tells you what is {severity} here.")
                except NotDelivered as error:
                    reason = error.failure.reason
                number = int(target.partition(".")[2]) + 1
                found.append(RouteTestedShape(spec.name, severity, number, not reason, reason))
    return found


def _known(frame: Frame) -> Mapping[str, SinkSpec]:
    return frame.settings.sinks


def _chosen(frame: Frame, name: str | None) -> dict[str, SinkSpec]:
    """The sinks that are meant; `Refused` if there are none."""
    from allswell.engine.finding import did_you_mean

    known = _known(frame)
    if not known:
        raise Refused("no_sinks", "nobody is told: add [sinks.NAME] to allswell.toml (docs/sinks.md)", where="sinks")
    if name is None:
        return dict(known)
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
        raise Refused("unknown_sink", f"there is no sink {name!r}{hint}", where="NAME")
    return {name: known[name]}
