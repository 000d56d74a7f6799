"""`logs`: what an attempt has printed, lines of agents' protocols made readable; `-f` goes on as it prints."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit, encoded, flush, remark, write
from allswell.interfaces.cli.options import Argument, Json, Option, Store
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import block, paint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from allswell.domain.agents.log import LogEntry
    from allswell.domain.ids import TaskId
    from allswell.domain.task.model import Task, TaskRow
    from allswell.runtime.attempt.output import LogReader
    from allswell.store.views import Views
    from allswell.views.log import LogsShape


# The files with what the attempts at a task have printed, found beside the store and opened to be read.

Stream = Literal["stdout", "stderr"]


def files_of(home: Path, task: Task) -> dict[int, dict[str, Path]]:
    """The files of each attempt; a step of a flow has them in the folder of its run."""
    from allswell.views.log import PrintedLog

    return PrintedLog(home, task).attempts()


class OpenLog:
    """The files of an attempt, open for as long as they are read; stdout first."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files
        self.readers: list[tuple[Stream, LogReader]] = []

    def __enter__(self) -> list[tuple[Stream, LogReader]]:
        from allswell.runtime.attempt.output import LogReader

        names: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in names:
            if stream in self._files:
                try:
                    self.readers.append((stream, LogReader(self._files[stream])))
                except FileNotFoundError:
                    continue  # it was empty, and has ended just now
                except OSError as error:
                    self.__exit__()
                    text = f"{self._files[stream]} cannot be read: {error.strerror or error}"
                    raise Refused("no_log", text, where="TASK") from None
        return self.readers

    def __exit__(self, *raised: object) -> None:
        for _, reader in self.readers:
            reader.close()


# One thing that an attempt has printed, as it is shown: its mark, its words, and how they are painted.

RESULT_LINES = 12
"""Lines of what a tool brought that are shown to a person."""
_MARKS = {"tool": ("→", "held"), "result": (" ", "dim"), "error": ("✗", "failed"), "note": ("·", "dim")}
_MARKS |= {"end": ("=", "bold"), "thinking": ("~", "dim")}
_OVER_EVERY_LINE = ("result", "thinking", "note")


class LogText(NamedTuple):
    """An entry in words. Whatever an agent said is data: whoever shows them makes them harmless."""

    mark: str
    """What stands before the first line; empty where nothing does, and nothing is indented."""
    mark_style: str
    text: str
    style: str


def words_of(entry: LogEntry, stream: str) -> LogText:
    """One entry; of what a tool brought, the beginning."""
    kind, text = str(entry.kind), entry.text
    if kind in ("text", "message"):
        return LogText("", "", text, "warn" if kind == "text" and stream == "stderr" else "")
    mark, style = _MARKS[kind]
    if kind in ("result", "error"):
        lines = text.splitlines() or ["(nothing)"]
        if len(lines) > RESULT_LINES:
            more = len(lines) - RESULT_LINES
            text = "\n".join([*lines[:RESULT_LINES], f"… {more:,} more line{'' if more == 1 else 's'}: --raw"])
    if entry.tool:
        text = f"{entry.tool}  {text}".rstrip()
    said = [text]
    if entry.cost_usd is not None:
        said.append(f"${entry.cost_usd:,.4f}")
    if entry.tokens is not None:
        said.append(f"{entry.tokens:,} tokens")
    shown = ", ".join(said) if kind in ("end", "error") else text
    return LogText(mark, style, shown, style if kind in _OVER_EVERY_LINE else "")


