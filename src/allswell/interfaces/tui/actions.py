"""What somebody does from the live view, through the same calls of the watch as the commands of these names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec import Struct
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from allswell.actions.operator import Operator, Performed, human
from allswell.domain.question import DESTRUCTIVE, OptionInput, Question, does, in_order, labelled, takes
from allswell.domain.task.model import Task
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.rendering import harmless, plain
from allswell.views.fields import ErrorShape

if TYPE_CHECKING:
    from allswell.engine.status.live import LiveRow
    from allswell.interfaces.cli.context import CliContext


# Deciding something: its options to choose from, and room for words where the chosen one takes any.
#
# Somebody may type on without waiting for the screen, or paste. So the keys that choose are handled before any later
# key is handed to a widget ("priority"), and where keys go next is set at once: nothing that was typed goes elsewhere.


class BoardChoice(NamedTuple):
    """One way to decide; `entry` says what may be typed with it, and is empty where nothing may.

    `ends` says what is lost by it: then Enter is asked for once more.
    """

    key: str
    label: str
    entry: str = ""
    ends: str = ""


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
        self, title: str, said: str, choices: Sequence[BoardChoice], act: Callable[[str, str], Awaitable[str]]
    ) -> None:
        super().__init__()
        self._title = title
        self._said = said
        self._choices = list(choices)
        self._act = act
        self._acting = False
        self._asked_about: BoardChoice | None = None
        """What Enter was asked for once more."""

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
        self._asked_about = None
        self.query_one("#choices", OptionList).highlighted = index
        self._fit(self._choices[index])

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another option: it may take something else."""
        self._fit(self._choices[event.option_index])

    def _fit(self, choice: BoardChoice) -> None:
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

    async def _decide(self, choice: BoardChoice, words: str) -> None:
        if self._acting:
            return
        if choice.ends and self._asked_about is not choice:
            self._asked_about = choice
            self._tell(f"Really? {choice.ends[:1].upper()}{choice.ends[1:]}. Enter confirms, Esc cancels.")
            return
        self._acting = True
        try:
            said = await self._act(choice.key, words)
        except AllswellError as error:
            self._tell(ErrorShape.of(error).error.message)
        else:
            self.dismiss(said)
        finally:
            self._acting = False

    def _tell(self, words: str) -> None:
        self.query_one("#wrong", Static).update(Text(plain(words)))

    def action_leave(self) -> None:
        """Decide nothing."""
        self.dismiss("")


_ENTRIES = {
    OptionInput.WORDS: "your words",
    OptionInput.REMARK: "a note, or empty",
    OptionInput.TASKS: "the smaller tasks, by name, with ; between them",
    OptionInput.TIME: "how long, such as 30m; empty: twice as long",
    OptionInput.MONEY: "dollars in all; empty: twice as much",
    OptionInput.TOKENS: "tokens in all; empty: twice as many",
}
LEAVE = BoardChoice("", "Leave it as it is")


def choices_of(question: Question) -> list[BoardChoice]:
    """The options of a question, each with what may be said with it."""
    return [
        BoardChoice(
            option.key,
            labelled(option),
            _ENTRIES[takes(option.act)],
            does(option.act) if option.act in DESTRUCTIVE else "",
        )
        for option in in_order(question.options)
    ]


class BoardActions:
    """Does what was decided, and says what came of it. Whatever runs inside an attempt is refused, as everywhere."""

    def __init__(self, watch: Watch, frame: CliContext) -> None:
        self._watch = watch
        self._frame = frame

    async def _perform(self, verb: str, act: Callable[[Operator], Awaitable[Performed[Struct]]]) -> str:
        self._frame.for_humans(verb)
        performed = await act(Operator(self._watch, human(), home=self._frame.home))
        await self._watch.sweep_once()
        return performed.says

    async def answer(self, question: Question, key: str, words: str) -> str:
        """Decide a question."""
        return await self._perform("answer", lambda operator: operator.answer_as_typed(question.id, key, words))

    async def cancel(self, task: Task, reason: str) -> str:
        """Call a task off."""
        return await self._perform("cancel", lambda operator: operator.cancel(task.id, reason))

    async def retry(self, task: Task, *, dependents: bool) -> str:
        """Hand a task over again, even if it is done: whoever chose that was told so."""
        return await self._perform("retry", lambda operator: operator.retry(task.id, dependents=dependents, again=True))

    async def dismiss(self, row: LiveRow) -> str:
        """Note that it was seen: the question, or how the task ended."""
        about = row.question or row.task
        if about is None:
            raise Refused("not_a_task", "only a question or a task can be dismissed", where="row")
        return await self._perform("dismiss", lambda operator: operator.dismiss(about))


def retry_choices(*, done: bool) -> Sequence[BoardChoice]:
    """How a task can be handed over again."""
    first = "It is done: submit it again" if done else "Submit it again"
    return [BoardChoice("retry", first), BoardChoice("all", "… with tasks that were skipped because of it"), LEAVE]
