"""`sinks`, `alerts test`, `deliveries`: who is told of what happens, whether that works, what is still to be told."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit, flush, on_stop
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, LOOKING, RUNNING, UPKEEP, Commands
from allswell.interfaces.cli.rendering import Column, block, in_words, paint, plain, table, when

if TYPE_CHECKING:
    from allswell.domain.notify.delivery import Delivery
    from allswell.domain.notify.spec import SinkSpec
    from allswell.engine.watch import Watch
    from allswell.interfaces.notifications.sink import Sink
    from allswell.store.views import Views
    from allswell.views.delivery import RouteTestedShape, SinkCheckedShape, SinkShape


_MOST = 1_000_000
Name = Annotated[str | None, Argument(metavar="[NAME]", help="Only this one.")]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(LOOKING, "deliveries", deliveries, "allswell deliveries", "allswell deliveries --given-up --json")
    app.add(
        DECIDING,
        "deliveries retry",
        retry,
        "allswell deliveries retry                  all that were given up or are failing",
        "allswell deliveries retry msg_hook_18e",
    )
    app.add(
        DECIDING, "deliveries drop", drop, "allswell deliveries drop msg_hook_18e", "allswell deliveries drop --all"
    )
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


def sinks(*, context: CliContext) -> None:
    """List sinks (webhooks, alerts, Notion), and messages that wait for them."""
    from allswell.domain.notify.delivery import DeliveryFilter
    from allswell.views.delivery import SinkShape, SinksShape, removed_sinks

    specs = context.settings.sinks

    async def work(views: Views) -> list[SinkShape]:
        kept = await views.view_deliveries(DeliveryFilter(limit=_MOST))
        found = []
        for name in [*specs, *await removed_sinks(views, specs)]:
            own = [one for one in kept if one.sink == name]
            waiting = [one for one in own if not one.given_up]
            reason = next((one.reason for one in waiting if one.tries), "")
            kind = specs[name].kind if name in specs else ""
            found.append(SinkShape(name, kind, name in specs, len(waiting), len(own) - len(waiting), reason))
        return found

    found = context.look(work, or_empty=True)
    heads = (
        *(Column("SINK", 8), Column("KIND")),
        *(Column("WAITING", None, right=True), Column("GIVEN UP", None, right=True), Column("WHY", 24)),
    )
    rows = [[one.sink, one.kind or "removed", str(one.waiting), str(one.given_up), one.reason] for one in found]
    words = table(heads, rows) if rows else "No sink is set up. `allswell help notifications` shows how."
    gone = next((one.sink for one in found if not one.set_up), None)
    if gone is not None:
        words += f"\n{plain(gone)} is no longer set up: `allswell sinks forget {plain(gone)}` drops what is kept of it."
    context.say(SinksShape(found), in_words(words))


def forget(
    name: Annotated[str, Argument(metavar="NAME", help="A sink that is no longer set up, or a follower of your own.")],
    *,
    context: CliContext,
) -> None:
    """Forget a sink that was removed from the settings, with the messages that waited for it.

    A follower of your own (`watch.follow`) is forgotten by its name, too; otherwise it counts as behind for ever.
    """
    specs = context.settings.sinks
    context.show(context.decide("sinks forget", lambda operator: operator.forget_sink(name, specs)))


def check(name: Name = None, *, context: CliContext) -> None:
    """Check each sink: its secrets, its library, its routes and addresses."""
    import asyncio

    from allswell.views.delivery import SinksCheckedShape

    found = asyncio.run(_checked(_chosen(context, name).values()))
    words = [
        f"{plain(one.sink)} ({one.kind}): {paint('ok', 'ready') if one.fits else paint('wrong', 'failed')}\n"
        + block(in_words(one.says), "  ")
        for one in found
    ]
    context.say(SinksCheckedShape(found), "\n".join(words))
    if not all(one.fits for one in found):
        context.leave(Exit.FAILED)


async def _checked(specs: Iterable[SinkSpec]) -> list[SinkCheckedShape]:
    from allswell.interfaces.notifications.follower import make_sink
    from allswell.views.delivery import SinkCheckedShape

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
    *,
    context: CliContext,
) -> None:
    """Create the Notion database of a sink, or check the one it has."""
    import asyncio

    from allswell.interfaces.notifications.follower import make_sink
    from allswell.interfaces.notifications.notion import NotionSink
    from allswell.views.delivery import SetUpShape

    spec = _chosen(context, name)[name]
    sink = make_sink(spec)
    if not isinstance(sink, NotionSink):
        raise Refused("nothing_to_set_up", f"the sink {name} needs no setup: it is of kind {spec.kind}", where="NAME")

    async def work() -> str:
        try:
            return await sink.check() if spec.database else await sink.set_up()
        finally:
            await sink.close()

    said = asyncio.run(work())
    if spec.database:
        context.say(SetUpShape(name, spec.database, made=False), f"{said[0].upper()}{said[1:]}.")
    else:
        words = f'Made. Add this to [sinks.{name}] in allswell.toml:\n\ndatabase = "{said}"'
        context.say(SetUpShape(name, said, made=True), words)


async def _both(*work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    await asyncio.gather(*work)


def run(name: Name = None, *, context: CliContext) -> None:
    """Send messages to sinks and post webhook requests, until Ctrl-C; `allswell up` does this by itself."""
    import asyncio

    from allswell.interfaces.notifications.follower import make_sink, posting_of, run_sinks
    from allswell.interfaces.notifications.webhook import deliver_requests
    from allswell.timing.moment import moment
    from allswell.views.commands import SaidShape

    context.for_humans("sinks run")  # what sends alerts signs links that answer questions
    chosen = {} if name is None and not context.settings.sinks else _chosen(context, name)
    origin = context.settings.public_origin
    made: list[Sink] = [make_sink(spec, origin=origin) for spec in chosen.values()]

    async def live(watch: Watch) -> None:
        delivering = deliver_requests(watch, posting_of(context.settings, watch.clock.wall))
        following = asyncio.ensure_future(_both(run_sinks(watch, made), delivering))
        on_stop(following.cancel)
        told = f"sending to {', '.join(sink.name for sink in made)}" if made else "posting webhook requests"
        said = f"{told}; Ctrl-C stops"
        context.say(SaidShape(moment(await watch.now()), said), said)
        flush()
        await asyncio.wait([following])
        if not following.cancelled():
            following.result()

    context.run(live, making=True)


def try_alerts(name: Name = None, *, context: CliContext) -> None:
    """Send a test alert on every route, and list which arrived."""
    import asyncio

    from allswell.views.delivery import AlertsTestedShape

    specs = [spec for spec in _chosen(context, name).values() if spec.kind == "alerts"]
    if not specs:
        said = "no sink of kind alerts is set up here" if name is None else f"the sink {name} is not of kind alerts"
        raise Refused("no_alerts", f"{said}; `allswell help notifications` shows one", where="sinks")
    found = asyncio.run(_tested(specs))
    words = []
    for one in found:
        ended = paint("arrived", "ready") if one.delivered else paint("failed", "failed")
        words.append(f"{plain(one.sink)}, {one.severity}, route {one.route}: {ended}")
        words += [block(one.reason, "  ")] if one.reason else []
    context.say(AlertsTestedShape(found), "\n".join(words))
    if not all(one.delivered for one in found):
        context.leave(Exit.FAILED)


async def _tested(specs: Sequence[SinkSpec]) -> list[RouteTestedShape]:
    from allswell.domain.notify.spec import SEVERITIES
    from allswell.interfaces.notifications.alerts import AlertsSink
    from allswell.interfaces.notifications.follower import make_sink
    from allswell.interfaces.notifications.sink import NotDelivered
    from allswell.views.delivery import RouteTestedShape

    found = []
    for spec in specs:
        sink = make_sink(spec)
        assert isinstance(sink, AlertsSink)  # noqa: S101 - of this kind
        for severity in SEVERITIES:
            for target in [one for one in sink.targets if one.startswith(f"{severity}.")]:
                reason = ""
                try:
                    await sink.tell(target, severity, "A test", f"A test: {severity} messages arrive here.")
                except NotDelivered as error:
                    reason = error.failure.reason
                number = int(target.partition(".")[2]) + 1
                found.append(RouteTestedShape(spec.name, severity, number, not reason, reason))
    return found


def _chosen(context: CliContext, name: str | None) -> dict[str, SinkSpec]:
    """The sinks that are meant; `Refused` if there are none."""
    from allswell.engine.lookup import did_you_mean

    known = context.settings.sinks
    if not known:
        raise Refused(
            "no_sinks",
            "no sink is set up: add [sinks.NAME] to allswell.toml (`allswell help notifications`)",
            where="sinks",
        )
    if name is None:
        return dict(known)
    if name not in known:
        hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
        raise Refused("unknown_sink", f"no such sink: {name!r}{hint}", where="NAME")
    return {name: known[name]}


# `deliveries`: what sinks still have to deliver or have given up; it can be tried again, or dropped.

_PAGE = 100
SinkOption = Annotated[str | None, Option("--sink", metavar="NAME", help="Only messages of this sink.")]
Id = Annotated[str | None, Argument(metavar="[ID]", help="Id of the message, or the beginning of it.")]


def deliveries(
    sink: SinkOption = None,
    given_up: Annotated[bool, Option("--given-up", help="Only messages that were given up.")] = False,
    limit: Annotated[
        int, Option("--limit", "-n", metavar="N", min=1, max=_MOST, help="Maximum number of results.")
    ] = _PAGE,
    *,
    context: CliContext,
) -> None:
    """List messages that sinks have not delivered yet, or have given up."""
    from allswell.domain.notify.delivery import DeliveryFilter
    from allswell.views.delivery import DeliveriesShape, DeliveryShape

    async def work(views: Views) -> tuple[list[Delivery], int]:
        which = DeliveryFilter(sink, given_up=True if given_up else None, limit=limit)
        return await views.view_deliveries(which), (await views.view_agenda()).now

    found, now = context.look(work, or_empty=True)
    if not found:
        context.say(DeliveriesShape([]), context.none("Nothing waits to be delivered."))
        return
    words = table(_COLUMNS, [_row(one, now) for one in found], styled=2)
    if any(one.given_up for one in found):
        words += in_words("\n`allswell deliveries retry` tries them again; `allswell deliveries drop` drops them.")
    context.say(DeliveriesShape([DeliveryShape.of(one) for one in found]), words)


_COLUMNS = (
    Column("ID", 12),
    Column("SINK", 8),
    Column("STATE"),
    Column("TRIES", None, right=True),
    Column("NEXT", None),
    Column("WHY", 24),
)


def _row(one: Delivery, now: int) -> list[str]:
    from allswell.views.delivery import DeliveryShape

    state = DeliveryShape.of(one).state.replace("_", " ")
    then = "" if one.given_up or not one.next_at else when(one.next_at, now)
    return [one.id, one.sink, state, str(one.tries), then, one.reason]


def retry(id_: Id = None, sink: SinkOption = None, *, context: CliContext) -> None:
    """Retry messages that were given up or are failing."""
    _revise(context, "retried", id_, sink)


def drop(
    id_: Id = None,
    sink: SinkOption = None,
    all_: Annotated[bool, Option("--all", help="All messages that were given up or are failing.")] = False,
    *,
    context: CliContext,
) -> None:
    """Drop messages that were given up or are failing: they are never sent."""
    if id_ is None and not all_:
        raise Refused("usage", "which? name one, or --all that were given up or are failing", where="ID")
    _revise(context, "dropped", id_, sink)


def _revise(context: CliContext, did: Literal["retried", "dropped"], id_: str | None, sink: str | None) -> None:
    ids = None if id_ is None else [id_]
    context.show(context.decide("deliveries", lambda operator: operator.revise(did, ids, sink, "ID")))
