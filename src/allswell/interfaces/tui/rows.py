"""The list of what can be chosen. Only the lines that are seen are drawn, so it does not matter how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple, assert_never

import msgspec
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from allswell.build.overview import why
from allswell.domain.agents.cost import Spent
from allswell.domain.ids import QuestionId
from allswell.domain.question import Question, does, in_order
from allswell.engine.status.explanation import Explanation, SuggestedAction, UpcomingStep, ago, upcoming, within
from allswell.engine.status.live import LiveRow, LiveSection
from allswell.engine.status.verdict import ANYWHERE, LocalFacts
from allswell.interfaces.cli.commands.show import cost_of
from allswell.interfaces.cli.rendering import cut, harmless, in_words, plain, short, typed_here, typed_in, width_of
from allswell.store.views import Views

# How a row is laid out: which columns each part has, how wide they are, and what stands in them.

GAP = 2
_MARKED = {LiveSection.PROBLEM: "!", LiveSection.QUESTION: "?"}
_STYLES = {
    "held": "cyan",
    "ready": "green",
    "waiting": "yellow",
    "delayed": "dim",
    "done": "green",
    "failed": "bold red",
    "nowhere": "bold red",
    "working": "green",
    "spawning": "cyan",
    "quiet": "yellow",
    "waiting for the provider": "yellow",
    "stalled": "bold red",
    "overdue": "bold red",
    "unaccounted": "bold red",
}
_DIM = "dim"


class TableColumn(NamedTuple):
    """A column: what it is called, how wide it is at least, and how much of what is left it gets."""

    title: str
    width: int
    share: int = 0
    right: bool = False


_COLUMNS = {
    LiveSection.PROBLEM: (
        TableColumn("", 20, 4),
        TableColumn("since", 7, right=True),
        TableColumn("next", 9, right=True),
        TableColumn("", 0, 1),
    ),
    LiveSection.QUESTION: (TableColumn("", 20, 4), TableColumn("asked by", 10), TableColumn("since", 7, right=True)),
    LiveSection.AGENT: (
        TableColumn("", 10, 1),
        TableColumn("", 11),
        TableColumn("task", 10, 2),
        TableColumn("next", 9, right=True),
        TableColumn("", 0, 2),
    ),
    LiveSection.TASK: (
        TableColumn("", 16, 2),
        TableColumn("", 8),
        TableColumn("who", 10),
        TableColumn("next", 9, right=True),
        TableColumn("", 0, 3),
    ),
}
"""The columns of each part; the last one of a width of nought is there only where there is room for it."""
_LEAST = 12


def widths(part: LiveSection, room: int) -> list[int]:
    """How wide the columns are in so much room; what does not fit at all is 0."""
    columns = _COLUMNS[part]
    taken = sum(one.width + GAP for one in columns) - GAP
    spare, shares = max(room - 2 - taken, 0), sum(one.share for one in columns)
    found = [one.width + spare * one.share // shares for one in columns]
    if not columns[-1].width and found[-1] < _LEAST:
        found[0] += found[-1] + GAP
        found[-1] = 0
    return found


def heading(part: LiveSection, count: str, room: int) -> str:
    """The line above a part: what it is, how many, and what its columns are."""
    titles = [one.title for one in _COLUMNS[part]]
    titles[0] = f"{part.value.upper()} {count}"
    return _line(titles, part, room)


def pieces(row: LiveRow, now: int, room: int) -> list[tuple[str, str]]:
    """A row as pieces of text, each with its style; together exactly as wide as there is room."""
    due = "" if row.due is None else within(row.due, now).removeprefix("in ").replace(" overdue", " late")
    since = "" if row.since is None else short(max(now - row.since, 0))
    share = "" if row.progress is None else f" {row.progress:.0%}"
    state = _STYLES.get(row.state.partition(":")[0].partition(",")[0], "")
    match row.part:
        case LiveSection.PROBLEM:
            cells = [(row.note or row.name, ""), (since, _DIM), (due, "cyan"), (row.ahead, _DIM)]
        case LiveSection.QUESTION:
            cells = [(row.name, _DIM if row.state == "dismissed" else ""), (row.who or "Allswell", ""), (since, _DIM)]
        case LiveSection.AGENT:
            next_ = row.ahead if row.task is None or row.due is not None else row.note
            cells = [(row.name, ""), (row.state, state), (row.who + share, ""), (due, "cyan"), (next_, _DIM)]
        case LiveSection.TASK:
            mine = "bold yellow" if row.who == "you" else ""
            cells = [(row.name, ""), (row.state, state), (row.who, mine), (due, "cyan"), (row.ahead or row.note, _DIM)]
        case _:
            assert_never(row.part)
    mark = _MARKED.get(row.part, " ")
    shown: list[tuple[str, str]] = [(mark, "bold yellow")]
    for (text, style), one, width in zip(cells, _COLUMNS[row.part], widths(row.part, room), strict=True):
        if width:
            shown.append((" " * (GAP if len(shown) > 1 else 1) + _fitted(plain(text), width, right=one.right), style))
    used = sum(width_of(text) for text, _ in shown)
    return [*shown, (" " * max(room - used, 0), "")]


def _line(cells: list[str], part: LiveSection, room: int) -> str:
    sized = zip(cells, _COLUMNS[part], widths(part, room), strict=True)
    return "  " + (" " * GAP).join(_fitted(text, width, right=one.right) for text, one, width in sized if width)


def _fitted(text: str, width: int, *, right: bool) -> str:
    text = cut(text, width)
    blank = " " * max(width - width_of(text), 0)
    return blank + text if right else text + blank


class RowList(ScrollView, can_focus=True):
    """Rows under the headings of their parts; one of them is chosen, and stays so whatever comes and goes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"row-list--chosen", "row-list--heading"}
    DEFAULT_CSS = """
    RowList { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    RowList > .row-list--heading { color: $text-muted; text-style: bold; }
    RowList > .row-list--chosen { background: $surface-lighten-2; }
    RowList:focus > .row-list--chosen { background: $primary; color: $text; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("home,g", "move(-1000000)", "First", show=False),
        Binding("end,G", "move(1000000)", "Last", show=False),
    ]

    class Chosen(Message):
        """Another row was chosen, or the chosen one has gone."""

    class Reached(Message):
        """The last row was reached: there may be more to load."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[LiveRow | tuple[LiveSection, str]] = []
        self._at = 0
        self._now = 0

    @property
    def chosen(self) -> LiveRow | None:
        """What is chosen; None where there is nothing."""
        found = self._lines[self._at] if self._at < len(self._lines) else None
        return found if isinstance(found, LiveRow) else None

    @property
    def rows(self) -> Iterator[LiveRow]:
        """All rows, in their order."""
        return (line for line in self._lines if isinstance(line, LiveRow))

    # --- what is shown ------------------------------------------------------------------------------------------------

    def show(self, rows: Sequence[LiveRow], now: int, unseen: int | None) -> None:
        """Take these rows in the place of the others; what was chosen stays chosen, and where it is on the screen."""
        before, place = self.chosen, self._at
        self._now = now
        self._lines = _under_headings(rows, unseen)
        self._at = self._found(before, place)
        self.virtual_size = Size(self.size.width, len(self._lines))
        moved = self._at - place
        if before is not None and moved and self.chosen is not None and self.chosen.key == before.key:
            self.scroll_to(y=self.scroll_offset.y + moved, animate=False, force=True)
        self.refresh()
        if before is None or self.chosen is None or self.chosen.key != before.key:
            self._keep_in_sight()
            self.post_message(self.Chosen())

    def tick(self, now: int) -> None:
        """Time has passed: the countdowns go on."""
        self._now = now
        self.refresh()

    def _found(self, before: LiveRow | None, place: int) -> int:
        """Where what was chosen stands now; where it has gone, what stands in its place."""
        if before is not None:
            for index, line in enumerate(self._lines):
                if isinstance(line, LiveRow) and line.key == before.key:
                    return index
        return self._nearest(place if before is not None else 0)

    def _nearest(self, place: int) -> int:
        """The row at a place, or the nearest one below, or above it."""
        places = [index for index, line in enumerate(self._lines) if isinstance(line, LiveRow)]
        below = [index for index in places if index >= place]
        return below[0] if below else places[-1] if places else 0

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        index, width = self.scroll_offset.y + y, self.scrollable_content_region.width
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[index]
        if not isinstance(line, LiveRow):
            style = self.get_component_rich_style("row-list--heading")
            return Strip([Segment(heading(*line, width), style)]).adjust_cell_length(width, self.rich_style)
        base = self.rich_style
        if index == self._at:
            base = self.get_component_rich_style("row-list--chosen")
        plainly = index == self._at and self.has_focus
        shown = pieces(line, self._now, width)
        segments = [Segment(text, base if plainly else base + Style.parse(style)) for text, style in shown]
        return Strip(segments).adjust_cell_length(width, base)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def choose(self, key: tuple[LiveSection, str]) -> None:
        """Choose a row by its key, if it is there."""
        for index, line in enumerate(self._lines):
            if isinstance(line, LiveRow) and line.key == key:
                self._go(index)

    def go_to(self, part: LiveSection) -> None:
        """Choose the first row of a part, if it has any."""
        for index, line in enumerate(self._lines):
            if isinstance(line, LiveRow) and line.part is part:
                self._go(index)
                return

    def action_move(self, by: int) -> None:
        """Choose another row, so many further on."""
        places = [index for index, line in enumerate(self._lines) if isinstance(line, LiveRow)]
        if not places:
            return
        at = places.index(self._at) if self._at in places else 0
        wanted = at + by
        self._go(places[min(max(wanted, 0), len(places) - 1)])
        if wanted >= len(places) - 1 and by > 0:
            self.post_message(self.Reached())

    def action_page(self, by: int) -> None:
        """Choose a row a page away."""
        self.action_move(by * max(self.size.height - 2, 1))

    def on_click(self, event: Click) -> None:
        """Choose what was clicked on."""
        index = self.scroll_offset.y + event.y
        if index < len(self._lines) and isinstance(self._lines[index], LiveRow):
            self._go(index)

    def _go(self, index: int) -> None:
        if index != self._at:
            self._at = index
            self.post_message(self.Chosen())
        self._keep_in_sight()
        self.refresh()

    def _keep_in_sight(self) -> None:
        """Scroll as little as need be; the heading above the first row of all is seen with it."""
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        first = 0 if self._at <= 1 else self._at
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif self._at >= top + height:
            self.scroll_to(y=self._at - height + 1, animate=False, force=True)

    def on_resize(self) -> None:
        """What is chosen stays in sight."""
        self.virtual_size = Size(self.size.width, len(self._lines))
        self._keep_in_sight()


