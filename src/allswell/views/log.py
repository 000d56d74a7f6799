"""Logs of attempts: finds the files, reads on from a cursor, and turns lines into entries that a person reads."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec
from msgspec import Struct

from allswell.domain.agents.conversation import LogEntry, LogKind, entries_of
from allswell.domain.task.model import Task, TaskRow
from allswell.engine.status.explanation import many
from allswell.errors import Refused
from allswell.runtime.attempt.output import GROWING_MOST, LogPlace, LogReader, is_running, log_files
from allswell.runtime.receipts import StateDir


class LogShape(Struct, frozen=True):
    """A line of text, a message, a tool call, its result, or the end of a turn; costs only where the line has some."""

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

    @classmethod
    def of(cls, task: str, attempt: int, read: PrintedLines) -> LogsShape:
        """Lines of an attempt, each as what it says."""
        return cls(task, attempt, in_words(task, attempt, read), cursor_of(attempt, read.place), read.over)


def in_words(task: str, attempt: int, read: PrintedLines) -> list[LogShape]:
    """The entries in lines. Megabytes of them take seconds to parse: a server calls this in a thread."""
    return [LogShape.of(entry, task, attempt, stream) for stream, entry in entries_of(read.lines)]


# Where the files of attempts lie, and reading on from a cursor.
#
# Command line, live view and server read logs here. A cursor has the number of bytes read of each stream, so that the
# next call, also in another process, goes on there.

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class PrintedPlace(msgspec.Struct, frozen=True):
    """How far an attempt's streams were read, in bytes."""

    stdout: int = 0
    stderr: int = 0


BEGINNING = PrintedPlace()
PIECE = 1 << 20
"""Bytes of each stream that are read at once."""


def cursor_of(attempt: int, place: PrintedPlace) -> str:
    """A place in what an attempt has printed, as text."""
    return f"{attempt}.{place.stdout}.{place.stderr}"


def _place_of(cursor: str) -> tuple[int, PrintedPlace]:
    parts = cursor.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 12 for part in parts):
        text = f"{cursor[:40]!r} is not a place in what was printed; give the `next` of a page"
        raise Refused("bad_cursor", text, where="after")
    attempt, stdout, stderr = map(int, parts)
    return attempt, PrintedPlace(stdout, stderr)


class PrintedLines(msgspec.Struct, frozen=True):
    """Lines, and where to go on."""

    lines: list[tuple[Stream, bytes]]
    place: PrintedPlace
    over: bool
    """Whether nothing more can come."""
    more: bool
    """Whether there is more already: a piece was full."""
    held_back: bool
    """Whether there is more than can be read before the attempt has ended."""


class PrintedLog:
    """What the attempts at one task have printed."""

    def __init__(self, home: Path, task: Task) -> None:
        self._home = StateDir(home)
        self._task = task

    def attempts(self) -> dict[int, dict[str, Path]]:
        """The files of each attempt; a step of a flow has them in the folder of its run."""
        task = self._task
        places = [LogPlace(folder, f"{task.id}.") for folder in (self._home.shown, self._home.transcripts)]
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

    def open(self, attempt: int | None, after: str = "", *, held: int | None) -> OpenLog:
        """What an attempt has printed: behind `after`, or from its beginning; without a number, the last attempt.

        `held` is the one that runs by the store.
        """
        attempts = self.attempts()
        number, place = _place_of(after) if after else (attempt, BEGINNING)
        if number is None:
            number = max(attempts, default=0)
        if number not in attempts:
            raise self._nothing(attempt, held or 0)
        return OpenLog(self, number, place)

    def before(
        self, attempt: int, upto: int | None, most: int, *, over: bool
    ) -> tuple[list[tuple[Stream, bytes]], int, int]:
        """The last `most` bytes of each stream of an attempt: its lines, and where standard output begins and ends.

        With `upto`, the lines before that byte of standard output, and nothing of standard error.
        """
        lines: list[tuple[Stream, bytes]] = []
        begin = end = 0
        files = self.attempts().get(attempt, {})
        for stream in STREAMS:
            path = files.get(stream)
            if path is not None and (upto is None or stream == "stdout"):
                with contextlib.suppress(OSError):
                    some, start, stop = _before(path, upto, most, over=over)
                    lines += [(stream, line) for line in some]
                    begin, end = (start, stop) if stream == "stdout" else (begin, end)
        return lines, begin, end

    def _nothing(self, attempt: int | None, held: int) -> Refused:
        task = self._task
        begun = max(task.record.token, held)
        if not begun:
            text = f"{task.name} has printed nothing: no attempt has begun; `allswell why {task.id}` says why"
        elif attempt is not None and attempt > begun:
            text = f"{task.name} has had {many(begun, 'attempt')}, and no attempt {attempt}"
        else:
            text = (
                f"nothing is kept here of what attempt {attempt or begun} at {task.name} printed: it printed nothing,"
                " it ended well under `allswell run`, of which the newest are kept, or it ran elsewhere"
            )
        return Refused("no_log", text, where="task")


