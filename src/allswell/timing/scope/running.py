"""Calls whose end is promised: the body is a task of its own, which can be given up.

`async with` ends what obeys. A body that swallows its cancel, or waits for something that does, holds its block for as
long as it likes, and nothing in Python can change that. `run` keeps the caller apart from the body: at the deadline the
body is cancelled, and again at every third of the grace; at the end of the grace the caller goes on. What is left
behind is fenced (it can enter no scope any more, and its result goes nowhere), counted, named in a warning, and still
cancelled now and then, for as long as it runs.

The caller may be cancelled too, by anybody. The cancel is passed on to the body once, unless the deadline has told it
already, and the wait for it is bounded in the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from allswell.domain.spending import label
from allswell.timing.foreign import refuse_other_loops
from allswell.timing.scope import misuse
from allswell.timing.scope.expiry import SHORTEST_PAUSE, end_of, expire
from allswell.timing.scope.scope import Scope
from allswell.timing.scope.timeout import ScopeTimeout

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

_abandoned: dict[asyncio.Task[object], Scope] = {}


def abandoned() -> tuple[Scope, ...]:
    """The scopes whose bodies were given up and still run, oldest first."""
    for task in [task for task in list(_abandoned) if task.get_loop().is_closed()]:
        _abandoned.pop(task, None)
    return tuple(_abandoned.values())


async def run(scope: Scope, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Await a call inside a scope in a task of its own; back at the latest when the scope's grace is over."""
    if scope.began is not None:
        raise misuse.entered_twice(scope)
    refuse_other_loops()

    async def body() -> T:
        task.remove_done_callback(ended)  # it is for a task that is cancelled before it begins
        try:
            async with scope:
                return await function(*args, **kwargs)
        finally:
            ended()  # a turn of the loop before the task could say so itself

    def ended(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    scope.given_up = over
    task = loop.create_task(body(), name=label(scope.kind, scope.name))
    task.add_done_callback(ended)
    try:
        await over
    except asyncio.CancelledError:
        await _end(task, scope)
        if not task.done():
            _abandon(task, scope)
        elif not task.cancelled():
            error = task.exception()
            if error is not None and not isinstance(error, ScopeTimeout):
                raise error from None
        raise
    if task.done():
        return task.result()
    _abandon(task, scope)
    raise scope.timed_out(abandoned=True)


async def _end(task: asyncio.Task[T], scope: Scope) -> None:
    """Pass the caller's cancel on, and wait for the body until its grace is over."""
    began = told = scope.now()
    if not scope.expired:
        task.cancel()
    while not task.done():
        end = end_of(scope, began)
        if scope.expiry is not None:  # whichever told it first: a limit that comes after a cancel gives no more time
            end = min(end, scope.expiry.end)
        now = scope.now()
        if now >= end:
            return
        pause = max((end - began) / 3, SHORTEST_PAUSE)
        try:
            await asyncio.wait((task,), timeout=min(told + pause, end) - now)
            again = scope.now() >= told + pause
        except asyncio.CancelledError:
            again = True  # the caller is cancelled again: so is the body
        if again and not task.done():
            told = scope.now()
            if not scope.expired:  # a scope that has expired does its own telling
                task.cancel()


def _abandon(task: asyncio.Task[T], scope: Scope) -> None:
    """Fence, count and name what does not stop."""
    expiry = expire(scope, scope.now()) if scope.expiry is None else scope.expiry
    scope.book()
    expiry.fenced = True
    _abandoned[task] = scope
    task.cancel()  # told once more, now that it is fenced: a body that waits for a thread lets go of its slot
    # `asyncio.run` ends when every task that asyncio knows of has ended, and would wait for this one for ever. This
    # takes it out of that list. The name is public in spite of its spelling: it is in `asyncio.__all__` and in the
    # library's reference ("Extending", task lifetime support); adr/0007 says why nothing plainer does.
    asyncio._unregister_task(task)  # noqa: SLF001
    task.add_done_callback(_ended)
    log.warning("%s did not stop within its grace and was given up; it stands at %s", task.get_name(), _where(task))


def _where(task: asyncio.Task[T]) -> str:
    """The innermost line of a task that we can see."""
    found = "an unknown place"
    awaited: object = task.get_coro()
    while inspect.iscoroutine(awaited) and awaited.cr_frame is not None:
        found = f"{awaited.cr_frame.f_code.co_filename}:{awaited.cr_frame.f_lineno}"
        awaited = awaited.cr_await
    return found


def _ended(task: asyncio.Task[T]) -> None:
    _abandoned.pop(task, None)
    if not task.cancelled():
        task.exception()  # seen: it has nobody else to go to