def _under_headings(rows: Sequence[LiveRow], unseen: int | None) -> list[LiveRow | tuple[LiveSection, str]]:
    lines: list[LiveRow | tuple[LiveSection, str]] = []
    for part in LiveSection:
        own = [row for row in rows if row.part is part]
        if own:
            more = 0 if part is not LiveSection.TASK else unseen
            count = (
                f"{len(own):,}" if more == 0 else f"{len(own):,}, and more" if more is None else f"{len(own) + more:,}"
            )
            lines += [(part, count), *own]
    return lines


# What is told about what is chosen: why it stands where it stands, what comes next, and what can be done about it.

_NEXT_MOST = 6


class RowDetails(msgspec.Struct, frozen=True):
    """What was read about a row."""

    row: LiveRow
    told: Explanation | None = None
    question: Question | None = None
    spent: Spent | None = None


async def read_about(views: Views, row: LiveRow, place: LocalFacts = ANYWHERE) -> RowDetails:
    """Read it; a bounded number of rows."""
    question = None if row.question is None else await views.view_question(QuestionId(row.question))
    if row.part is LiveSection.QUESTION or row.task is None:
        return RowDetails(row, question=question)
    told = typed_in(await why(views, row.task, pause=place.pause, still_running=place.still_running))
    spent = (await views.view_spent("task", (row.task,))).get(row.task)
    return RowDetails(row, told, question, spent)


