"""Attempts: blocks of code that a guard runs once, or again and again until one goes well.

    async for attempt in guard:
        async with attempt:
            answer = await client.post(url, json=question)

A block that raises something that is retried is left quietly, the pause is waited out, and the loop gives another
attempt. The last error is raised where it happened. Leaving the loop by `break` or `return` from inside a block that
went well is what ends it; so does the loop itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from allswell.domain.service.breaker import Permit
from allswell.runtime.call_timeouts import ATTEMPT
from allswell.runtime.calls import call_in_thread
from allswell.runtime.guard.call import AsyncTrial, SyncTrial, probing
from allswell.timing.scopes import Scope, ScopeTimeout

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard


class GuardAttempt:
    """One try: a block inside the attempt's scope, whose end is judged. Entered once."""

    def __init__(self, trial: AsyncTrial | SyncTrial) -> None:
        self._trial = trial
        self._permit: Permit | None = None
        self._scope: Scope | None = None
        self._probe = ExitStack()
        self.number = trial.course.attempts + 1
        """Counted from 1."""
        self.pause: float | None = None
        """Set when it has failed and another one follows: seconds to wait before it."""
        self.over = False

    def mark_output(self) -> None:
        """Something of the answer has reached the caller: from here on nothing is repeated."""
        self._trial.no_more()

    def _began(self, permit: Permit) -> Scope:
        self._permit = permit
        self._probe.enter_context(probing(permit))
        self._scope = self._trial.scope()
        return self._scope

    def _left(self) -> tuple[Permit, Scope]:
        if self._permit is None or self._scope is None or self.over:
            raise RuntimeError("An attempt was left that is not open.")
        self.over = True
        self._probe.close()
        return self._permit, self._scope

    async def __aenter__(self) -> Self:
        trial = self._trial
        if not isinstance(trial, AsyncTrial):
            raise TypeError("This attempt is of sync code: write `with attempt:`.")
        if self._permit is not None:
            raise RuntimeError("An attempt is entered once; the loop gives a new one for every try.")
        permit = await trial.admit()
        try:
            await self._began(permit).__aenter__()
        except BaseException as error:
            await trial.failed(error, self._left()[0])
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        trial = cast("AsyncTrial", self._trial)
        permit, scope = self._left()
        raised = error
        try:
            await scope.__aexit__(kind, error, trace)
        except BaseException as timed_out:  # noqa: BLE001 - the scope's own verdict; it is judged like any other
            raised = timed_out
        if raised is None:
            await trial.succeeded(permit)
            return False
        self.pause = await trial.failed(raised, permit)
        if self.pause is None and raised is not error:
            raise raised
        return self.pause is not None

    def __enter__(self) -> Self:
        trial = self._trial
        if not isinstance(trial, SyncTrial):
            raise TypeError("This attempt is of async code: write `async with attempt:`.")
        if self._permit is not None:
            raise RuntimeError("An attempt is entered once; the loop gives a new one for every try.")
        permit = trial.admit()
        try:
            self._began(permit).__enter__()
        except BaseException as error:
            trial.failed(error, self._left()[0])
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        trial = cast("SyncTrial", self._trial)
        permit, scope = self._left()
        with suppress(ScopeTimeout):  # it could not be interrupted: what came late, has come
            scope.__exit__(kind, error, trace)
        if error is None:
            trial.succeeded(permit)
            return False
        self.pause = trial.failed(error, permit)
        return self.pause is not None


class AsyncAttempts:
    """The attempts of one call, for `async for`."""

    def __init__(self, trial: AsyncTrial) -> None:
        self._trial = trial
        self._last: GuardAttempt | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GuardAttempt:
        if _another(self._last):
            if self._last is not None and self._last.pause is not None:
                await asyncio.sleep(self._last.pause)
            self._last = GuardAttempt(self._trial)
            return self._last
        raise StopAsyncIteration


class Attempts:
    """The attempts of one call, for `for`."""

    def __init__(self, trial: SyncTrial) -> None:
        self._trial = trial
        self._last: GuardAttempt | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> GuardAttempt:
        if _another(self._last):
            if self._last is not None and self._last.pause is not None:
                self._trial.guard.sleep(self._last.pause)
            self._last = GuardAttempt(self._trial)
            return self._last
        raise StopIteration


def _another(last: GuardAttempt | None) -> bool:
    """Whether another attempt is due."""
    if last is None:
        return True
    if not last.over:
        raise RuntimeError("The attempt was not entered: write `with attempt:` (or `async with`) around the block.")
    return last.pause is not None


# Where code that blocks runs under a guard: in a thread that can be given up, or where it is called.

T = TypeVar("T")
Place = Literal["thread", "here"]


def call_blocking(on: Place, scope: Scope, function: Callable[[], T]) -> T:
    """Call a function inside the scope of an attempt."""
    return _here(scope, function) if on == "here" else call_in_thread(scope, function)


