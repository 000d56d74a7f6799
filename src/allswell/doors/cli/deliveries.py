"""`deliveries`: what sinks still have to deliver or have given up; it can be tried again, or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from allswell.doors.cli.advice import in_words
from allswell.doors.cli.commands import DECIDING, LOOKING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import Column, table, when
from allswell.engine.explaining.words import many
from allswell.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.domain.delivery import Delivery
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_PAGE = 100
_MOST = 1_000_000
Sink = Annotated[str | None, Option("--sink", metavar="NAME", help="Only those of this sink.")]
Id = Annotated[str | None, Argument(metavar="[ID]", help="Which one; the beginning of its id is enough.")]


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


def deliveries(
    sink: Sink = None,
    given_up: Annotated[bool, Option("--given-up", help="Only those that were given up.")] = False,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", min=1, max=_MOST, help="At most so many.")] = _PAGE,
    store: Store = None,
    json: Json = False,
) -> None:
    """List what sinks still have to deliver, and what they have given up."""
    from allswell.domain.delivery import DeliveryFilter
    from allswell.doors.shapes.delivery import DeliveriesShape

    frame = Frame(store, json=json)

    async def work(views: Views) -> tuple[list[Delivery], int]:
        which = DeliveryFilter(sink, given_up=True if given_up else None, limit=limit)
        return await views.view_deliveries(which), (await views.view_agenda()).now

    found, now = frame.look(work)
    if not found:
        frame.say(DeliveriesShape([]), "Nothing waits to be delivered.")
        return
    words = table(_COLUMNS, [_row(one, now) for one in found], styled=2)
    if any(one.given_up for one in found):
        words += in_words("\n`allswell deliveries retry` tries them again; `allswell deliveries drop` ends it.")
    frame.say(DeliveriesShape.of(found), words)


_COLUMNS = (
    Column("ID", 12),
    Column("SINK", 8),
    Column("STATE"),
    Column("TRIES", None, right=True),
    Column("NEXT", None),
    Column("WHY", 24),
)


def _row(one: Delivery, now: int) -> list[str]:
    from allswell.doors.shapes.delivery import DeliveryShape

    state = DeliveryShape.of(one).state.replace("_", " ")
    then = "" if one.given_up or not one.next_at else when(one.next_at, now)
    return [one.id, one.sink, state, str(one.tries), then, one.reason]


def retry(id_: Id = None, sink: Sink = None, store: Store = None, json: Json = False) -> None:
    """Try deliveries again that were given up or are failing: at once, and as patiently as new ones."""
    _revise("retried", id_, sink, all_=True, store=store, json=json)


def drop(
    id_: Id = None,
    sink: Sink = None,
    all_: Annotated[bool, Option("--all", help="Everything that was given up or is failing.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Drop deliveries that were given up or are failing: nobody will be told."""
    if id_ is None and not all_:
        raise Refused("usage", "which? name one, or --all that were given up or are failing", where="ID")
    _revise("dropped", id_, sink, all_=all_, store=store, json=json)


def _revise(
    did: Literal["retried", "dropped"],
    id_: str | None,
    sink: str | None,
    *,
    all_: bool,
    store: str | None,
    json: bool,
) -> None:
    from allswell.domain.delivery import DeliveryFilter, again
    from allswell.doors.shapes.delivery import RevisedShape

    frame = Frame(store, json=json)
    frame.for_humans("deliveries")

    async def work(watch: Watch) -> list[str]:
        kept = await watch.outbox.view_deliveries(DeliveryFilter(sink, limit=_MOST))
        failing = [one for one in kept if all_ and (one.given_up or one.tries)]
        found = failing if id_ is None else [_meant(kept, id_)]
        if did == "retried":
            await watch.outbox.revise([again(one) for one in found])
        else:
            await watch.outbox.revise([], found)
        return [one.id for one in found]

    done = frame.run(work)
    words = f"{did.capitalize()}: {many(len(done), 'delivery', 'deliveries')}." if done else f"Nothing is to be {did}."
    frame.say(RevisedShape(did, done), words)


def _meant(kept: Sequence[Delivery], id_: str) -> Delivery:
    """The delivery that an id, or its beginning, names; `Refused` where it names none or several."""
    named = [one for one in kept if one.id == id_] or [one for one in kept if id_ and one.id.startswith(id_)]
    if len(named) != 1:
        said = f"{len(named)} deliveries begin so" if named else "no delivery has this id, or it was made by now"
        raise Refused("unknown_delivery", f"{id_!r}: {said}; `allswell deliveries` lists them", where="ID")
    return named[0]
