"""What a watch is the face of: it carries commands to where they are decided, and shows what was committed.

In the process that has the store this is the engine (`engine.py`). From elsewhere it is a connection to a server
(`allswell.remote`), and on that server, for each caller, the engine behind the rules of access (`access/gate.py`).
All of them take the same commands and answer with the same values, so a watch, its leases and its guards know none by
name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol

import msgspec

from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.question import PausedWork
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep
from allswell.domain.rules.event import Position
from allswell.engine.timings import Timings
from allswell.engine.wakeup import Signal
from allswell.errors import AllswellError, Unavailable
from allswell.store.port import KeyValue, Store
from allswell.store.views import Outbox
from allswell.timing.clock import Clock


class Claimed(msgspec.Struct, frozen=True):
    """What was claimed, and when the claim was sent (on the loop's clock): trust in a lease counts from then."""

    granted: list[Granted]
    sent: float


class Records(Outbox, KeyValue, Protocol):
    """What is kept, as far as a watch looks at it or keeps something there itself."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    async def advance(self, follower: str, position: Position) -> None:
        """Note durably where a follower has got to; never backwards."""
        ...


class Backend(Protocol):
    """Where the commands of a watch go."""

    @property
    def store(self) -> Records:
        """What is kept."""
        ...

    @property
    def pace(self) -> Timings:
        """How patient it is."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        ...

    @property
    def ready(self) -> Signal:
        """Fired when a task may have become ready."""
        ...

    @property
    def journal(self) -> Signal:
        """Fired when the journal may have grown."""
        ...

    def rng(self) -> float:
        """A number by chance, from 0 to 1."""
        ...

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something beside it for as long as it is open."""
        ...

    def hear(self) -> None:
        """Receive the wake-up calls of other processes from now on; to be called before waiting for them."""
        ...

    async def sweep(self) -> bool:
        """Do now what is due; whether nothing is left to do."""
        ...

    async def do(self, command: Command) -> object:
        """Have a command decided and committed; its answer, or its error."""
        ...

    async def do_many(self, commands: Sequence[Command]) -> list[object]:
        """Have commands decided together; an answer or an error for each."""
        ...

    async def check_in(self, command: CheckIn) -> Orders:
        """Renew a lease; the orders for its holder."""
        ...

    async def check_in_many(self, commands: Sequence[CheckIn]) -> list[object]:
        """Renew leases together; orders or an error for each."""
        ...

    async def claim(self, claim: Claim, *, wait: float = 0.0) -> Claimed:
        """Claim tasks, waiting up to `wait` seconds for the first to be there."""
        ...

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        ...

    async def held_back(self) -> PausedWork:
        """What open questions hold back from claims."""
        ...

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded; it is durable when this returns."""
        ...

    def record_here(self, step: RecordStep) -> bool:
        """The short way for a step that comes from a thread; False: go the long way."""
        ...


# Opening a store whose server may be away: it is tried again, as long as a command would be (`pace.store_patience`).
#
# A server is restarted, or is still starting up, when a program or a single command comes; that is no reason to fail
# it. A store that is a file is there or is not, and is not waited for. An attempt that is under way is not cut off: a
# server that does not even answer costs its `connect_timeout` more.

log = logging.getLogger("allswell.engine")
TellsOfWait = Callable[[str], None]


def log_wait(says: str) -> None:
    """Say that the store is waited for, where no other place says it."""
    log.warning("%s", says)


async def open_patiently(store: Store, pace: Timings, tell: TellsOfWait = log_wait) -> None:
    """Open a store; `tell` hears once, in a sentence, that it is waited for."""
    if not store.shared_clock:  # it has no clock of its own, so no server serves it
        await store.open()
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + pace.store_patience
    pause, told = pace.retry_first, False
    while True:
        try:
            await store.open()
        except Unavailable as error:
            left = until - loop.time()
            if left <= 0:
                gave_up = f"{error.message}; gave up after store_patience {pace.store_patience:g} s"
                raise Unavailable(gave_up, hint=error.hint) from error
            if not told:
                tell(f"Waiting up to {pace.store_patience:g} s for the store: {error.message}")
                told = True
        else:
            return
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, pace.retry_most)