def in_text(about: RowDetails, now: int) -> Text:
    """All of it in words; whatever came from outside is data."""
    row, text = about.row, Text()
    text.append(plain(_title(about)), "bold").append(f"  {plain(row.question or row.task or '')}\n", "dim")
    if row.part is LiveSection.AGENT and row.note:
        seen = "" if row.since is None else f" ({ago(row.since, now)})"
        text.append(f"{plain(row.note)}{seen}\n")
    if about.question is not None:
        _add_question(text, about.question, now)
    if about.told is not None:
        for link in about.told.chain[:4]:
            text.append("\n".join(plain(in_words(said)) for said in link.says or (link.state,)) + "\n")
        _add_next(text, _with_row(about.told.next, row), now)
        if about.spent is not None:
            text.append(f"Cost so far: {cost_of(about.spent)}\n")
        _add_todo(text, about.told.todo)
    elif about.question is None and row.command:
        _add_todo(text, (SuggestedAction("Type", typed_here(row.command)),))
    return text


def _title(about: RowDetails) -> str:
    row = about.row
    match row.part:
        case LiveSection.AGENT:
            return f"{row.name} is {row.state}"
        case LiveSection.QUESTION:
            return row.note
        case _:
            return row.name if about.told is None else about.told.name


def _add_question(text: Text, question: Question, now: int) -> None:
    by = "" if question.asked_by == "allswell" else f" by {plain(question.asked_by)}"
    text.append(f"Asked{by} {ago(question.asked_at, now)}:\n", "dim")
    text.append(f"{harmless(question.text)}\n")
    if question.dismissed_at is not None:
        text.append(f"{plain(question.dismissed_by)} has dismissed it; it stays open.\n", "dim")
    for option in in_order(question.options):
        text.append(f"  {plain(option.key)}", "cyan").append(f"  {plain(option.label)}").append(
            f"  ({does(option.act)})\n", "dim"
        )


def _with_row(nexts: Sequence[UpcomingStep], row: LiveRow) -> list[UpcomingStep]:
    """What comes next, with what the row says of it: a supervisor may see more than the store does."""
    routine = [one for one in nexts if not one.routine]
    known = row.due is None or any(one.at == row.due for one in nexts)
    return (
        routine
        if known
        else [upcoming(row.due, f"{row.who if row.part is LiveSection.TASK else 'it'} {row.ahead}"), *routine]
    )


def _add_next(text: Text, nexts: Sequence[UpcomingStep], now: int) -> None:
    if nexts:
        text.append("Next\n", "bold")
    for one in nexts[:_NEXT_MOST]:
        when = "then" if one.at is None else within(one.at, now)
        text.append(f"  {when:<10}", "cyan").append(f"{plain(in_words(one.what))}\n")


def _add_todo(text: Text, todo: Sequence[SuggestedAction]) -> None:
    if todo:
        text.append("You could\n", "bold")
    for one in todo:
        text.append(f"  {plain(one.what)}: ").append(f"{plain(one.command)}\n", "cyan")
