"""The log of a task on the whole screen, attempt by attempt."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from allswell.domain.task import Task
from allswell.doors.cli.render import plain
from allswell.doors.cli.watching.log_view import LogView


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
