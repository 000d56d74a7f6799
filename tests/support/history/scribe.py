"""Writing down what is asked and what is told, so that a kill at any moment loses nothing that was said.

One file per process, append-only, one JSON object a line: a line when something is asked, a line when it was answered.
A line is one write to the file, so it is whole or (the last one of a killed process) torn, and then it was never said.
Moments are the machine's monotonic clock in nanoseconds, the same for all its processes: so "was told before the other
asked" can be said across processes. It is why all processes of a history must run on one machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from allswell.errors import LeaseLost, Refused


class Fate(StrEnum):
    """What became of something that was asked."""

    DONE = "done"
    """It was acknowledged: it has happened."""
    REFUSED = "refused"
    """It was refused: it has not happened and never will."""
    UNKNOWN = "unknown"
    """No answer, or "try later": it may have happened, or may still."""


class Op(msgspec.Struct):
    """One thing asked of the watch."""

    process: str
    number: int
    verb: str
    asked_at: int
    said: dict[str, Any]
    fate: Fate = Fate.UNKNOWN
    told_at: int | None = None
    told: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def task(self) -> str | None:
        """The task it is about, asked for or given."""
        return self.said.get("task") or self.told.get("task")

    @property
    def token(self) -> int | None:
        """The token it was said under or that it brought."""
        token = self.said.get("token", self.told.get("token"))
        return None if token is None else int(token)


class _Line(msgspec.Struct, omit_defaults=True):
    process: str
    number: int
    at: int
    verb: str = ""
    said: Mapping[str, Any] = {}
    fate: Fate | None = None
    told: Mapping[str, Any] = {}


class Scribe:
    """One process's file."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._number = 0

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)

    def ask(self, verb: str, **said: object) -> int:
        """Write down that something is about to be asked; the number it is answered under."""
        self._number += 1
        self._write(_Line(self.process, self._number, time.monotonic_ns(), verb, said))
        return self._number

    def done(self, number: int, **told: object) -> None:
        """It was acknowledged."""
        self._write(_Line(self.process, number, time.monotonic_ns(), fate=Fate.DONE, told=told))

    def failed(self, number: int, error: BaseException) -> None:
        """It was refused, or nobody knows: what we cannot reach or broke in an unforeseen way may have happened."""
        refused = isinstance(error, LeaseLost | Refused)
        code = error.code if isinstance(error, Refused) else type(error).__name__
        fate = Fate.REFUSED if refused else Fate.UNKNOWN
        self._write(_Line(self.process, number, time.monotonic_ns(), fate=fate, told={"code": code, "why": str(error)}))

    def note(self, verb: str, **said: object) -> None:
        """Write down something that was simply done, such as a fault that was injected."""
        self.done(self.ask(verb, **said))

    def _write(self, line: _Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def read(paths: Iterable[Path]) -> list[Op]:
    """Every operation of these files, by the moment it was asked; a torn last line was never said."""
    ops: dict[tuple[str, int], Op] = {}
    decode = msgspec.json.Decoder(_Line).decode
    for path in sorted(paths):
        *whole, torn = path.read_bytes().split(b"\n")
        del torn
        for text in whole:
            line = decode(text)
            key = (line.process, line.number)
            if line.fate is None:
                if key in ops:
                    raise ValueError(f"{path}: {line.process} asked number {line.number} twice; a name is used once")
                ops[key] = Op(line.process, line.number, line.verb, line.at, dict(line.said))
            elif key not in ops:
                raise ValueError(f"{path}: {line.process} was told about number {line.number}, which it never asked")
            else:
                op = ops[key]
                op.fate, op.told_at, op.told = line.fate, line.at, dict(line.told)
    return sorted(ops.values(), key=lambda op: (op.asked_at, op.process, op.number))