_EVERY = 0.2
"""Seconds between two looks at the files."""
_ASKED_EVERY = 1.0
"""Seconds between two looks at the store."""
_APPEARS = 10.0
"""Seconds after which an attempt that is held prints nothing here, if it has not begun to."""
_LINES_MOST = 10_000
"""Lines of a server's answer."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "logs",
        logs,
        "allswell logs t_…                     of its last attempt",
        'allswell logs "write the changelog" -f',
        "allswell logs t_… --attempt 1 --raw   as it was printed",
    )


def logs(
    what: Annotated[
        str,
        Argument(metavar="TASK", help="The task or one of its receipts; a name if only one task has it.", of=("task",)),
    ],
    follow: Annotated[bool, Option("--follow", "-f", help="Keep printing until the task has ended.")] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Number of the attempt. Default: the last.")
    ] = None,
    limit: Annotated[
        int | None, Option("--limit", "-n", metavar="N", min=1, help="Only the last N lines.", show_default=False)
    ] = None,
    raw: Annotated[bool, Option("--raw", help="Exactly as it was printed.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what an attempt has printed: messages, tool calls and their results, costs.

    Lines of Claude Code (`--output-format stream-json`) and of Codex (`exec --json`) are made readable; other lines are
    shown as they were printed. With --json, one object on each line. Of more than 16 MiB, beginning and end are kept.
    """
    if raw and json:
        raise Refused("usage", "--raw is what was printed, and --json what it means: choose one", where="--raw")
    from allswell.views.artifacts import ServerArtifacts

    context = CliContext(store, json=json)
    served = isinstance(context.artifacts, ServerArtifacts)
    if raw and served:
        text = "--raw is what was printed, byte for byte: it is shown where the store is"
        raise Refused("not_remote", text, where="--raw")
    if what.startswith("rc_"):
        from allswell.domain.receipts.receipt import task_of_receipt

        last = what.rpartition(".")[2]
        attempt = attempt or (int(last) if last.isdecimal() else None)
        what = task_of_receipt(what)
    telling = (_RemoteAttemptPrinter if served else _AttemptPrinter)(context, what, limit, raw=raw)
    try:
        if follow:
            telling.follow(attempt)
        else:
            telling.once(attempt)
    except KeyboardInterrupt:
        context.leave(Exit.INTERRUPTED)


class _SeenLines(NamedTuple):
    """How a task stands, and who holds it."""

    row: TaskRow
    held: int | None
    """The attempt that runs, by the store."""

    @property
    def over(self) -> bool:
        return self.row.task.state != "open"

    @property
    def asks(self) -> bool:
        return any(wait.kind == "question" for wait in self.row.waits)


class _AttemptPrinter:
    """Tells the attempts of one task."""

    def __init__(self, context: CliContext, what: str, limit: int | None, *, raw: bool) -> None:
        self._context = context
        self._limit = limit
        self._raw = raw
        self._seen = self._look(what)
        self._task: TaskId = self._seen.row.task.id

    # --- finding ------------------------------------------------------------------------------------------------------

    def _look(self, what: str) -> _SeenLines:
        async def work(views: Views) -> _SeenLines:
            from allswell.engine.lookup import find_task

            row = await views.view_task(await find_task(views, what))
            assert row is not None  # noqa: S101 - it was just found, and tasks are never deleted
            return _SeenLines(row, None if row.lease is None else row.lease.token)

        return self._context.look(work)

    def _files(self) -> dict[int, dict[str, Path]]:
        return files_of(self._context.home, self._seen.row.task)

    def _running(self, attempt: int) -> bool:
        from allswell.runtime.attempt.output import is_running
        from allswell.runtime.receipts import StateDir

        return is_running(StateDir(self._context.home).attempts, self._task, attempt)

    # --- telling ------------------------------------------------------------------------------------------------------

    def once(self, attempt: int | None) -> None:
        """What there is."""
        files = self._files()
        number = attempt if attempt is not None else max(files, default=0)
        if number not in files:
            raise self._nothing(attempt)
        with OpenLog(files[number]) as readers:
            for stream, reader in readers:
                lines: Iterator[bytes] | deque[bytes] = reader.lines(over=True)
                if self._limit is not None:
                    lines = deque(lines, maxlen=self._limit)
                for line in lines:
                    self._tell(line, number, stream)

    def _nothing(self, attempt: int | None) -> Refused:
        task = self._seen.row.task
        begun = max(task.record.token, self._seen.held or 0)
        if not begun:
            text = f"{task.name} has printed nothing: no attempt has begun; `allswell why {task.id}` says why"
        elif attempt is not None and attempt > begun:
            text = f"{task.name} has had {begun} attempt{'' if begun == 1 else 's'}, and no attempt {attempt}"
        else:
            text = (
                f"nothing is kept here of what attempt {attempt or begun} at {task.name} printed: it printed nothing,"
                " it ended well under `allswell run`, which has shown it, or it ran elsewhere"
            )
        return Refused("no_log", text, where="TASK")

    def follow(self, attempt: int | None) -> None:
        """What there is, and what comes, attempt after attempt; one alone if it was named."""
        number = attempt if attempt is not None else max(max(self._files(), default=0), self._seen.held or 0)
        while True:
            if number:
                self._follow_one(number)
            if attempt is not None:
                return
            self._limit = None
            while (following := self._next(number)) is None:
                if self._seen.over:
                    return
                if self._seen.asks:
                    remark(f"allswell: it waits for a human; see `allswell why {self._task}`")
                    return
                flush()
                time.sleep(_ASKED_EVERY)
            number = following

    def _next(self, number: int) -> int | None:
        self._seen = self._look(self._task)
        return self._seen.held if self._seen.held is not None and self._seen.held > number else None

    def _follow_one(self, number: int) -> None:
        """One attempt, to its end."""
        files = self._appear(number)
        if not files:
            return
        told = 0
        with OpenLog(files) as readers:
            first, warned = True, False
            while True:
                over = not self._running(number)
                for stream, reader in readers:
                    lines: Iterator[bytes] | deque[bytes] = reader.lines(over=over)
                    if first and self._limit is not None:
                        lines = deque(lines, maxlen=self._limit)
                    for line in lines:
                        self._tell(line, number, stream)
                        told += 1
                first = False
                if over:
                    break
                if not warned and any(reader.too_long for _, reader in readers):
                    remark("allswell: it has printed very much; the rest is shown when it has ended")
                    warned = True
                flush()
                time.sleep(_EVERY)
        if not told and not self._context.json:
            remark(f"allswell: attempt {number} has printed nothing")

    def _appear(self, number: int) -> dict[str, Path]:
        """The files of an attempt that may be about to begin."""
        until = time.monotonic() + _APPEARS
        while not (files := self._files().get(number, {})):
            self._seen = self._look(self._task)
            if self._seen.held != number:
                break
            if time.monotonic() >= until:
                text = f"attempt {number} runs elsewhere: its output is not here"
                remark(f"allswell: {text}; `allswell show {self._task}` shows who holds it")
                break
            time.sleep(_EVERY)
        return files

    def _tell(self, line: bytes, attempt: int, stream: Stream) -> None:
        from allswell.domain.agents.log import entries

        if self._raw:
            _print(line)
            return
        for entry in entries(line):
            if self._context.json:
                from allswell.views.log import LogShape

                write(encoded(LogShape.of(entry, self._task, attempt, stream)) + "\n")
            else:
                write(_words(entry, stream) + "\n")


