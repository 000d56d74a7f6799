"""Calls of sync functions in a process of their own, which can be killed.

The function goes by name (module and qualified name, so it stands at the top of a module), its arguments as a pickle;
what it answers comes through a pipe of its own (`answer`), so that nobody else can answer in its place.
The process leads a group of its own. At the deadline it gets SIGTERM, which raises `ScopeTimeout` in it; at the end of
the grace the whole group is killed, as it is when the function has returned: nothing it started outlives the call. If
this process dies, the other ends itself. Whoever has left the group on purpose is beyond all this.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NoReturn, TypeVar, cast

from allswell.domain.carried import VARIABLE
from allswell.domain.spending import label
from allswell.errors import Refused
from allswell.runtime.answer import AnswerReader, Outcome, send
from allswell.runtime.calling import FOR_TASKS, ended
from allswell.runtime.travel import deadline_environment, inherit_deadline
from allswell.timing.scope import Scope, current, run
from allswell.timing.scope.expiry import end_of, expire

T = TypeVar("T")

_OF_THE_GRACE = 0.9
"""What the process has of it; the rest is for killing it, so that the caller finds it gone when the grace is over."""
_KILLED = 5.0
"""Seconds to wait for a process that was killed; only the kernel can hold it."""


@dataclass(frozen=True)
class CallOrder:
    """What a process is to do."""

    module: str
    qualname: str
    arguments: bytes
    name: str
    environment: dict[str, str]
    """Its deadline."""
    seconds: float
    """After which it ends itself, if nobody else has."""


class Stop:
    """A way to end the wait for a process from another thread."""

    def __init__(self) -> None:
        self.reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._lock = threading.Lock()
        self.asked = False

    def ask(self) -> None:
        """End it: the process is told, and killed after the grace."""
        with self._lock:
            if not self.asked and not self._writer.closed:
                self.asked = True
                self._writer.send_bytes(b"!")

    def close(self) -> None:
        """Let its pipe go."""
        with self._lock:
            self._writer.close()
            self.reader.close()


def reference(function: Callable[..., object]) -> tuple[str, str]:
    """How another process finds a function, or `Refused` where it cannot."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not qualname or "<" in qualname:
        text = f"{function!r} cannot be called in another process: only a function at the top of a module can"
        raise Refused("no_reference", text, where="on")
    return module, qualname


def call_in_process(scope: Scope, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    """A call in a process of its own inside a scope that this thread enters; back when its grace is over, at most."""
    scope.enter(None)
    try:
        stop = Stop()
        try:
            result = supervise(scope, function, args, kwargs, stop)
        finally:
            stop.close()
    except BaseException as error:
        scope.__exit__(type(error), error, None)
        raise
    scope.__exit__(None, None, None)
    return result


async def run_in_process(
    scope: Scope, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    """Await a call in a process of its own inside a scope; back at the latest when the scope's grace is over."""

    async def body() -> T:
        stop = Stop()
        try:
            call = FOR_TASKS.call(lambda: supervise(scope, function, args, kwargs, stop))
            return await ended(call, scope, stop=stop.ask)
        finally:
            stop.close()

    return await run(scope, body)


def supervise(
    scope: Scope, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object], stop: Stop
) -> T:
    """Start a process for the call, and see that it ends with its scope or when it is stopped."""
    module, qualname = reference(function)
    if multiprocessing.current_process().daemon:
        text = f"{qualname} is called from a process of ours, which may start no other: nobody would end it in time"
        raise Refused("nested_process", text, where="on")
    arguments = _sent(qualname, args, kwargs)
    seconds = min(scope.remaining() + scope.grace_ms / 1_000, threading.TIMEOUT_MAX)
    order = CallOrder(module, qualname, arguments, label(scope.kind, scope.name), deadline_environment(scope), seconds)
    answer = AnswerReader()
    try:
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(order, answer.writer), daemon=True)
        process.start()
        answer.writer.close()
        try:
            _see_to_its_end(process, scope, stop, answer)
        finally:
            _kill(process)
        if scope.expired:
            raise scope.timed_out()
        outcome = answer.outcome()
        if outcome is None:
            raise ChildProcessError(f"{qualname} in a process of its own ended with exit code {process.exitcode}")
        result, error = outcome
        if error is not None:
            raise error
        return cast("T", result)
    finally:
        answer.close()


def _sent(qualname: str, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
    try:
        return pickle.dumps((args, kwargs))
    except Exception as error:
        text = f"{qualname} runs in a process of its own, and what goes there must be picklable: {error}"
        raise Refused("not_picklable", text, where="arguments") from error


def _see_to_its_end(process: BaseProcess, scope: Scope, stop: Stop, answer: AnswerReader) -> None:
    if answer.hear(process.sentinel, stop.reader, min(scope.remaining(), threading.TIMEOUT_MAX)):
        return
    now = scope.now()
    end = end_of(scope, now) if now < scope.deadline else expire(scope, end_of(scope)).end
    _signal(process, signal.SIGTERM)
    answer.hear(process.sentinel, None, max(end - now, 0.0) * _OF_THE_GRACE)


def _kill(process: BaseProcess) -> None:
    """End whatever is left of the process and its group; not reaped before, its number is nobody else's."""
    _signal(process, signal.SIGKILL)
    process.join(_KILLED)


def _signal(process: BaseProcess, number: signal.Signals) -> None:
    if process.pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
        return
    if process.is_alive() and number is signal.SIGKILL:  # it has not made its group yet
        process.kill()
    elif process.is_alive():
        process.terminate()


# --- in the process ---------------------------------------------------------------------------------------------------


def serve(order: CallOrder, writer: Connection) -> None:
    """Carry out an order; what comes of it goes into the pipe, which those that it starts do not get."""
    os.set_inheritable(writer.fileno(), False)
    with contextlib.suppress(OSError):
        os.setsid()
    threading.Thread(target=_end_with_parent, args=(order.seconds,), daemon=True).start()
    try:
        function = _find(order)
        args, kwargs = pickle.loads(order.arguments)  # noqa: S301 - our own parent's
        os.environ.pop(VARIABLE, None)
        os.environ.update(order.environment)
        with inherit_deadline(name=order.name):
            signal.signal(signal.SIGTERM, _on_term)
            outcome: Outcome = (function(*args, **kwargs), None)
    except BaseException as error:  # noqa: BLE001 - it is raised again in the parent
        outcome = (None, error)
    send(writer, outcome)


def _end_with_parent(seconds: float) -> None:
    """End ourselves, with all that we started, when nobody else does: the parent was killed, or stopped."""
    parent = multiprocessing.parent_process()
    wait([] if parent is None else [parent.sentinel], seconds)
    os.killpg(0, signal.SIGKILL)


def _on_term(_number: int, _frame: FrameType | None) -> NoReturn:
    scope = current()
    raise SystemExit(124) if scope is None else scope.timed_out()


def _find(order: CallOrder) -> Callable[..., object]:
    module = sys.modules.get(order.module)
    if module is None:
        import importlib

        module = importlib.import_module(order.module)
    found = reduce(getattr, order.qualname.split("."), cast("object", module))
    # Where the function was decorated with a scope, its name now means the wrapper; what it wraps is wanted.
    return cast("Callable[..., object]", getattr(found, "__wrapped__", found))