def _here(scope: Scope, function: Callable[[], T]) -> T:
    """Call a function inside a scope that cannot interrupt it; what it brought late, it has brought."""
    brought: list[T] = []
    try:
        with scope:
            brought.append(function())
    except ScopeTimeout as late:
        if not brought or late.scope is not scope:
            raise
    return brought[0]


# Streams under a guard: a generator is begun again until it has yielded something, and never after that (F7).
#
# What a consumer has seen cannot be taken back: a second attempt would tell it the beginning twice, or another story.
# The outcome still counts for the breaker: a stream that breaks off is a failure of its service, one that ends is a
# success, and one that its consumer leaves in the middle was answering when it was left.
#
# The attempt's limit bounds the waits for the next item, all of them together; a consumer's own time does not count,
# nor does it use up the lease of a probe: that has done its work with the first item. The limit is no scope around the
# `yield`: that would reach out to the consumer, and end code that is none of ours. A plain generator is run as plain
# functions are, item by item: in threads, which can be given up, or, with `on="here"`, where it is used, and then its
# limits are seen to between two items.

Arguments = tuple[object, ...]
Named = Mapping[str, object]


class _RestartStream(Exception):
    """The stream broke before its first item, and is begun again."""

    def __init__(self, pause: float) -> None:
        self.pause = pause


_END = object()


async def async_stream(
    guard: Guard, function: Callable[..., AsyncGenerator[Any, None]], args: Arguments, kwargs: Named
) -> AsyncGenerator[Any, None]:
    """The items of an async generator function, whose call is repeated until the first of them."""
    trial = AsyncTrial(guard)
    while True:
        permit, pause = await trial.admit(), 0.0
        limit: float | None = trial.limit()
        async with aclosing(function(*args, **kwargs)) as items:
            while True:
                try:
                    item, limit = await _anext(items, trial, limit, permit)
                except _RestartStream as again:
                    pause = again.pause
                    break
                if item is _END:
                    return
                trial.no_more()
                permit = await trial.answering(permit)
                try:
                    yield item
                except BaseException:  # the consumer leaves, by whatever way; the service was answering
                    await trial.succeeded(permit)
                    raise
        await asyncio.sleep(pause)


async def _anext(
    items: AsyncGenerator[Any, None], trial: AsyncTrial, limit: float | None, permit: Permit
) -> tuple[Any, float | None]:
    """The next item and the time that is left for the others; every other ending is told."""
    time = asyncio.get_running_loop().time
    began = time()
    try:
        with probing(permit):
            async with Scope(limit, kind=ATTEMPT, name=trial.guard.service):
                item = await anext(items, _END)
    except BaseException as error:
        pause = await trial.failed(error, permit)
        if pause is None:
            raise
        raise _RestartStream(pause) from None
    if item is _END:
        await trial.succeeded(permit)
    return item, limit if limit is None else max(limit - (time() - began) * 1_000, 1)


def sync_stream(
    guard: Guard, function: Callable[..., Generator[Any, None, None]], args: Arguments, kwargs: Named
) -> Generator[Any, None, None]:
    """The items of a generator function, whose call is repeated until the first of them."""
    trial = SyncTrial(guard)
    while True:
        permit, pause = trial.admit(), 0.0
        limit: float | None = trial.limit()
        with _closing(function(*args, **kwargs)) as items:
            while True:
                try:
                    item, limit = _next(items, trial, limit, permit)
                except _RestartStream as again:
                    pause = again.pause
                    break
                if item is _END:
                    return
                trial.no_more()
                permit = trial.answering(permit)
                try:
                    yield item
                except BaseException:
                    trial.succeeded(permit)
                    raise
        guard.sleep(pause)


@contextmanager
def _closing(items: Generator[Any, None, None]) -> Iterator[Generator[Any, None, None]]:
    try:
        yield items
    finally:
        if (
            inspect.getgeneratorstate(items) != inspect.GEN_RUNNING
        ):  # else it runs on in a thread that was given up, and nobody can close it
            items.close()


def _next(
    items: Generator[Any, None, None], trial: SyncTrial, limit: float | None, permit: Permit
) -> tuple[Any, float | None]:
    """The next item and the time that is left for the others; every other ending is told."""
    guard = trial.guard
    began = guard.clock.monotonic()
    try:
        with probing(permit):
            item = call_blocking(guard.on, _scope(guard.service, limit), lambda: next(items, _END))
    except BaseException as error:
        pause = trial.failed(error, permit)
        if pause is None:
            raise
        raise _RestartStream(pause) from None
    if item is _END:
        trial.succeeded(permit)
    return item, limit if limit is None else limit - (guard.clock.monotonic() - began)


def _scope(service: str, limit: float | None) -> Scope:
    """The scope of the wait for one item; refused where the others have used up all the time."""
    if limit is not None and limit <= 0:
        scope = Scope(None, kind=ATTEMPT, name=service)
        scope.deadline = scope.now()
        raise scope.timed_out()
    return Scope(limit, kind=ATTEMPT, name=service, grace_ms=0)
