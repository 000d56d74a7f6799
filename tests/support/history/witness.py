"""A watch whose every word is written down: what programs under test call instead of the watch itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from allswell.domain.duration import Duration, parse
from allswell.domain.ids import TaskId
from allswell.engine.ids import task_for_key
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from tests.support.history.scribe import Scribe

T = TypeVar("T")


class Witness:
    """Submits and claims, and writes it down."""

    def __init__(self, watch: Watch, scribe: Scribe) -> None:
        self.watch = watch
        self.scribe = scribe

    async def submit(self, key: str, *, payload: object = None, **fields: Any) -> TaskId:  # noqa: ANN401 - as Watch.submit
        """Submit under a key, which makes its id known before the answer is."""
        task = task_for_key(key)
        number = self.scribe.ask("submit", task=task, payload=payload)
        await self._heard(number, self.watch.submit(key, key=key, payload=payload, **fields))
        self.scribe.done(number)
        return task

    async def claim(
        self, agent: str, *, lease: Duration | None = None, wait: Duration = 0, roles: list[str] | None = None
    ) -> Held | None:
        """Claim one task."""
        length = None if lease is None else parse(lease, where="lease")
        number = self.scribe.ask("claim", agent=agent, length=length)
        got = await self._heard(number, self.watch.claim(agent=agent, lease=lease, wait=wait, roles=roles))
        if got is None:
            self.scribe.done(number)
            return None
        self.scribe.done(number, task=got.task, token=got.token, trusted_until=trusted_until(got), payload=got.payload)
        return Held(self, got)

    async def _heard(self, number: int, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except BaseException as error:
            self.scribe.failed(number, error)
            raise


def trusted_until(lease: Lease) -> int:
    """Until when this holder may believe that the task is its own, on the monotonic clock in ns; 0: it may not.

    One that was stopped while its claim was answered is handed a lease that is over, and knows it.
    """
    now = time.monotonic_ns()
    left = lease.remaining
    return now + left * 1_000_000 if left else 0


class Held:
    """A lease whose holder's every word is written down."""

    def __init__(self, witness: Witness, lease: Lease) -> None:
        self._witness = witness
        self.lease = lease

    async def checkin(self, note: str = "") -> None:
        """Prove progress."""
        number = self._ask("checkin")
        await self._witness._heard(number, self.lease.checkin(note))
        self._witness.scribe.done(number, trusted_until=trusted_until(self.lease))

    async def complete(self, result: object) -> None:
        """The task is done; give each attempt a result of its own, or the checker cannot tell them apart."""
        await self._end("complete", self.lease.complete(result), result=result)

    async def fail(self, error: str, **how: Any) -> None:  # noqa: ANN401 - as Lease.fail
        """This attempt failed."""
        await self._end("fail", self.lease.fail(error, **how))

    async def release(self, reason: str = "released") -> None:
        """Give the task back."""
        await self._end("release", self.lease.release(reason))

    def _ask(self, verb: str, **said: object) -> int:
        lease = self.lease
        return self._witness.scribe.ask(
            verb, task=lease.task, token=lease.token, agent=lease.agent, trusted_until=trusted_until(lease), **said
        )

    async def _end(self, verb: str, answer: Awaitable[object], **said: object) -> None:
        number = self._ask(verb, **said)
        await self._witness._heard(number, answer)
        self._witness.scribe.done(number)
