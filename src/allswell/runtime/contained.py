"""A user's function, called in a process of ours: however it leaves, that is its own failure and ends nothing else.

`sys.exit` (which `argparse` calls for `--help` too) and `KeyboardInterrupt` stop an event loop with all that runs in
it, and a `CancelledError` of the function's own (something that it awaited was cancelled) looks like our order to stop.
A step ends well by returning, so each of these is an error like any other here. A cancel that was meant for the
function passes: whoever sent it knows.

A task that the function has started is out of its hands: asyncio lets `SystemExit` out of the loop itself. Then
`run_through` enters the loop again; whoever awaits that task gets the error.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LeftItself(RuntimeError):
    """A function has neither returned nor raised an error: it was interrupted, or cancelled, by itself."""


class ExitCalled(LeftItself):
    """A function has called `sys.exit`: its own verdict, so it is not repeated, whatever the code says."""


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def contained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, async if it was: what would stop the loop, or look like a cancel of ours, is raised as an error."""
    if is_async(function):

        @functools.wraps(function)
        async def call_async(*args: object, **kwargs: object) -> object:
            try:
                return await function(*args, **kwargs)
            except (SystemExit, KeyboardInterrupt) as raised:
                raise left(raised) from raised
            except asyncio.CancelledError as raised:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise left(raised) from raised

        return call_async

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as raised:
            raise left(raised) from raised

    return call


def left(raised: BaseException) -> LeftItself:
    """The error that stands for it."""
    if isinstance(raised, SystemExit):
        code = raised.code
        text = f"it called sys.exit({'' if code is None else repr(code)})"
        return ExitCalled(text if code else f"{text}, and a step that is done returns")
    if isinstance(raised, asyncio.CancelledError):
        return LeftItself("it ended in a CancelledError of its own: something that it awaited was cancelled")
    return LeftItself(f"it raised {type(raised).__name__}")


def run_through(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, and on to the end of `main` when a task beside it calls `sys.exit`."""
    working: asyncio.Task[T] | None = None

    async def watched() -> None:
        nonlocal working
        if working is None:
            working = asyncio.create_task(main)
        try:
            await asyncio.wait((working,))
        except asyncio.CancelledError:  # from the keyboard
            working.cancel()
            await asyncio.wait((working,))
            if working.cancelled():
                raise

    with asyncio.Runner() as runner:
        while working is None or not working.done():
            try:
                runner.run(watched())
            except SystemExit:
                if working is None or working.done():
                    raise
        return working.result()
