"""Two ways to show the night: a table that changes before your eyes, or a line for each thing that happens."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from allswell.engine.explaining.telling import MARKS, tell
from allswell.engine.explaining.words import clean, quoted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from allswell.domain.journal import Entry
    from allswell.domain.listing import TaskRow
    from allswell.domain.question import Question

ANSWER = "The one in schema public."
PATIENCE = 20.0
"""How long the demo waits for you before it answers itself, in seconds."""
_STATES = {"held": "cyan", "ready": "green", "waiting": "bold yellow", "delayed": "bright_black", "done": "green"}
_LAST = 8
_SHOWN_NOT = ("task_submitted", "task_checked_in", "task_repeated_timeout")


class Face(Protocol):
    """How the night is shown, and how a question is answered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def told(self, entry: Entry, name: str, started: int) -> None:
        """Something has happened."""
        ...

    def show(self, rows: list[tuple[str, TaskRow]]) -> None:
        """How every task stands now, with its state."""
        ...

    def ask(self, question: Question) -> str | None:
        """The answer, once there is one."""
        ...


def sentence(entry: Entry, name: str, started: int) -> str:
    """One event as a line."""
    mark = MARKS.get(entry.event.kind, " ")
    return f"{(entry.at - started) / 1000:6.2f} s  {mark} {clean(name, 24):<22} {tell(entry.event)}"


class Lines:
    """A line for each event; questions are answered by themselves."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._asked: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put back."""

    def told(self, entry: Entry, name: str, started: int) -> None:
        """Print it, unless only the end is wanted."""
        if not self._quiet:
            print(sentence(entry, name, started), flush=True)

    def show(self, rows: list[tuple[str, TaskRow]]) -> None:
        """Lines need no picture."""

    def ask(self, question: Question) -> str | None:
        """Nobody is there: the answer comes by itself, after a moment."""
        del question
        self._asked = self._asked or time.monotonic()
        return ANSWER if time.monotonic() - self._asked > 1 else None


class Screen:
    """A live table, the last few events, and a line to type the answer into."""

    def __init__(self, console: Console, patience: float = PATIENCE) -> None:
        self._console = console
        self._patience = patience
        self._events: list[str] = []
        self._rows: list[tuple[str, TaskRow]] = []
        self._question: Question | None = None
        self._asked = 0.0
        self._typed = ""
        self._entered: str | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def told(self, entry: Entry, name: str, started: int) -> None:
        """Keep it for the lower half."""
        if entry.event.kind not in _SHOWN_NOT:
            self._events = [*self._events, sentence(entry, name, started)][-_LAST:]

    def pressed(self, key: str) -> None:
        """A key, while a question is open."""
        if self._question is None:
            return
        if key in "\r\n":
            self._entered = self._typed.strip() or ANSWER
        elif key in "\x7f\b":
            self._typed = self._typed[:-1]
        elif key.isprintable() and len(self._typed) < 200:
            self._typed += key
            self._asked = time.monotonic()  # whoever types is not hurried

    def ask(self, question: Question) -> str | None:
        """What was typed, or the demo's own answer when nobody types for a while."""
        if self._question is None:
            self._question, self._asked, self._typed, self._entered = question, time.monotonic(), "", None
        answer = self._entered
        if answer is None and time.monotonic() - self._asked > self._patience:
            answer = ANSWER
        if answer is not None:
            self._question = None
        return answer

    def show(self, rows: list[tuple[str, TaskRow]]) -> None:
        """Draw everything anew."""
        self._rows = rows
        if self._live is not None:
            self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """The table, the last events, and the question if there is one."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bright_black", padding=(0, 2, 0, 0))
        for title in ("task", "state", "held by", "attempt", "progress"):
            table.add_column(title, no_wrap=True, overflow="ellipsis")
        for state, row in self._rows:
            lease, task = row.lease, row.task
            progress = 1.0 if state == "done" else (lease.progress or 0.0) if lease is not None else 0.0
            table.add_row(
                Text(clean(task.name, 40)),
                Text("asks you" if state == "waiting" else state, _STATES.get(state, "")),
                Text("" if lease is None else clean(lease.agent, 20)),
                Text(str(task.record.token + (lease is not None)) if task.record.token or lease else ""),
                Text("━" * round(progress * 16), "green" if state == "done" else "cyan"),
            )
        lower = [Text(line, overflow="ellipsis", no_wrap=True) for line in self._events]
        parts: list[RenderableType] = [Text("One night, three agents", "bold"), Text(), table, Text(), *lower]
        if self._question is not None:
            left = max(round(self._patience - (time.monotonic() - self._asked)), 0)
            who = clean(self._question.asked_by, 20)
            parts += [
                Text(),
                Text(f"{who} asks you: ", "bold yellow").append(quoted(self._question.text), "default"),
                Text("your answer: ", "yellow").append(self._typed, "bold").append("▌"),
                Text(f"Enter sends it; otherwise {quoted(ANSWER)} goes out in {left} s.", "bright_black"),
            ]
        return Group(*parts)
