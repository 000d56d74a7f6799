"""`logs`: what an attempt has printed, lines of agents' protocols made readable; `-f` goes on as it prints."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, NamedTuple

from allswell.domain.ids import TaskId
from allswell.domain.task.model import OPEN, TaskRow
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, Exit, encoded, flush, remark, write
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import block, paint

if TYPE_CHECKING:
    from allswell.store.views import Views
    from allswell.views.log import KeptLog, LogPage, LogShape


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


def words_of(entry: LogShape) -> LogText:
    """One entry; of what a tool brought, the beginning."""
    kind, text = str(entry.kind), entry.text
    if kind in ("text", "message"):
        return LogText("", "", text, "warn" if kind == "text" and entry.stream == "stderr" else "")
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


_ASKED_EVERY = 1.0
"""Seconds between two looks at the store."""
_APPEARS = 10.0
"""Seconds after which an attempt that is held prints nothing here, if it has not begun to."""


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
    *,
    context: CliContext,
) -> None:
    """Show what an attempt has printed: messages, tool calls and their results, costs.

    Lines of Claude Code (`--output-format stream-json`) and of Codex (`exec --json`) are made readable; other lines are
    shown as they were printed. With --json, one object on each line. Of more than 16 MiB, beginning and end are kept.
    """
    if raw and context.json:
        raise Refused("usage", "--raw is what was printed, and --json what it means: choose one", where="--raw")
    log = context.artifacts.log(raw=raw)
    if what.startswith("rc_"):
        from allswell.domain.receipts.receipt import attempt_of_receipt, task_of_receipt

        attempt, what = attempt or attempt_of_receipt(what), task_of_receipt(what)
    printer = _AttemptPrinter(context, log, what, limit)
    try:
        if follow:
            printer.follow(attempt)
        else:
            printer.once(attempt)
    except KeyboardInterrupt:
        context.leave(Exit.INTERRUPTED)
    finally:
        log.close()


class _AttemptPrinter:
    """Tells the attempts of one task, which are kept beside the store or where its server is."""

    def __init__(self, context: CliContext, log: KeptLog, what: str, limit: int | None) -> None:
        self._context = context
        self._log = log
        self._limit = limit
        self._row = self._look(what)
        self._task: TaskId = self._row.task.id

    # --- finding ------------------------------------------------------------------------------------------------------

    def _look(self, what: str) -> TaskRow:
        async def work(views: Views) -> TaskRow:
            from allswell.engine.lookup import find_task

            row = await views.view_task(await find_task(views, what))
            assert row is not None  # noqa: S101 - it was just found, and tasks are never deleted
            return row

        return self._context.look(work)

    @property
    def _held(self) -> int | None:
        """The attempt that runs, by the store."""
        return None if self._row.lease is None else self._row.lease.token

    def _page(self, attempt: int | None, after: str = "", *, partial: bool = False) -> LogPage:
        return self._context.beside(self._log.page(self._row, attempt, after, limit=self._limit, partial=partial))

    # --- telling ------------------------------------------------------------------------------------------------------

    def once(self, attempt: int | None) -> None:
        """What there is."""
        page = self._page(attempt, partial=True)
        self._tell(page)
        while page.more:
            page = self._page(page.attempt, page.next, partial=True)
            self._tell(page)

    def follow(self, attempt: int | None) -> None:
        """What there is, and what comes, attempt after attempt; one alone if it was named."""
        number = self._held if attempt is None else attempt
        while True:
            number = self._follow_one(number) or number
            if attempt is not None:
                return
            self._limit = None
            while (following := self._next(number or 0)) is None:
                if self._row.task.state != OPEN:
                    return
                if self._row.asks:
                    remark(f"allswell: it waits for a human; see `allswell why {self._task}`")
                    return
                flush()
                time.sleep(_ASKED_EVERY)
            number = following

    def _next(self, number: int) -> int | None:
        self._row = self._look(self._task)
        return self._held if self._held is not None and self._held > number else None

    def _follow_one(self, number: int | None) -> int | None:
        """One attempt, or the last one, to its end; which it was, if anything of it is kept here."""
        page = self._first_page(number)
        if page is None:
            return None
        told, warned = 0, False
        while True:
            self._tell(page)
            told += len(page.lines)
            if page.over:
                break
            if page.held_back and not warned:
                remark("allswell: it has printed very much; the rest is shown when it has ended")
                warned = True
            if not page.more:
                flush()
                time.sleep(self._log.every)
            page = self._page(page.attempt, page.next)
        if not told:
            self._context.remark(f"allswell: attempt {page.attempt} has printed nothing")
        return page.attempt

    def _first_page(self, number: int | None) -> LogPage | None:
        """The first piece of an attempt that may be about to begin; None where it prints nothing here."""
        until = time.monotonic() + _APPEARS
        while True:
            try:
                return self._page(number)
            except Refused as error:
                if error.code != "no_log":
                    raise
            self._row = self._look(self._task)
            if number is None or self._held != number:
                return None
            if time.monotonic() >= until:
                text = f"attempt {number} runs elsewhere, or prints nothing: its output is not here"
                remark(f"allswell: {text}; `allswell show {self._task}` shows who holds it")
                return None
            time.sleep(self._log.every)

    def _tell(self, page: LogPage) -> None:
        for line in page.lines:
            if isinstance(line, bytes):
                _print(line)
            else:
                write((encoded(line) if self._context.json else entry_text(line)) + "\n")


def entry_text(entry: LogShape) -> str:
    """One entry in words; whatever an agent said is data."""
    said = words_of(entry)
    if not said.mark:
        return _painted(block(said.text), said.style)
    shown = block(said.text, "  ") or "  "
    return paint(said.mark, said.mark_style) + _painted(shown[1:], said.style)


def _print(line: bytes) -> None:
    """To a pipe as it is, for other programs; at a terminal nothing in it can do harm."""
    if sys.stdout.isatty():
        write(block(line.decode("utf-8", "backslashreplace")) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(line + b"\n")


def _painted(text: str, style: str) -> str:
    return "\n".join(paint(line, style) for line in text.split("\n")) if style else text
