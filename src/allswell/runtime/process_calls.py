"""Calls of sync functions in a process of their own, which can be killed.

The function goes by name (module and qualified name, so it stands at the top of a module), its arguments as a pickle;
what it answers comes through a pipe of its own (`AnswerReader`), so that nobody else can answer in its place.
The process leads a group of its own. At the deadline it gets SIGTERM, which raises `ScopeTimeout` in it; at the end of
the grace the whole group is killed, as it is when the function has returned: nothing it started outlives the call. If
this process dies, the other ends itself. Whoever has left the group on purpose is beyond all this.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import reduce
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NoReturn, TypeVar, cast

import msgspec

from allswell.domain.scopes import VARIABLE, label
from allswell.errors import Refused
from allswell.runtime.calls import FOR_TASKS, ended
from allswell.runtime.propagation import deadline_environment, inherit_deadline
from allswell.timing.scopes import Scope, current, end_of, expire, run

# What a process of ours answers, through a pipe that nobody but it was given.
#
# Plain values travel as JSON. What JSON cannot say as it is (an error, a tuple, an object) travels as a pickle: it
# comes from a function of the same program, by a way that nobody else can write to, and not through a file that others
# could put in its place. The length comes first, so that half an answer is none, and an answer is bounded.

MOST = 1 << 28
"""Bytes of an answer."""
_HEAD = struct.Struct(">Qc")
_JSON, _PICKLE = b"j", b"p"
_DEEPEST = 100
_CHUNK = 1 << 20

Outcome = tuple[object, BaseException | None]
"""What a function returned, or what it raised."""


class AnswerReader:
    """The end that is read, in the process that waits."""

    def __init__(self) -> None:
        self._reader, self.writer = multiprocessing.Pipe(duplex=False)
        """`writer` is for the process that answers; to be closed here once that has it."""
        os.set_blocking(self._reader.fileno(), False)
        self._content = bytearray()
        self._open = True

    def close(self) -> None:
        """Let both ends go."""
        self.writer.close()
        self._reader.close()
        self._open = False

    def hear(self, sentinel: int, stop: Connection | None, seconds: float) -> bool:
        """Take what comes until the process has ended, which is told by True, or it is stopped or time is up."""
        end = time.monotonic() + seconds
        others = [sentinel] if stop is None else [sentinel, stop]
        while True:
            ready = wait([*others, *([self._reader] if self._open else [])], max(end - time.monotonic(), 0.0))
            if sentinel in ready:
                return True
            if stop in ready or time.monotonic() >= end:
                return False
            self._take()

    def outcome(self) -> Outcome | None:
        """What was answered, after the process has ended; None if that was nothing, or not all of it."""
        while self._open and self._take():
            pass
        if len(self._content) < _HEAD.size:
            return None
        size, kind = _HEAD.unpack_from(self._content)
        body = bytes(self._content[_HEAD.size :])
        if len(body) != size:
            return None
        if kind == _JSON:
            return msgspec.json.decode(body), None
        result, error = pickle.loads(body)  # noqa: S301 - our own child's, by a way that is its alone
        return result, error

    def _take(self) -> bool:
        """Read what is there; whether there was anything."""
        try:
            piece = os.read(self._reader.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        self._content += piece
        if not piece or len(self._content) > _HEAD.size + MOST:
            self._open = False  # it is over, or more than we asked for
        return bool(piece)


def send(writer: Connection, outcome: Outcome) -> None:
    """Answer, in the process that was asked; whoever waits may be gone by then."""
    kind, body = _written(outcome)
    if len(body) > MOST:
        text = f"it returned {len(body):,} bytes, and {MOST:,} can be sent to the process that called it"
        kind, body = _PICKLE, pickle.dumps((None, RuntimeError(text)))
    left = memoryview(_HEAD.pack(len(body), kind) + body)
    with contextlib.suppress(BrokenPipeError):
        while left:
            left = left[os.write(writer.fileno(), left) :]
        writer.close()


def _written(outcome: Outcome) -> tuple[bytes, bytes]:
    result, raised = outcome
    if raised is None and _is_plain(result, _DEEPEST):
        with contextlib.suppress(msgspec.MsgspecError, OverflowError, UnicodeEncodeError):
            return _JSON, msgspec.json.encode(result)
    try:
        made = pickle.dumps(outcome)
        pickle.loads(made)  # noqa: S301 - some exceptions pickle and cannot be read back
    except Exception as error:  # noqa: BLE001 - anything can happen in what users pickle
        what = f"raised {raised!r}" if raised is not None else f"returned a {type(result).__name__}"
        text = f"it {what}, which cannot be sent to the process that called it ({type(error).__name__}: {error})"
        return _PICKLE, pickle.dumps((None, RuntimeError(text)))
    return _PICKLE, made


def _is_plain(value: object, deepest: int) -> bool:
    """Whether JSON gives back exactly this value."""
    if value is None or type(value) in (bool, int, str):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if deepest and type(value) is list:
        return all(_is_plain(one, deepest - 1) for one in value)
    if deepest and type(value) is dict:
        return all(type(key) is str and _is_plain(one, deepest - 1) for key, one in value.items())
    return False


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


class StopMessage:
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
        stop = StopMessage()
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
        stop = StopMessage()
        context = copy_context()  # what is started belongs to the call that awaits it
        try:
            call = FOR_TASKS.call(lambda: context.run(supervise, scope, function, args, kwargs, stop))
            return await ended(call, scope, stop=stop.ask)
        finally:
            stop.close()

    return await run(scope, body)


def supervise(
    scope: Scope, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object], stop: StopMessage
) -> T:
    """Start a process for the call, and see that it ends with its scope or when it is stopped."""
    module, qualname = reference(function)
    if multiprocessing.current_process().daemon:
        text = f"{qualname} is called from a process of ours, which must not start another: it could not be ended"
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


def _see_to_its_end(process: BaseProcess, scope: Scope, stop: StopMessage, answer: AnswerReader) -> None:
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
