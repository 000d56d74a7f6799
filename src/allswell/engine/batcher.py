"""Group commit: commands that arrive while a batch commits form the next batch, so an idle engine adds no delay.

A batch is repeated as a whole when the store could not be reached, when another process made the same row first, or
when its commit turns out not to have happened. Whether a lost commit happened is asked of the store, never guessed. If
a batch breaks in a way nobody foresaw, its commands are tried one by one, so that one bad command harms no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from allswell.engine.batch import Performed
from allswell.engine.book import News
from allswell.engine.pace import Pace
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.store.port import CommitUnknown, Conflict, Store, Transaction

C = TypeVar("C")
Work = Callable[[Transaction], Awaitable[Performed]]
CONFLICTS_MOST = 20


async def commit(store: Store, work: Work, *, durable: bool = True) -> Performed:
    """Run one unit of work to a known end: committed, or an error that says nothing was."""
    done: list[Performed] = []

    async def remember(tx: Transaction) -> Performed:
        performed = await work(tx)
        done.append(performed)
        return performed

    conflicts = 0
    while True:
        done.clear()
        try:
            return await store.transact(remember, durable=durable)
        except CommitUnknown as lost:
            if await store.outcome(lost.ticket):
                return done[0]
        except Conflict as conflict:
            conflicts += 1
            if conflicts >= CONFLICTS_MOST:
                raise Bug(f"a batch met the same conflict {conflicts} times: {conflict}") from conflict


class Batcher(Generic[C]):
    """A queue of commands and the loop that works it off."""

    def __init__(
        self,
        perform: Callable[[Sequence[C]], Awaitable[Performed]],
        *,
        name: str,
        most: int,
        pace: Pace,
        draw: Callable[[], float],
        tell: Callable[[News], None],
    ) -> None:
        self.name = name
        self._perform = perform
        self._most = most
        self._pace = pace
        self._draw = draw
        self._tell = tell
        self._queue: deque[tuple[C, asyncio.Future[object], float]] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    def ask(self, command: C) -> asyncio.Future[object]:
        """Queue a command; its answer or error comes through the future."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        if self._closed:
            future.set_exception(Unavailable("the watch is closed"))
            return future
        self._queue.append((command, future, loop.time() + self._pace.store_patience))
        self._wake.set()
        return future

    async def work(self) -> None:
        """Work off batches until cancelled; then nobody is left waiting."""
        batch: list[tuple[C, asyncio.Future[object], float]] = []
        try:
            while True:
                while not self._queue:
                    self._wake.clear()
                    await self._wake.wait()
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._most))]
                await self._work_off(batch)
        finally:
            self._closed = True
            for _, future, _ in (*batch, *self._queue):
                if not future.done():
                    future.set_exception(Unavailable("the watch was closed before the store answered"))
            self._queue.clear()

    async def _work_off(self, batch: list[tuple[C, asyncio.Future[object], float]]) -> None:
        pause = self._pace.retry_first
        while batch := [waiting for waiting in batch if not waiting[1].done()]:
            try:
                performed = await self._perform([command for command, _, _ in batch])
            except Unavailable as error:
                self._give_up_on_the_impatient(batch, error)
                await asyncio.sleep(pause * (0.5 + self._draw() / 2))
                pause = min(pause * 2, self._pace.retry_most)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it was, it belongs to one command and its caller
                if len(batch) == 1:
                    known = error if isinstance(error, AllswellError) else Bug(f"{self.name}: {error!r}")
                    known.__cause__ = error if known is not error else error.__cause__
                    batch[0][1].set_exception(known)
                else:
                    for waiting in batch:
                        await self._work_off([waiting])
                return
            self._tell(performed.news)
            for (_, future, _), answer in zip(batch, performed.answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, AllswellError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
            return

    def _give_up_on_the_impatient(
        self, batch: list[tuple[C, asyncio.Future[object], float]], error: Unavailable
    ) -> None:
        now = asyncio.get_running_loop().time()
        for _, future, until in batch:
            if now >= until and not future.done():
                told = Unavailable(f"{error.message}; gave up after store_patience {self._pace.store_patience:g} s")
                told.__cause__ = error
                future.set_exception(told)
