"""Deciding something: its options to choose from, and room for words where the chosen one takes any.

Somebody may type on without waiting for the screen, or paste. So the keys that choose are handled before any later key
is handed to a widget ("priority"), and where keys go next is set at once: nothing that was typed goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from allswell.doors.cli.render import harmless, plain
from allswell.doors.shapes.error import ErrorShape
from allswell.errors import AllswellError


class Choice(NamedTuple):
    """One way to decide; `entry` says what may be typed with it, and is empty where nothing may."""

    key: str
    label: str
    entry: str = ""


class DecisionScreen(ModalScreen[str]):
    """Shows what is to be decided; what was decided is done before it closes, or is told and can be put right."""

    CSS = """
    DecisionScreen { align: center middle; }
    #decision { width: 90%; max-width: 100; height: auto; max-height: 90%; padding: 1 2; background: $surface;
                border: round $primary; }
    #said { height: auto; max-height: 10; margin-bottom: 1; }
    #choices { height: auto; max-height: 10; }
    #words { margin-top: 1; }
    #wrong { color: $text-error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("down", "step(1)", show=False, priority=True),
        Binding("enter", "choose", show=False, priority=True),
        Binding("escape", "leave", "Leave it"),
    ]

    def __init__(
        self, title: str, said: str, choices: Sequence[Choice], act: Callable[[str, str], Awaitable[str]]
    ) -> None:
        super().__init__()
        self._title = title
        self._said = said
        self._choices = list(choices)
        self._act = act
        self._acting = False

    def compose(self) -> ComposeResult:
        """Everything there is to see."""
        with Vertical(id="decision"):
            yield Static(Text(plain(self._title), "bold"))
            if self._said:
                with VerticalScroll(id="said", can_focus=False):
                    yield Static(Text(harmless(self._said)))
            wide = max(len(one.key) for one in self._choices)
            prompts = [Option(Text(plain(f"{one.key.ljust(wide)}  {one.label}".strip()))) for one in self._choices]
            yield OptionList(*prompts, id="choices", markup=False)
            yield Input(id="words")
            yield Static("", id="wrong", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """The first one is chosen."""
        self.set_focus(self.query_one("#choices", OptionList))
        self._go_to(0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - as it is called
        """Enter chooses among the options; behind words it is the end of these."""
        return action != "choose" or isinstance(self.focused, OptionList)

    def action_step(self, by: int) -> None:
        """To the next option, or the one before."""
        self._go_to(min(max(self._chosen + by, 0), len(self._choices) - 1))

    @property
    def _chosen(self) -> int:
        return self.query_one("#choices", OptionList).highlighted or 0

    def _go_to(self, index: int) -> None:
        self.query_one("#choices", OptionList).highlighted = index
        self._fit(self._choices[index])

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another option: it may take something else."""
        self._fit(self._choices[event.option_index])

    def _fit(self, choice: Choice) -> None:
        words = self.query_one("#words", Input)
        words.placeholder = choice.entry
        words.display = bool(choice.entry)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click on an option."""
        self._go_to(event.option_index)
        self.action_choose()

    def action_choose(self) -> None:
        """Enter on an option: with words to be said, they come next."""
        choice = self._choices[self._chosen]
        if choice.entry:
            self.set_focus(self.query_one("#words", Input))
        else:
            self.run_worker(self._decide(choice, ""))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter behind the words."""
        await self._decide(self._choices[self._chosen], event.value)

    async def _decide(self, choice: Choice, words: str) -> None:
        if self._acting:
            return
        self._acting = True
        try:
            said = await self._act(choice.key, words)
        except AllswellError as error:
            self.query_one("#wrong", Static).update(Text(plain(ErrorShape.of(error).error.message)))
        except ValueError as error:
            self.query_one("#wrong", Static).update(Text(plain(str(error))))
        else:
            self.dismiss(said)
        finally:
            self._acting = False

    def action_leave(self) -> None:
        """Decide nothing."""
        self.dismiss("")