class OpenLog:
    """What one attempt prints, read on from a place. Its files stay open: one that ends well takes them away."""

    def __init__(self, log: PrintedLog, attempt: int, place: PrintedPlace = BEGINNING) -> None:
        self._log = log
        self._begin = place
        self._readers: dict[Stream, LogReader] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.attempt = attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the files back, once a thread that reads them has its piece."""
        with self._lock:
            self._closed = True
            for reader in self._readers.values():
                reader.close()

    def read(self, *, partial: bool = False) -> PrintedLines:
        """What is new, a piece of each stream at most; what was printed as errors comes behind the rest.

        With `partial`, a line that has no end yet is shown as well, and read no further.
        """
        with self._lock:
            return self._read(partial=partial)

    def _read(self, *, partial: bool) -> PrintedLines:
        running = self._log.is_running(self.attempt)  # asked first: what it prints until its end is then there
        lines: list[tuple[Stream, bytes]] = []
        full = held_back = False
        for stream in STREAMS:
            reader = None if self._closed else self._reader(stream)
            if reader is not None and not full:
                begin = reader.place
                lines += [(stream, line) for line in reader.lines(over=partial or not running, most=PIECE)]
                full = reader.place - begin >= PIECE
                held_back = held_back or (running and reader.too_long)
        place = PrintedPlace(*(self._place(stream) for stream in STREAMS))
        return PrintedLines(lines, place, not running and not full, full, held_back)

    def tail(self, last: int | None, *, partial: bool = False) -> PrintedLines:
        """The new lines: the first piece of them, or with `last` the last so many of all."""
        read = self.read(partial=partial)
        if last is None:
            return read
        kept = deque(read.lines, maxlen=last)
        while read.more:
            read = self.read(partial=partial)
            kept.extend(read.lines)
        return msgspec.structs.replace(read, lines=list(kept))

    def _place(self, stream: Stream) -> int:
        reader = self._readers.get(stream)
        begin: int = getattr(self._begin, stream)
        return begin if reader is None else reader.place

    def _reader(self, stream: Stream) -> LogReader | None:
        path = None if stream in self._readers else self._log.attempts().get(self.attempt, {}).get(stream)
        try:
            if path is not None:
                self._readers[stream] = LogReader(path, self._place(stream))
        except FileNotFoundError:
            pass  # it was empty, and has ended just now
        except OSError as error:
            raise Refused("no_log", f"{path} cannot be read: {error.strerror or error}", where="task") from None
        return self._readers.get(stream)


class LogPage(NamedTuple):
    """A piece of what an attempt has printed: what it says, or its very bytes."""

    attempt: int
    lines: Sequence[LogShape | bytes]
    next: str
    over: bool
    more: bool
    """Whether the next piece is there already."""
    held_back: bool = False
    """Whether there is more than can be read before the attempt has ended."""


class KeptLog:
    """The log of one task's attempts, page by page, as it lies on this machine; files stay open from page to page.

    With `raw`, lines are the very bytes.
    """

    every = 0.2
    """Seconds between two looks for more."""

    def __init__(self, home: Path, *, raw: bool = False) -> None:
        self._home = home
        self._raw = raw
        self._open: OpenLog | None = None

    async def page(
        self, row: TaskRow, attempt: int | None, after: str = "", *, limit: int | None, partial: bool = False
    ) -> LogPage:
        """What an attempt, or the last one, has printed: behind `after`, or else its last lines, `limit` of them.

        With `partial`, a line that has no end yet is shown as well.
        """
        if self._open is None or not after:
            self.close()
            held = None if row.lease is None else row.lease.token
            self._open = PrintedLog(self._home, row.task).open(attempt, after, held=held)
        number, read = self._open.attempt, self._open.tail(None if after else limit, partial=partial)
        lines = [line for _, line in read.lines] if self._raw else in_words(row.task.id, number, read)
        return LogPage(number, lines, cursor_of(number, read.place), read.over, read.more, read.held_back)

    def close(self) -> None:
        """Give back what was opened."""
        if self._open is not None:
            self._open.close()


class ServedLog(KeptLog):
    """The same, asked from the server that has the store; nothing stays open."""

    every = 1.0

    def __init__(self, ask: Callable[[str, type[LogsShape]], Awaitable[LogsShape]]) -> None:
        super().__init__(Path())
        self._ask = ask

    async def page(
        self, row: TaskRow, attempt: int | None, after: str = "", *, limit: int | None, partial: bool = False
    ) -> LogPage:
        """What an attempt, or the last one, has printed; a server shows lines that have no end, too."""
        del partial
        wanted = [f"limit={limit or _SERVED_MOST}"]
        wanted += [] if attempt is None else [f"attempt={attempt}"]
        wanted += [f"after={after}"] if after else []
        page = await self._ask(f"/tasks/{row.task.id}/log?{'&'.join(wanted)}", LogsShape)
        return LogPage(page.attempt, page.lines, page.next, page.over, bool(after and page.lines))


_SERVED_MOST = 10_000
"""Lines of a server's answer."""


def _before(path: Path, upto: int | None, most: int, *, over: bool) -> tuple[list[bytes], int, int]:
    """The lines before a place, or before the end; and where they begin and end."""
    size = path.stat().st_size
    stop = min(size if upto is None else upto, size if over else GROWING_MOST)
    start = max(stop - most, 0)
    reader = LogReader(path, start)
    try:
        lines: list[bytes] = []
        place = start
        for line in reader.lines(over=over, most=stop - start):
            place += len(line) + 1
            if place > stop + 1:
                break
            lines.append(line)
    finally:
        reader.close()
    if start and lines:
        start += len(lines[0]) + 1  # the place was in the middle of it
        del lines[0]
    return lines, start, stop