class _RemoteAttemptPrinter(_AttemptPrinter):
    """Tells the attempts of a task that are kept where its server is."""

    def once(self, attempt: int | None) -> None:
        """What there is."""
        self._tell_page(self._page(attempt))

    def follow(self, attempt: int | None) -> None:
        """What there is, and what comes, attempt after attempt; one alone if it was named."""
        number, after = attempt, ""
        while True:
            page = self._begun(number, after)
            if page is not None:
                self._tell_page(page)
                number, after, self._limit = page.attempt, page.next, None
                if page.lines and not page.over:
                    continue
            if page is None or page.over:
                if attempt is not None and page is not None:
                    return
                following = self._next(number or 0)
                if following is not None:
                    number, after = following, ""
                elif self._seen.over or self._seen.asks:
                    return
            flush()
            time.sleep(_ASKED_EVERY)

    def _begun(self, attempt: int | None, after: str) -> LogsShape | None:
        try:
            return self._page(attempt, after)
        except Refused as error:
            if error.code != "no_log":
                raise
            return None  # it has printed nothing yet

    def _page(self, attempt: int | None, after: str = "") -> LogsShape:
        from allswell.views.log import LogsShape

        given = [f"limit={self._limit or _LINES_MOST}"]
        given += [] if attempt is None else [f"attempt={attempt}"]
        given += [f"after={after}"] if after else []
        return self._context.beside(self._context.ask(f"/tasks/{self._task}/log?{'&'.join(given)}", LogsShape))

    def _tell_page(self, page: LogsShape) -> None:
        from allswell.domain.agents.log import LogEntry

        for one in page.lines:
            if self._context.json:
                write(encoded(one) + "\n")
            else:
                write(_words(LogEntry(one.kind, one.text, one.tool or "", one.cost_usd, one.tokens), one.stream) + "\n")


def _words(entry: LogEntry, stream: str) -> str:
    """One entry in words; whatever an agent said is data."""
    said = words_of(entry, stream)
    if not said.mark:
        return _painted(block(said.text), said.style)
    shown = block(said.text, "  ") or "  "
    return paint(said.mark, said.mark_style) + _painted(shown[1:], said.style)


def _print(line: bytes) -> None:
    """To a pipe as it is, for other programs; at a terminal nothing in it can do harm."""
    import sys

    if sys.stdout.isatty():
        write(block(line.decode("utf-8", "backslashreplace")) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(line + b"\n")


def _painted(text: str, style: str) -> str:
    return "\n".join(paint(line, style) for line in text.split("\n")) if style else text
