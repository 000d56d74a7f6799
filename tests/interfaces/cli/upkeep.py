"""What the tests of `config` and `doctor` share: running the command in a folder, at a terminal, and the past."""

import os
import pty
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from typing import IO

import msgspec

from allswell.app import make_watch
from allswell.engine.watch import Watch
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import SystemClock
from tests.interfaces.cli.warm import can_run, warm, without_read_at_start

MINUTE = 60_000
HOUR = 60 * MINUTE


class Ran(msgspec.Struct):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str = ""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what a test sets for itself: our settings, and what the terminal is like.

    Nor has it what an interpreter reads at its start (`PYTHON…`, the locale), so that commands can be forked.
    """
    ours = ("ALLSWELL_", "COLUMNS", "LINES", "NO_COLOR")
    clean = {name: value for name, value in without_read_at_start(os.environ).items() if not name.startswith(ours)}
    return {**clean, **more}


def run(*args: str, cwd: Path, **env: str) -> Ran:
    """Run the real command in a process of its own."""
    return run_with(environment(**env), *args, cwd=cwd)


def run_with(env: Mapping[str, str], *args: str, cwd: Path, given: str = "") -> Ran:
    """The same, with nothing else in its environment; it may be given something on its standard input, by a pipe."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _input(given) as stdin:
        code = _run(args, cwd, env, (stdin, out.fileno(), err.fileno()))()
        return Ran(code, *(_read(stream) for stream in (out, err)))


@contextmanager
def _input(given: str) -> Iterator[int]:
    if not given:
        with Path(os.devnull).open() as nothing:
            yield nothing.fileno()
        return
    ours, theirs = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(theirs, "w") as pipe:
            pipe.write(given)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield ours
    finally:
        os.close(ours)  # what is not read by now is not written either
        writer.join()


def _read(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


def at_terminal(*args: str, cwd: Path, columns: int, typed: str = "", **env: str) -> Ran:
    """Run the real command at a terminal of that width, at which somebody types."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    os.write(ours, typed.encode())
    said, echo = b"", typed.replace("\n", "\r\n").encode()
    while len(said) < len(echo):  # the kernel shows what was typed when it has the time: before the command, always
        said += os.read(ours, 65_536)
    code = _run(args, cwd, {"TERM": "xterm-256color", **environment(**env)}, (theirs, theirs, theirs))
    os.close(theirs)
    try:
        while chunk := os.read(ours, 65_536):
            said += chunk
    except OSError:
        pass  # the other end is closed: the command has ended
    os.close(ours)
    return Ran(code(), said.decode().replace("\r\n", "\n"))


def _run(args: Sequence[str], cwd: Path, env: Mapping[str, str], streams: tuple[int, int, int]) -> Callable[[], int]:
    """Begin a command with these streams; what is returned waits for its exit code."""
    if can_run(env) and (end := warm().begin(args, cwd, env, streams)) is not None:
        return end
    command = [sys.executable, "-P", "-m", "allswell", *args]
    stdin, stdout, stderr = streams
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr).wait


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
