"""What the tests of `config` and `doctor` share: running the command in a folder, at a terminal, and the past."""

import os
import pty
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fcntl import ioctl
from pathlib import Path

import msgspec

from allswell.app import make_watch
from allswell.engine.watch import Watch
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import SystemClock

MINUTE = 60_000
HOUR = 60 * MINUTE


class Ran(msgspec.Struct):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str = ""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what a test sets for itself: our settings, and what the terminal is like."""
    ours = ("ALLSWELL_", "COLUMNS", "LINES", "NO_COLOR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**clean, **more}


def run(*args: str, cwd: Path, **env: str) -> Ran:
    """Run the real command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "allswell", *args],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def at_terminal(*args: str, cwd: Path, columns: int, typed: str = "", **env: str) -> Ran:
    """Run the real command at a terminal of that width, at which somebody types."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "allswell", *args],
        cwd=cwd,
        env={"TERM": "xterm-256color", **environment(**env)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65_536):
            said += chunk
    except OSError:
        pass  # the other end is closed: the command has ended
    os.close(ours)
    return Ran(child.wait(), said.decode().replace("\r\n", "\n"))


class Shifted(SystemClock):
    """This machine's clock, so many milliseconds off."""

    def __init__(self, by: int) -> None:
        self._by = by

    def wall(self) -> int:
        """The wall, moved."""
        return super().wall() + self._by


def database(folder: Path) -> Path:
    """Where the watch of a folder lies."""
    return folder / ".allswell" / "allswell.db"


@asynccontextmanager
async def watch_at(folder: Path, ago: int = 0) -> AsyncIterator[Watch]:
    """The watch of a folder as it was that long ago; nobody sweeps."""
    clock = Shifted(-ago)
    async with make_watch(SqliteStore(database(folder), clock=clock), clock=clock, sweeping=False) as watch:
        yield watch


def change(folder: Path, statement: str, *values: object) -> None:
    """Change rows behind Allswell's back."""
    connection = sqlite3.connect(database(folder))
    with connection:
        connection.execute(statement, values)
    connection.close()
