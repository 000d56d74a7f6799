"""The note of an attempt in flight: all that a later supervisor needs to settle it, should this one be killed.

Its file is locked for as long as the supervisor lives; the kernel lets go of the lock when it dies, however it dies. So
no process number has to be believed: whoever gets the lock knows that nobody watches this attempt any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Container, Iterator
from pathlib import Path

import msgspec

from allswell.domain.names import AgentId, Millis, RunId, TaskId, Token
from allswell.runtime.own_files import create, open_there, own_folder, remove_file
from allswell.runtime.warden import Record

_BIGGEST = 4 << 20


class Flight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt in flight."""

    task: TaskId
    name: str
    attempt: int
    token: Token
    agent: AgentId
    run: RunId | None = None
    argv: tuple[str, ...] = ()
    cwd: str = ""
    folder: str | None = None
    """Whose work is kept."""
    head: str | None = None
    """The commit that it stood on when the attempt began."""
    began_at: Millis
    """On this machine's wall clock."""
    grace: int = 0
    record: Record | None = None
    """The process tree; None before there is one."""
    stdout: str | None = None
    stderr: str | None = None
    socket: str | None = None
    """The folder of its socket."""
    resume: tuple[str, ...] = ()
    store: str = ""
    """Where its lease is from, without a password; empty in notes from before this was noted."""


class FlightFile:
    """The file of a flight, locked by us."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    def write(self, flight: Flight) -> None:
        """Note how things stand; a kill in between leaves the old words or the new ones."""
        content = msgspec.json.encode(flight)
        # One write of a few hundred bytes: the kernel does not stop halfway through it.
        os.pwrite(self._handle, content + b"\n" + b" " * max(0, os.fstat(self._handle).st_size - len(content) - 1), 0)

    def read(self) -> Flight | None:
        """What was noted; None if nothing that can be read was."""
        try:
            return msgspec.json.decode(os.pread(self._handle, _BIGGEST, 0), type=Flight)
        except msgspec.DecodeError:
            return None

    def remove(self) -> None:
        """The attempt is over and everything is kept."""
        with contextlib.suppress(OSError):
            remove_file(self.path)
        self.close()

    def close(self) -> None:
        """Let go of the lock."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1


def note_name(task: str, attempt: int) -> str:
    """What the note of an attempt is called."""
    return f"{task}.{attempt}.json"


def take_off(folder: Path, flight: Flight) -> FlightFile:
    """Note an attempt before it begins; `OSError` if that cannot be."""
    path = folder / note_name(flight.task, flight.attempt)
    with own_folder(folder, make=True) as inside:
        handle = create(path.name, inside, flags=os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file = FlightFile(path, handle)
        file.write(flight)
    except BaseException:
        os.close(handle)
        raise
    return file


def under_way(folder: Path, but: Container[str] = ()) -> Iterator[tuple[str, Flight]]:
    """Every note that can be read, with its name, but for some; nothing is locked, and whose it is is not asked."""
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        if path.stem in but:
            continue
        try:
            with own_folder(folder) as inside:
                handle = open_there(path.name, inside)
        except OSError:
            continue  # it has just ended, or is none of ours
        try:
            flight = FlightFile(path, handle).read()
        finally:
            os.close(handle)
        if flight is not None:
            yield path.stem, flight


def unwatched(folder: Path) -> Iterator[FlightFile]:
    """Every note whose supervisor is gone, locked for us; the caller removes or closes each."""
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return
    for path in paths:
        try:
            with own_folder(folder) as inside:
                handle = open_there(path.name, inside, flags=os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(handle).st_ino == path.lstat().st_ino
        except OSError:  # its supervisor lives, or has just removed it
            same = False
        if same:
            yield FlightFile(path, handle)
        else:
            os.close(handle)
