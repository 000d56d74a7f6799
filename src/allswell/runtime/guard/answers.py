"""Answers whose beginning has been seen: what is left of them is handed on, and their end is told to the breaker, once.

Nothing is repeated any more (F7): whoever reads has seen bytes. A stream that breaks off, or outlasts its attempt, is a
failure of its service all the same; one that its reader leaves in the middle was answering when it was left.

**A reader's own time is not the service's.** The attempt's limit bounds the waits for the next piece, all of them
together; who reads a piece an hour long takes nothing from it. For the same reason a probe has done its work when the
answer has begun: its lease would run out while the reader reads (`test_a_slow_reader_says_nothing_about_a_service`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from allswell.domain.breaker import Permit
from allswell.errors import ServiceParked
from allswell.runtime.guard.ledger import Tape
from allswell.runtime.guard.nesting import ATTEMPT
from allswell.runtime.guard.trial import AsyncTrial, SyncTrial
from allswell.timing.scope import Scope, ScopeTimeout

Theirs = Any
"""An object of `httpx` or of `httpx2`: which one is known at run time only."""
STILL_COMES = "The attempt's time is up, and the answer still comes."
"""What the error of an answer says that is in time with every byte, and late as a whole."""


@cache
def joined(ours: type, theirs: type) -> Theirs:
    """Our class as one of their family: httpx asks its streams for that, and type checkers its transports."""
    return type(ours.__name__, (ours, theirs), {})


class Rest(NamedTuple):
    """The rest of an answer whose beginning has been seen."""

    first: bytes
    chunks: Any
    source: Any
    flavour: ModuleType
    trial: Any
    permit: Permit
    limit: float | None
    """Milliseconds that the attempt still has."""
    tape: Tape | None
    """Keeps what comes, where somebody wants it."""

    def seen(self, chunk: bytes) -> bytes:
        """A piece that is handed on."""
        if self.tape is not None:
            self.tape.add(chunk)
        return chunk


class AsyncRest:
    """Hands on the rest of an answer; its end is told to the breaker, once."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._trial: AsyncTrial = rest.trial
        self._open = True
        self._trial.no_more()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunk: bytes | None = self._rest.first
        left, time = self._rest.limit, asyncio.get_running_loop().time
        while chunk is not None:
            if chunk:
                yield self._rest.seen(chunk)
            began = time()
            try:
                async with Scope(left, kind=ATTEMPT, name=self._trial.guard.service):
                    chunk = await anext(self._rest.chunks, None)
            except BaseException as error:
                await self._ended(error)
                if isinstance(error, ScopeTimeout):
                    raise self._rest.flavour.ReadTimeout(str(error)) from error
                raise
            left = None if left is None else max(left - (time() - began) * 1_000, 1)
        await self._ended(None)

    async def aclose(self) -> None:
        """Close the answer; one that is left in the middle was answering when it was left."""
        await self._ended(None)
        await self._rest.source.aclose()

    async def _ended(self, error: BaseException | None) -> None:
        if not self._open:
            return
        self._open = False
        if self._rest.tape is not None:
            self._rest.tape.end()
        if error is None:
            await self._trial.succeeded(self._rest.permit)
        else:
            with suppress(ServiceParked):
                await self._trial.failed(error, self._rest.permit)


class SyncRest:
    """Hands on the rest of an answer; its end is told to the breaker, once."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._trial: SyncTrial = rest.trial
        self._open = True
        self._trial.no_more()

    def __iter__(self) -> Iterator[bytes]:
        left, now = self._rest.limit, self._trial.guard.clock.monotonic
        if self._rest.first:
            yield self._rest.seen(self._rest.first)
        while True:
            began = now()
            try:
                chunk = next(self._rest.chunks, None)
                left = None if left is None else left - (now() - began)
                if chunk is not None and left is not None and left <= 0:
                    raise self._rest.flavour.ReadTimeout(STILL_COMES)  # noqa: TRY301 - told like any other
            except BaseException as error:
                self._ended(error)
                raise
            if chunk is None:
                self._ended(None)
                return
            yield self._rest.seen(chunk)

    def close(self) -> None:
        """Close the answer; one that is left in the middle was answering when it was left."""
        self._ended(None)
        self._rest.source.close()

    def _ended(self, error: BaseException | None) -> None:
        if not self._open:
            return
        self._open = False
        if self._rest.tape is not None:
            self._rest.tape.end()
        if error is None:
            self._trial.succeeded(self._rest.permit)
        else:
            with suppress(ServiceParked):
                self._trial.failed(error, self._rest.permit)
