"""What an attempt prints, as it prints it: the same lines as `allswell logs` shows."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, RichLog, Static

from allswell.domain.agents.log import LogEntry, entries
from allswell.domain.ids import TaskId
from allswell.domain.task.model import Task
from allswell.errors import Refused
from allswell.interfaces.cli.commands.logs import OpenLog, Stream, files_of, words_of
from allswell.interfaces.cli.rendering import harmless, plain
from allswell.runtime.attempt.output import LogReader, is_running
from allswell.runtime.receipts import StateDir

EVERY = 0.25
"""Seconds between two looks at the files."""
LINES_MOST = 2_000
"""How many lines are kept to be scrolled through; `allswell logs` has all."""
_STYLES = {"held": "cyan", "dim": "dim", "failed": "bold red", "bold": "bold", "warn": "yellow", "": ""}
NOTHING = "No output is kept here: it printed nothing yet, or it ran on another machine."


class AttemptLog:
    """The files of one attempt at a task, read as they grow; with no attempt named, the newest there is."""

    def __init__(self, home: Path, task: Task, attempt: int | None) -> None:
        self._home = home
        self._task = task
        self._wanted = attempt
        self._files = ExitStack()
        self._readers: list[tuple[Stream, LogReader]] = []
        self.attempt: int | None = None
        self.attempts: list[int] = []

    def news(self) -> list[Text]:
        """What is new, in words; begins with a line where another attempt begins."""
        found = files_of(self._home, self._task)
        self.attempts = sorted(found)
        number = self._wanted if self._wanted is not None else max(found, default=None)
        told: list[Text] = []
        if number != self.attempt and number in found:
            self.close()
            self._readers = self._files.enter_context(OpenLog(found[number]))
            self.attempt = number
            told.append(Text(f"attempt {number}", "bold"))
        if self.attempt is None:
            return told
        over = not is_running(StateDir(self._home).attempts, TaskId(self._task.id), self.attempt)
        for stream, reader in self._readers:
            new = deque(reader.lines(over=over), maxlen=LINES_MOST)
            told += [in_text(entry, stream) for line in new for entry in entries(line)]
        return told

    def close(self) -> None:
        """Give the files back."""
        self._files.close()
        self._files, self._readers = ExitStack(), []


def in_text(entry: LogEntry, stream: str) -> Text:
    """One entry; whatever an agent said is data."""
    said = words_of(entry, stream)
    shown = harmless(said.text)
    if not said.mark:
        return Text(shown, _STYLES[said.style])
    text = Text(f"{said.mark} ", _STYLES[said.mark_style])
    return text.append(shown.replace("\n", "\n  "), _STYLES[said.style])


class LogView(RichLog):
    """Follows the log of one task; stays where somebody has scrolled to, and goes on at its end otherwise."""

    def __init__(self, home: Path) -> None:
        super().__init__(max_lines=LINES_MOST, min_width=0, wrap=True, highlight=False, markup=False)
        self._home = home
        self._said: deque[Text] = deque(maxlen=LINES_MOST)
        self._drawn_at = 0
        self.log_of: AttemptLog | None = None
        """What is followed."""

    def follow(self, task: Task | None, attempt: int | None = None) -> None:
        """Follow this task from now on, or none."""
        self.clear()
        self._said.clear()
        self.auto_scroll = True
        self.workers.cancel_node(self)
        if task is not None:
            self._follow(AttemptLog(self._home, task, attempt))

    @work(exclusive=True)
    async def _follow(self, log: AttemptLog) -> None:
        self.log_of = log
        try:
            first = True
            while True:
                try:
                    told = await asyncio.to_thread(log.news)
                except (Refused, OSError) as error:
                    told = [Text(harmless(str(error)), "red")] if first else []
                if first and not told:
                    self.write(Text(NOTHING, "dim"))
                elif told and not self._said:
                    self.clear()
                for text in told:
                    self._add(text)
                first = False
                await asyncio.sleep(EVERY)
        finally:
            log.close()

    def _add(self, text: Text) -> None:
        self._said.append(text)
        self.write(text.copy(), scroll_end=self.is_vertical_scroll_end)

    def on_resize(self, event: Resize) -> None:
        """What was broken to another width is broken anew."""
        super().on_resize(event)
        if self._said and self._drawn_at != self.size.width:
            at_end = self.is_vertical_scroll_end
            self.clear()
            for text in self._said:
                self.write(text.copy(), scroll_end=at_end)
        self._drawn_at = self.size.width


# The log of a task on the whole screen, attempt by attempt.


class LogScreen(Screen[None]):
    """Reads one task's log."""

    CSS = "LogScreen #title { height: 1; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("p", "other(-1)", "Earlier attempt"),
        Binding("n", "other(1)", "Later attempt"),
        Binding("f", "end", "To the end"),
    ]

    def __init__(self, home: Path, task: Task) -> None:
        super().__init__()
        self._about_task = task
        self._view = LogView(home)

    def compose(self) -> ComposeResult:
        """Its name above it, and the keys below."""
        yield Static(Text(plain(f"{self._about_task.name}  {self._about_task.id}"), "bold", no_wrap=True), id="title")
        yield self._view
        yield Footer()

    def on_mount(self) -> None:
        """Begin with the newest attempt."""
        self._view.follow(self._about_task)
        self._view.focus()

    def action_other(self, by: int) -> None:
        """Another attempt, if there is one."""
        known = self._view.log_of
        if known is None or known.attempt is None:
            return
        others = [one for one in known.attempts if (one - known.attempt) * by > 0]
        if others:
            self._view.follow(self._about_task, min(others) if by > 0 else max(others))

    def action_end(self) -> None:
        """To the end, and on from there."""
        self._view.scroll_end(animate=False)
