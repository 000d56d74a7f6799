"""The live view: what is there above, what is known about the chosen row beside or below it, keys at the bottom."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, RichLog, Static

from allswell.domain.task.model import ENDS, Task, count_in_order
from allswell.engine.status.explanation import many, rough
from allswell.engine.status.live import LiveRow, LiveSection, LiveView, live
from allswell.engine.status.overview import EACH
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.commands.logs import words_of
from allswell.interfaces.cli.commands.status import HEAD_STYLES
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.rendering import harmless, plain
from allswell.interfaces.tui.actions import LEAVE, BoardActions, BoardChoice, DecisionScreen, choices_of, retry_choices
from allswell.interfaces.tui.rows import RowDetails, RowList, in_text, read_about
from allswell.views.fields import ErrorShape
from allswell.views.log import LogShape, OpenLog, PrintedLog, in_words

# What an attempt prints, as it prints it: the same lines as `allswell logs` shows.

_LOOK_EVERY = 0.25
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
        self._open: OpenLog | None = None
        self.attempt: int | None = None
        self.attempts: list[int] = []

    def news(self) -> list[Text]:
        """What is new, in words; begins with a line where another attempt begins."""
        printed = PrintedLog(self._home, self._task)
        self.attempts = sorted(printed.attempts())
        number = self._wanted if self._wanted is not None else max(self.attempts, default=None)
        told: list[Text] = []
        if number != self.attempt and number in self.attempts:
            self.close()
            self.attempt, self._open = number, OpenLog(printed, number)
            told.append(Text(f"attempt {number}", "bold"))
        if self._open is None:
            return told
        new: deque[LogShape] = deque(maxlen=LINES_MOST)
        more = True
        while more:
            read = self._open.read()
            new += in_words(self._task.id, self._open.attempt, read)
            more = read.more
        return [*told, *map(_entry_text, new)]

    def close(self) -> None:
        """Give the files back."""
        if self._open is not None:
            self._open.close()


def _entry_text(entry: LogShape) -> Text:
    """One entry; whatever an agent said is data."""
    said = words_of(entry)
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
                await asyncio.sleep(_LOOK_EVERY)
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


# All keys, and what they do.

KEYS = (
    ("↑ ↓  j k", "choose another row; Page up, Page down, Home, End go further"),
    ("1 2 3 4", "the first of the problems, questions, agents, tasks"),
    ("Tab", "to the details, to scroll there; and back"),
    ("Enter  l", "read its log, as it is printed; in it, p and n show earlier and later attempts, f goes to the end"),
    ("a", "answer: a question, or what a task waits for"),
    ("r", "retry: submit an ended task again, as a new one"),
    ("c", "cancel a task; you are asked first"),
    ("d", "dismiss: mark it as seen"),
    ("/", "search names, ids, roles and agents; ended tasks, too. Esc shows all again"),
    ("?", "this page"),
    ("q", "quit; agents go on"),
)
_WORDS = (
    "Problems come first, then questions, agents and tasks.",
    "“next” counts down to a limit, the end without progress, a check-in that is due, a retry, the end of a pause.",
    "Time limits are enforced while this is open.",
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


EVERY = 1.0
"""Seconds between two looks."""
_SHARE = 10
"""Reading a large store may take at most one part in so many of the time."""
_SLOW = 3.0
"""Seconds after which a store that does not answer is told of."""
_EACH_MOST = 2_000


class WatchApp(App[None]):
    """`allswell watch`, for somebody who sits before it."""

    TITLE = "allswell watch"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - as Textual declares it
        (0, "-narrow"),
        (120, "-wide"),
    ]
    CSS = """
    #head { height: 1; padding: 0 1; }
    #trouble { height: auto; padding: 0 1; background: $error; color: $text; display: none; }
    #filter { height: 1; border: none; padding: 0 1; background: $boost; display: none; }
    RowList { height: 3fr; width: 1fr; }
    #side { height: 2fr; border-top: solid $primary; }
    #about { height: 1fr; padding: 0 1; }
    #side LogView { display: none; }
    .-wide #body { layout: horizontal; }
    .-wide RowList { height: 1fr; width: 3fr; }
    .-wide #side { height: 1fr; width: 2fr; border-top: none; border-left: solid $primary; }
    .-wide #about { height: 1fr; }
    .-wide #side LogView { display: block; height: 1fr; border-top: solid $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,l", "log", "Log", key_display="⏎"),
        Binding("a", "answer", "Answer"),
        Binding("r", "retry", "Retry"),
        Binding("c", "cancel", "Cancel"),
        Binding("d", "dismiss_row", "Dismiss"),
        # Handled before a later key is handed on: what is typed behind it is never taken for other keys of this list.
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("enter", "to_rows", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c,ctrl+d", "quit", "Quit", show=False, priority=True),
        Binding("escape", "unfilter", "Show all", show=False),
        *(Binding(str(number), f"part({number})", show=False) for number in range(1, 5)),
    ]

    def __init__(self, watch: Watch, frame: CliContext) -> None:
        super().__init__()
        self._watch = watch
        self._frame = frame
        self._deeds = BoardActions(watch, frame)
        self._text = ""
        self._each = EACH
        self._seen: LiveView | None = None
        self._seen_at = 0.0
        self._asked_at: float | None = None
        self._trouble = ""
        self._about: RowDetails | None = None
        self._logged: str | None = None
        self._again = asyncio.Event()
        # Held here, and not looked for: what is read may come while the screen is being taken down.
        self.rows = RowList()
        """The list."""
        self._head = Static("", id="head", markup=False)
        self._away = Static("", id="trouble", markup=False)
        self._told_of = Static("", id="told", markup=False)
        self._beside = VerticalScroll(self._told_of, id="about")
        self._log_beside = LogView(frame.home)
        self.readings = 0
        """How often the watch has been read."""

    def compose(self) -> ComposeResult:
        """Everything there is to see."""
        yield self._head
        yield self._away
        yield Input(placeholder="part of a name, an id, a role or an agent; Esc shows all again", id="filter")
        with Container(id="body"):
            yield self.rows
            yield Vertical(self._beside, self._log_beside, id="side")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read, and let the countdowns go."""
        self.rows.focus()
        self._read_on()
        self.set_interval(EVERY, self._tick)

    # --- reading ------------------------------------------------------------------------------------------------------

    @work(group="reading")
    async def _read_on(self) -> None:
        settings = self._frame.settings
        threshold = int(settings.value("stall_threshold") or 0)
        while True:
            self._again.clear()
            self._asked_at = started = time.monotonic()
            try:
                seen = await live(
                    self._watch.views, self._text, self._each, threshold=threshold, place=self._frame.place
                )
                self._trouble = ""
                self._show(seen)
                await self._tell()
            except AllswellError as error:
                self._trouble = _said(error)
            self._asked_at = None
            self.readings += 1
            self._tell_trouble()
            pause = max(EVERY, (time.monotonic() - started) * _SHARE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), pause)

    def look_again(self) -> None:
        """Read at once what is next read anyway."""
        self._again.set()

    def _now(self) -> int:
        """The store's clock, as far as it can be known between two looks."""
        return 0 if self._seen is None else self._seen.now + int((time.monotonic() - self._seen_at) * 1000)

    def _show(self, seen: LiveView) -> None:
        self._seen, self._seen_at = seen, time.monotonic()
        self.rows.show(seen.rows, seen.now, seen.unseen)
        over = seen.verdict
        head = Text(over.headline)
        head.stylize(HEAD_STYLES[over.level])
        counted = ", ".join(f"{count:,} {state}" for state, count in count_in_order(over.counts))
        head.append(f"  {counted or 'no task was submitted yet'}", "not bold default")
        if over.dismissed.questions:
            head.append(f", {many(over.dismissed.questions, 'dismissed question')}", "not bold default")
        head.append(f"  {plain(self._frame.where)}", "not bold dim")
        head.no_wrap, head.overflow = True, "ellipsis"
        self._head.update(head)

    def _tick(self) -> None:
        if self._seen is not None and not self._trouble:
            self.rows.tick(self._now())
        if self._about is not None:
            self._told_of.update(in_text(self._about, self._now()))
        self._tell_trouble()

    def _tell_trouble(self) -> None:
        """Say so while the store is away; what is seen is how things stood then."""
        waited = 0.0 if self._asked_at is None else time.monotonic() - self._asked_at
        trouble = self._trouble or ("it does not answer" if waited > _SLOW else "")
        line = self._away
        line.display = bool(trouble)
        if trouble:
            old = (
                ""
                if self._seen is None
                else f" What you see is {rough(int((time.monotonic() - self._seen_at) * 1000))} old."
            )
            line.update(Text(plain(f"The store cannot be reached: {trouble}; trying again.{old}")))

    # --- what is chosen -----------------------------------------------------------------------------------------------

    def on_row_list_chosen(self) -> None:
        """Another row: tell about that one."""
        self.refresh_bindings()
        self._tell_anew()

    @work(group="about", exclusive=True)
    async def _tell_anew(self) -> None:
        with contextlib.suppress(AllswellError):  # the reading tells of it
            await self._tell()
        self._beside.scroll_home(animate=False)

    async def _tell(self) -> None:
        """Read about what is chosen; in a wide window, follow its log."""
        row = self.rows.chosen
        if row is None:
            self._about = None
            self._told_of.update(Text("Nothing here yet." if not self._text else "Nothing matches.", "dim"))
            self._follow(None)
            return
        about = await read_about(self._watch.views, row, self._frame.place)
        if self.rows.chosen is not None and self.rows.chosen.key == row.key:
            self._about = about
            self._told_of.update(in_text(about, self._now()))
            await self._follow_task(row)

    async def _follow_task(self, row: LiveRow) -> None:
        if row.task != self._logged:
            task = None if row.task is None else await self._watch.task(row.task)
            self._logged = row.task
            self._log_beside.follow(None if task is None else task.task)

    def _follow(self, task: None) -> None:
        self._logged = task
        self._log_beside.follow(task)

    def on_row_list_reached(self) -> None:
        """The end of what is loaded: load more, as far as that goes."""
        if self._seen is not None and self._seen.unseen != 0 and self._each < _EACH_MOST:
            self._each = min(self._each * 2, _EACH_MOST)
            self.look_again()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - as it is called
        """What cannot be done with the chosen row is shown as such."""
        if not self.is_running or len(self.screen_stack) != 1:
            return action in ("quit", "help") if self.is_running else True
        if action in ("filter", "to_rows"):
            return isinstance(self.focused, Input) is (action == "to_rows")
        row = self.rows.chosen
        if action not in _FOR_ROWS:
            return True
        if row is None:
            return None
        fits = {
            "log": row.task is not None,
            "answer": row.question is not None,
            "retry": row.task is not None and (row.state in ENDS),
            "cancel": row.task is not None and row.state not in ENDS,
            "dismiss_row": row.question is not None or (row.task is not None and row.state in (*ENDS, "stopped")),
        }
        return True if fits[action] else None

    def action_part(self, number: int) -> None:
        """The first row of a part."""
        self.rows.go_to(list(LiveSection)[number - 1])

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(HelpScreen())

    def action_filter(self) -> None:
        """Type a text; only what has it is shown."""
        typed = self.query_one("#filter", Input)
        typed.display = True
        self.screen.set_focus(typed)

    def action_unfilter(self) -> None:
        """Show all again."""
        typed = self.query_one("#filter", Input)
        typed.value = ""
        typed.display = False
        self.action_to_rows()

    def action_to_rows(self) -> None:
        """To the rows that were found."""
        self.screen.set_focus(self.rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what was typed so far."""
        if event.input.id == "filter" and event.value.strip() != self._text:
            self._text, self._each = event.value.strip(), EACH
            self.look_again()

    async def _chosen_task(self) -> Task | None:
        """The task that the chosen row is about."""
        row = self.rows.chosen
        found = None if row is None or row.task is None else await self._watch.task(row.task)
        return None if found is None else found.task

    async def action_log(self) -> None:
        """Read the log of what is chosen."""
        task = await self._chosen_task()
        if task is not None:
            self.push_screen(LogScreen(self._frame.home, task))

    async def action_answer(self) -> None:
        """Decide the question that is chosen, or that the chosen task waits for."""
        row = self.rows.chosen
        question = None if row is None else await self._watch.question(row.question or "")
        if question is not None:

            async def act(key: str, words: str) -> str:
                return await self._deeds.answer(question, key, words)

            self._decide(DecisionScreen("You are asked", question.text, choices_of(question), act))

    async def action_cancel(self) -> None:
        """Call the chosen task off, if that is meant."""
        task = await self._chosen_task()
        if task is not None:

            async def act(key: str, words: str) -> str:
                return await self._deeds.cancel(task, words) if key else ""

            said = "Its agent is refused from then on. Tasks that need it are skipped or go on, as they are marked."
            choices = [LEAVE, BoardChoice("cancel", "Cancel it", "reason, or empty")]
            self._decide(DecisionScreen(f"Cancel “{task.name}”?", said, choices, act))

    async def action_retry(self) -> None:
        """Hand the chosen task over again."""
        task = await self._chosen_task()
        if task is not None:

            async def act(key: str, _words: str) -> str:
                return await self._deeds.retry(task, dependents=key == "all") if key else ""

            said = "The new task has its history; this one stays as it is."
            choices = retry_choices(done=task.state == "done")
            self._decide(DecisionScreen(f"Retry “{task.name}”?", said, choices, act))

    async def action_dismiss_row(self) -> None:
        """Note that the chosen row was seen."""
        row = self.rows.chosen
        if row is not None:
            try:
                self._told(await self._deeds.dismiss(row))
            except AllswellError as error:
                self.notify(plain(_said(error)), severity="error", markup=False)

    def _decide(self, screen: DecisionScreen) -> None:
        self.push_screen(screen, self._told)

    def _told(self, said: str | None) -> None:
        """What came of it; the rows are read again at once."""
        if said:
            self.notify(plain(said), markup=False)
            self.look_again()


def _said(error: AllswellError) -> str:
    """What went wrong, and what to do about it."""
    return plain(ErrorShape.of(error).error.message)


_FOR_ROWS = ("log", "answer", "retry", "cancel", "dismiss_row")
