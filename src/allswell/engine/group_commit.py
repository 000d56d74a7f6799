"""Group commit: commands that arrive while a batch commits form the next batch, so an idle engine adds no delay.

A batch is repeated as a whole when the store could not be reached, when another process made the same row first, or
when its commit turns out not to have happened. Whether a lost commit happened is asked of the store, never guessed. If
a batch fails unexpectedly, its commands are tried one by one, so that one bad command harms no other.

A store may say that several units of work at once pay (`max_parallel`): while a server works and flushes, we decide the
next batch. Then so many loops work off one queue, and three rules keep what one loop gives by itself (docs/adr/0028):

-   **What names the same thing keeps its order.** A batch is taken from the head of the queue, up to the first commands
    that name something that a batch under way names too (`BatchPlan.meets`): a task, a run that one of them opens or
    ends, a service, a question, the id of a claim. Those wait, and all behind them, so no command is overtaken for
    ever.
-   **Another batch begins only if it is worth it**: when as much waits as the largest batch under way holds, or a full
    batch. Otherwise stragglers would be sent one by one, and where 100 callers wait for each other's commit, batches
    would become smaller and smaller. A claim counts as many tasks as it asks for.
- **No command is forgotten.** The process that ends a batch looks at the queue itself, and with nothing under way any
  command starts one; so as long as a command waits, a batch is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

from allswell.domain.rules.command import Command
from allswell.engine.timings import Timings
from allswell.engine.unit_of_work import BatchPlan, BatchResult, CommitEffects, Wait
from allswell.errors import AllswellError, Bug, Unavailable

C = TypeVar("C", bound=Command)
BATCH_MOST = 500


class WaitingCommand(Generic[C]):
    """Commands that one caller waits for together, and until when."""

    __slots__ = ("commands", "future", "many", "until", "weight")

    def __init__(
        self, commands: Sequence[C], future: asyncio.Future[Any], until: float, *, many: bool, weight: int = 1
    ) -> None:
        self.commands = commands
        self.future = future
        self.until = until
        self.many = many
        self.weight = weight

    def tell(self, answers: Sequence[object]) -> bool:
        """Hand over the answers; whether a caller still waited for them."""
        future = self.future
        if future.done():
            return False
        if self.many:
            future.set_result(answers)
        elif isinstance(answers[0], AllswellError):
            future.set_exception(answers[0])
        else:
            future.set_result(answers[0])
        return True


class Batch(Generic[C]):
    """What goes to the store together."""

    __slots__ = ("_plan", "commands", "waiting", "weight")

    def __init__(self, waiting: Sequence[WaitingCommand[C]]) -> None:
        self.waiting = waiting
        self.weight = sum([one.weight for one in waiting])
        self.commands: Sequence[C] = [command for one in waiting for command in one.commands]
        self._plan: BatchPlan | None = None

    @property
    def plan(self) -> BatchPlan:
        """What the commands name; made only where it is asked for."""
        if self._plan is None:
            self._plan = BatchPlan(self.commands)
        return self._plan

    def meets(self, other: Batch[C]) -> bool:
        """Whether both name the same thing; what cannot be read might name anything."""
        try:
            return self.plan.meets(other.plan)
        except Exception:  # noqa: BLE001 - deciding them meets it again, and reports it
            return True

    def still_wanted(self) -> Batch[C]:
        """The part of it that a caller still waits for."""
        waiting = [one for one in self.waiting if not one.future.done()]
        return self if len(waiting) == len(self.waiting) else Batch(waiting)


class Batcher(Generic[C]):
    """A queue of commands, and what the loops do that work it off: `work`, run `max_parallel` times."""

    def __init__(
        self,
        perform: Callable[[Batch[C], Wait], Awaitable[BatchResult]],
        *,
        name: str,
        pace: Timings,
        rng: Callable[[], float],
        tell: Callable[[CommitEffects], None],
        unwanted: Callable[[Sequence[object]], None],
        max_parallel: int = 1,
    ) -> None:
        self.name = name
        self.max_parallel = max_parallel
        self._perform = perform
        self._pace = pace
        self._rng = rng
        self._tell = tell
        self._unwanted = unwanted
        self._queue: deque[WaitingCommand[C]] = deque()
        self._waiting = 0
        """What the queue weighs."""
        self._under_way: list[Batch[C]] = []
        self._resting: deque[asyncio.Future[None]] = deque()
        """What loops that have nothing to do wait for."""
        self._refusal: str | None = "the watch is not open"

    def open(self) -> None:
        """Take commands from now on; `work` is about to begin."""
        self._refusal = None

    def ask(self, command: C, *, weight: int = 1) -> asyncio.Future[Any]:
        """Queue a command that is about so many tasks; its answer or error comes through the future."""
        return self._put((command,), many=False, weight=weight)

    def ask_many(self, commands: Sequence[C]) -> asyncio.Future[list[object]]:
        """Queue several commands at the price of one; each gets its own answer or error, in their order."""
        return self._put(commands, many=True, weight=len(commands))

    def _put(self, commands: Sequence[C], *, many: bool, weight: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._refusal is not None:
            future.set_exception(Unavailable(self._refusal))
        elif not commands:
            future.set_result([])
        else:
            until = loop.time() + self._pace.store_patience
            self._queue.append(WaitingCommand(commands, future, until, many=many, weight=weight))
            self._waiting += weight
            self._call_somebody()
        return future

    async def work(self) -> None:
        """Commit batches until cancelled; then no caller is left waiting."""
        try:
            while True:
                batch = self._next_batch()
                if batch is None:
                    await self._rest()
                    continue
                self._under_way.append(batch)
                try:
                    self._call_somebody()
                    await self._work_off(batch)
                except BaseException:
                    _tell_that_it_is_closed(batch.waiting)
                    raise
                finally:
                    self._under_way.remove(batch)
        finally:
            self._refusal = "the watch is closed"
            _tell_that_it_is_closed(self._queue)
            self._queue.clear()

    async def _rest(self) -> None:
        """Wait for something to do."""
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resting.append(called)
        await called

    def _call_somebody(self) -> None:
        """Have a loop that rests look at the queue, if there is something for it."""
        while self._resting and self._worth_it():
            called = self._resting.popleft()
            if not called.done():
                called.set_result(None)
                return

    def _worth_it(self) -> bool:
        if not self._queue or not self._under_way:
            return bool(self._queue)
        largest = max([batch.weight for batch in self._under_way])
        return self._waiting >= min(largest, BATCH_MOST)

    def _next_batch(self) -> Batch[C] | None:
        """The head of the queue, up to what must wait for a batch under way; None if nothing is to be sent now."""
        if not self._worth_it():
            return None
        head: list[WaitingCommand[C]] = []
        size = 0
        for waiting in self._queue:
            size += len(waiting.commands)
            if head and size > BATCH_MOST:
                break
            head.append(waiting)
        batch = Batch(head)
        ahead = self._under_way
        if any(map(batch.meets, ahead)):
            batch = Batch(list(takewhile(lambda one: not any(map(Batch([one]).meets, ahead)), head)))
            if not batch.waiting:
                return None
        for _ in batch.waiting:
            self._queue.popleft()
        self._waiting -= batch.weight
        return batch

    async def _work_off(self, batch: Batch[C]) -> None:
        pause = self._pace.retry_first

        async def wait(error: Unavailable) -> bool:
            nonlocal pause
            self._give_up_on_the_impatient(batch.waiting, error)
            await asyncio.sleep(pause * (0.5 + self._rng() / 2))
            pause = min(pause * 2, self._pace.retry_most)
            return not all(waiting.future.done() for waiting in batch.waiting)

        while (batch := batch.still_wanted()).waiting:
            try:
                performed = await self._perform(batch, wait)
            except Unavailable as error:
                await wait(error)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it was, it belongs to one command and its caller
                await self._one_by_one(batch.waiting, error)
                return
            self._tell(performed.news)
            start = 0
            for waiting in batch.waiting:
                end = start + len(waiting.commands)
                if not waiting.tell(performed.answers[start:end]):
                    self._unwanted(performed.answers[start:end])
                start = end
            return

    async def _one_by_one(self, batch: Sequence[WaitingCommand[C]], error: Exception) -> None:
        """A batch failed unexpectedly: find the command that did it; the others go on without it."""
        if len(batch) == 1 and len(batch[0].commands) == 1:
            known = error if isinstance(error, AllswellError) else Bug(f"{self.name}: {error!r}")
            known.__cause__ = error if known is not error else error.__cause__
            batch[0].tell([known])
            return
        for waiting in batch:
            if len(waiting.commands) == 1:
                await self._work_off(Batch([waiting]))
                continue
            loop = asyncio.get_running_loop()
            alone = [
                WaitingCommand([command], loop.create_future(), waiting.until, many=True)
                for command in waiting.commands
            ]
            for single in alone:
                await self._work_off(Batch([single]))
            waiting.tell([await _answer_of(single.future) for single in alone])

    def _give_up_on_the_impatient(self, batch: Sequence[WaitingCommand[C]], error: Unavailable) -> None:
        now = asyncio.get_running_loop().time()
        for waiting in batch:
            if now >= waiting.until and not waiting.future.done():
                told = Unavailable(f"{error.message}; gave up after store_patience {self._pace.store_patience:g} s")
                told.__cause__ = error
                waiting.future.set_exception(told)


def _tell_that_it_is_closed(left: Iterable[WaitingCommand[C]]) -> None:
    for waiting in left:
        if not waiting.future.done():
            waiting.future.set_exception(Unavailable("the watch was closed before the store answered"))


async def _answer_of(single: asyncio.Future[list[object]]) -> object:
    try:
        return (await single)[0]
    except AllswellError as error:
        return error
