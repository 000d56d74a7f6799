"""All keys, and what they do."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("↑ ↓  j k", "choose another row; Page up, Page down, Home, End go further"),
    ("1 2 3 4", "the first of the problems, questions, agents, tasks"),
    ("Tab", "to the text about it, to scroll there; and back"),
    ("Enter  l", "read its log, as it is printed; in it, p and n show earlier and later attempts, f goes to the end"),
    ("a", "answer: a question, or what a task waits for"),
    ("r", "retry: hand over again what has ended, as a new task"),
    ("c", "cancel: call a task off; you are asked first"),
    ("d", "dismiss: it was seen, and needs nobody any more"),
    ("/", "show only what has a text in its name, id, role or holder; ended tasks, too. Esc shows all again"),
    ("?", "this page"),
    ("q", "leave; nothing stops because of it"),
)
_WORDS = (
    "Problems stand first, then questions, agents and tasks.",
    "“next” counts down to a limit, the end for want of progress, a check-in that is due, a retry, the end of a pause.",
    "Whoever has the watch open also sweeps: what falls due happens while you look.",
)


class HelpScreen(ModalScreen[None]):
    """The keys on a page."""

    CSS = """
    HelpScreen { align: center middle; }
    #help { width: 90%; max-width: 100; height: auto; max-height: 90%; padding: 1 2; background: $surface;
            border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        """One text."""
        text = Text("Keys\n", "bold")
        for keys, does in KEYS:
            text.append(f"  {keys:<10}", "cyan").append(f"{does}\n")
        text.append("\n" + "\n".join(_WORDS))
        with VerticalScroll(id="help"):
            yield Static(text)
