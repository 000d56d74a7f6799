"""What a sink is: it says what it makes of an event, and it delivers that.

`messages` is asked when an event is taken in: what it returns is kept in the store until it is delivered. `send` is
called with what is due for one target, in order, as often as it takes; every call about one delivery has the same id.
A target that may not be told anything now (quiet hours) says from when on: then what is due is put off until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from allswell.domain.notify.delivery import Delivery, DeliveryFailure, DeliveryRetries
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.rules.event import Entry, Event
from allswell.errors import AllswellError, Refused
from allswell.store.views import Views

if TYPE_CHECKING:
    from allswell.engine.watch import Watch


class SinkMessage(msgspec.Struct, frozen=True):
    """What is to be delivered about an event."""

    body: str
    """JSON."""
    target: str = ""


class NotDelivered(AllswellError):
    """A try went wrong; `failure` says how."""

    def __init__(self, failure: DeliveryFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Sink(Protocol):
    """Somebody who is told."""

    name: str
    begins: Literal["now", "start"]
    """Where in the journal it begins when it is new."""
    targets: Sequence[str]
    """Each has a line of its own."""
    together: int
    """How many deliveries may go in one message."""
    limit: float
    """Seconds that one try may take."""
    patience: DeliveryRetries
    memory: str
    """What it must not forget of what it has taken in. It is kept together with that, and set before it goes on."""

    def attach(self, watch: Watch) -> None:
        """Know the watch that it is to follow; called before anything else."""
        ...

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """What it makes of an event: mostly nothing."""
        ...

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Deliver to one target; `NotDelivered` if that did not work."""
        ...

    def free_at(self, target: str, now: int) -> int:
        """From when a target may be told something, on the store's clock: mostly from now on."""
        ...

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """What the journal is told of deliveries that were made: mostly nothing."""
        ...

    async def check(self) -> str:
        """Look whether it could be told anything, without telling it; `Refused` with what is wrong."""
        ...

    async def close(self) -> None:
        """Let everything go."""
        ...


class SinkDefaults:
    """What most sinks have in common."""

    together = 1
    targets: Sequence[str] = ("",)
    memory = ""

    def __init__(self, spec: SinkSpec) -> None:
        self.name = spec.name
        self.begins: Literal["now", "start"] = spec.begins
        self.limit = spec.timeout / 1_000
        self.patience = spec.patience

    def attach(self, watch: Watch) -> None:
        """It needs no more than what it is given."""
        del watch

    def free_at(self, target: str, now: int) -> int:
        """It may be told something at any time."""
        del target
        return now

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Nothing is told of what went well."""
        del batch
        return ()

    async def close(self) -> None:
        """Nothing stays open between two messages."""


# Secrets come from the environment; a settings file only names the variable.


def variable(name: str, environ: Mapping[str, str], where: str) -> str:
    """What a variable of the environment holds; `Refused` if it is not set."""
    value = environ.get(name, "").strip()
    if not value:
        raise Refused("no_variable", f"{where}: the variable {name} is not set, or empty", where=where)
    return value
