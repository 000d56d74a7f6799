"""A service that fails as it is told, and a guard around it in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from allswell.domain.service.guard import GuardPolicy
from allswell.domain.service.incident import Incident
from allswell.runtime.guard import Guard, GuardEnvironment, MemoryBreakers
from allswell.runtime.guard.guard import RetryBudgets
from allswell.testing.loop import VirtualClock, run

T = TypeVar("T")
PLAIN = GuardPolicy()


def play(scene: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
    """Run a scene in virtual time."""
    return run(scene, seed=seed)


def now() -> int:
    """The virtual time in milliseconds."""
    return round(asyncio.get_running_loop().time() * 1_000)


class Stage:
    """One service, its breaker and whatever was told about it; made inside a running virtual loop."""

    def __init__(self, *, draw: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.breakers = MemoryBreakers(self.clock)
        self.draw = draw
        self.told: list[Incident] = []
        self.budgets = RetryBudgets()
        self.around = GuardEnvironment(
            breakers=self.breakers, budgets=self.budgets, clock=self.clock, draw=lambda: self.draw
        )

    def guard(self, policy: GuardPolicy = PLAIN, service: str = "s", **more: Any) -> Guard:  # noqa: ANN401
        return Guard(service, policy, on_incident=self.told.append, around=self.around, **more)

    def kinds(self) -> list[str]:
        return [type(incident).__name__ for incident in self.told]


class Service:
    """Raises what it is given, one after the other, and then answers."""

    def __init__(self, errors: Iterable[BaseException] = (), *, takes: float = 0.0) -> None:
        self.errors = list(errors)
        self.takes = takes
        self.calls: list[int] = []

    async def __call__(self, *_: object) -> str:
        self.calls.append(now())
        if self.takes:
            await asyncio.sleep(self.takes)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


class Status(Exception):
    """An answer with a status, and perhaps a Retry-After."""

    def __init__(self, status: int, retry_after: str | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}
