"""What a process of ours answers, through a pipe that nobody but it was given.

Plain values travel as JSON. What JSON cannot say as it is (an error, a tuple, an object) travels as a pickle: it comes
from a function of the same program, by a way that nobody else can write to, and not through a file that others could
put in its place. The length comes first, so that half an answer is none, and an answer is bounded.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import struct
import time
from multiprocessing.connection import Connection, wait

import msgspec

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
