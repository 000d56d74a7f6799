"""What attempts have printed: one line of it as a person reads it, and reading on from where one was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from allswell.domain.agents.log import LogKind
from allswell.domain.task.model import Task
from allswell.errors import Refused
from allswell.runtime.attempt.output import LogPlace, LogReader, is_running, log_files
from allswell.runtime.receipts import StateDir

if TYPE_CHECKING:
    from allswell.domain.agents.log import LogEntry


class LogShape(Struct, frozen=True):
    """A line of words, a message, a tool call, what came of it, or the end of a turn; costs only where it says some."""

    task_id: str
    attempt: int
    stream: Literal["stdout", "stderr"]
    kind: LogKind
    tool: str | None
    text: str
    cost_usd: float | None
    tokens: int | None

    @classmethod
    def of(cls, entry: LogEntry, task: str, attempt: int, stream: Literal["stdout", "stderr"]) -> LogShape:
        """An entry in its place."""
        return cls(
            task_id=task,
            attempt=attempt,
            stream=stream,
            kind=entry.kind,
            tool=entry.tool or None,
            text=entry.text,
            cost_usd=entry.cost_usd,
            tokens=entry.tokens,
        )


class LogsShape(Struct, frozen=True):
    """What an attempt has printed; `next` is where to go on, and `over` says that nothing more comes behind it."""

    task_id: str
    attempt: int
    lines: list[LogShape]
    next: str
    over: bool


# What attempts at a task have printed: where the files lie, and reading on from where one was.
#
# The command line and the server show it alike. A place in what was printed is a number of bytes for each stream, so
# that whoever asks again, also another process, goes on there.

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class PrintedPlace(msgspec.Struct, frozen=True):
    """How far an attempt's streams were read, in bytes."""

    stdout: int = 0
    stderr: int = 0


class PrintedLines(msgspec.Struct, frozen=True):
    """Lines, where to go on, and whether nothing more can come."""

    lines: list[tuple[Stream, bytes]]
    place: PrintedPlace
    over: bool


class PrintedLog:
    """What the attempts at one task have printed."""

    def __init__(self, home: Path, task: Task) -> None:
        self._home = StateDir(home)
        self._task = task

    def attempts(self) -> dict[int, dict[str, Path]]:
        """The files of each attempt; a step of a flow has them in the folder of its run."""
        task = self._task
        places = [LogPlace(self._home.transcripts, f"{task.id}.")]
        if task.run is not None:
            from allswell.flows.run.folder import find_base

            with contextlib.suppress(Refused):
                base = find_base(self._home.folder, task.run)
                if base is not None:
                    places += [LogPlace(base.llm, f"{task.name}-"), LogPlace(base.llm, f"{task.id}.")]
        return log_files(places)

    def is_running(self, attempt: int) -> bool:
        """Whether an attempt is in flight here."""
        return is_running(self._home.attempts, self._task.id, attempt)

    def read(self, attempt: int, place: PrintedPlace, most: int) -> PrintedLines:
        """What an attempt has printed behind a place, about so many bytes of each stream at most."""
        running = self.is_running(attempt)  # asked first: what it prints until its end is then there to be read
        files = self.attempts().get(attempt, {})
        lines: list[tuple[Stream, bytes]] = []
        read: dict[Stream, int] = {}
        full = False
        for stream in STREAMS:
            begin = getattr(place, stream)
            read[stream] = begin
            with _opened(files.get(stream), begin) as reader:
                if reader is not None:
                    lines += [(stream, line) for line in reader.lines(over=not running, most=most)]
                    read[stream] = reader.place
                    full = full or read[stream] - begin >= most
        return PrintedLines(lines, PrintedPlace(read["stdout"], read["stderr"]), not running and not full)


@contextlib.contextmanager
def _opened(path: Path | None, place: int) -> Iterator[LogReader | None]:
    try:
        reader = None if path is None else LogReader(path, place)
    except FileNotFoundError:
        reader = None  # it was empty, and has ended just now
    except OSError as error:
        raise Refused("no_log", f"{path} cannot be read: {error.strerror or error}", where="TASK") from None
    try:
        yield reader
    finally:
        if reader is not None:
            reader.close()
