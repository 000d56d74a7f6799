"""The list of what can be chosen. Only the lines that are seen are drawn, so it does not matter how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from allswell.doors.cli.watching import layout
from allswell.engine.explaining.live import LiveRow, Part


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

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self._lines: list[LiveRow | tuple[Part, str]] = []
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
            return Strip([Segment(layout.heading(*line, width), style)]).adjust_cell_length(width, self.rich_style)
        base = self.rich_style
        if index == self._at:
            base = self.get_component_rich_style("row-list--chosen")
        plainly = index == self._at and self.has_focus
        shown = layout.pieces(line, self._now, width)
        segments = [Segment(text, base if plainly else base + Style.parse(style)) for text, style in shown]
        return Strip(segments).adjust_cell_length(width, base)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def choose(self, key: tuple[Part, str]) -> None:
        """Choose a row by its key, if it is there."""
        for index, line in enumerate(self._lines):
            if isinstance(line, LiveRow) and line.key == key:
                self._go(index)

    def go_to(self, part: Part) -> None:
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


def _under_headings(rows: Sequence[LiveRow], unseen: int | None) -> list[LiveRow | tuple[Part, str]]:
    lines: list[LiveRow | tuple[Part, str]] = []
    for part in Part:
        own = [row for row in rows if row.part is part]
        if own:
            more = 0 if part is not Part.TASK else unseen
            count = (
                f"{len(own):,}" if more == 0 else f"{len(own):,}, and more" if more is None else f"{len(own) + more:,}"
            )
            lines += [(part, count), *own]
    return lines
