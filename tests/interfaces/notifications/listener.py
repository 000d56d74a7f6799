"""A sink for tests of the follower: it writes down what it is told, and fails as the scene wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from allswell.domain.notify.delivery import Delivery, DeliveryFailure, DeliveryRetries
from allswell.domain.rules.event import Entry, Event
from allswell.engine.watch import Watch
from allswell.interfaces.notifications.sink import NotDelivered, SinkMessage
from allswell.store.views import Views


class Listener:
    """Hears of every task that was submitted; `fails` says what becomes of a try."""

    limit = 30.0
    together = 1
    memory = ""
    begins: Literal["now", "start"] = "start"

    def __init__(
        self, name: str = "web", targets: Sequence[str] = ("",), patience: DeliveryRetries | None = None
    ) -> None:
        self.name = name
        self.targets = targets
        self.patience = patience or DeliveryRetries()
        self.tried: list[tuple[float, str]] = []
        self.got: list[Delivery] = []
        self.fails: Callable[[Delivery], DeliveryFailure | Awaitable[None] | None] = lambda _: None

    def attach(self, watch: Watch) -> None:
        """It needs no watch."""

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        if entry.event.kind != "task_submitted":
            return ()
        name = str(entry.event.data["name"])
        return [SinkMessage(f'"{name}"', target) for target in self.targets if name.startswith(target)]

    async def send(self, batch: Sequence[Delivery]) -> None:
        for one in batch:
            self.tried.append((asyncio.get_running_loop().time(), one.body.strip('"')))
            outcome = self.fails(one)
            if isinstance(outcome, DeliveryFailure):
                raise NotDelivered(outcome)
            if outcome is not None:
                await outcome
        self.got += batch

    def free_at(self, target: str, now: int) -> int:
        return now

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        return ()

    async def check(self) -> str:
        return "all well"

    async def close(self) -> None:
        """Nothing to let go."""

    @property
    def heard(self) -> list[str]:
        """What was delivered, in order."""
        return [one.body.strip('"') for one in self.got]
