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
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self, cast

from allswell.domain.breaker import Permit
from allswell.runtime.guard.nesting import probing
from allswell.runtime.guard.trial import AsyncTrial, SyncTrial
from allswell.timing.scope import Scope, ScopeTimeout


class Attempt:
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
        self._last: Attempt | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        if _another(self._last):
            if self._last is not None and self._last.pause is not None:
                await asyncio.sleep(self._last.pause)
            self._last = Attempt(self._trial)
            return self._last
        raise StopAsyncIteration


class Attempts:
    """The attempts of one call, for `for`."""

    def __init__(self, trial: SyncTrial) -> None:
        self._trial = trial
        self._last: Attempt | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Attempt:
        if _another(self._last):
            if self._last is not None and self._last.pause is not None:
                self._trial.guard.sleep(self._last.pause)
            self._last = Attempt(self._trial)
            return self._last
        raise StopIteration


def _another(last: Attempt | None) -> bool:
    """Whether another attempt is due."""
    if last is None:
        return True
    if not last.over:
        raise RuntimeError("The attempt was not entered: write `with attempt:` (or `async with`) around the block.")
    return last.pause is not None
