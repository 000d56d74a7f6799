"""Streams under a guard: a generator is begun again until it has yielded something, and never after that (F7).

What a consumer has seen cannot be taken back: a second attempt would tell it the beginning twice, or another story. The
outcome still counts for the breaker: a stream that breaks off is a failure of its service, one that ends is a success,
and one that its consumer leaves in the middle was answering when it was left.

The attempt's limit bounds the waits for the next item, all of them together; a consumer's own time does not count, nor
does it use up the lease of a probe: that has done its work with the first item. The limit is no scope around the
`yield`: that would reach out to the consumer, and end code that is none of ours. A plain generator is run as plain
functions are, item by item: in threads, which can be given up, or, with `on="here"`, where it is used, and then its
limits are seen to between two items.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from allswell.domain.breaker import Permit
from allswell.runtime.guard.blocking import call_blocking
from allswell.runtime.guard.nesting import ATTEMPT, probing
from allswell.runtime.guard.trial import AsyncTrial, SyncTrial
from allswell.timing.scope import Scope

if TYPE_CHECKING:
    from allswell.runtime.guard.guard import Guard

Arguments = tuple[object, ...]
Named = Mapping[str, object]


class _Again(Exception):
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
                except _Again as again:
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
        raise _Again(pause) from None
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
                except _Again as again:
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
        raise _Again(pause) from None
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
