"""Work that one task begins, in its own step, and another one goes on with if it has to wait.

To the work it is one and the same task from the beginning: the one that goes on with it. So whatever it binds to the
running task before its first wait, a timeout for instance, is bound to the right one.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # as "Extending asyncio" says
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

B = TypeVar("B")


class Begun(Generic[B]):
    """Work on a batch that was begun and waits for the store; to be awaited by the task that goes on with it."""

    __slots__ = ("_awaited", "_marked", "_work", "batch")

    def __init__(self, batch: B, work: Coroutine[Any, Any, None], awaited: object) -> None:
        self.batch = batch
        self._work = work
        self._awaited = awaited
        self._marked = getattr(awaited, "_asyncio_future_blocking", None) is True
        if self._marked:  # nobody awaits it in this moment, and others may
            awaited._asyncio_future_blocking = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio's protocol

    def __await__(self) -> Generator[Any, Any, None]:
        """Go on with it, from what it waits for."""
        awaited = self._awaited
        if self._marked:
            awaited._asyncio_future_blocking = True  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is meant for the work
                    awaited = self._work.throw(error)
                else:
                    awaited = self._work.send(None)
        except StopIteration:
            return


class Resting(Generic[B]):
    """A loop that has nothing to do, and by what it is called."""

    __slots__ = ("_context", "called", "task")

    def __init__(self, task: asyncio.Task[Any], called: asyncio.Future[Begun[B] | None]) -> None:
        self.task = task
        self.called = called
        self._context = copy_context()

    def begin(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> object:
        """Begin on something as if the loop itself did; what it waits for, or `StopIteration` if it is over."""
        caller = asyncio.current_task(loop)
        if caller is not None:
            _leave_task(loop, caller)
        _enter_task(loop, self.task)
        try:
            return self._context.run(work.send, None)
        finally:
            _leave_task(loop, self.task)
            if caller is not None:
                _enter_task(loop, caller)
