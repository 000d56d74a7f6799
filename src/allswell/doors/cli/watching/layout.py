"""How a row is laid out: which columns each part has, how wide they are, and what stands in them."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from allswell.doors.cli.render import plain, short
from allswell.doors.cli.width import cut, width_of
from allswell.engine.explaining.live import LiveRow, Part
from allswell.engine.explaining.words import within

GAP = 2
_MARKED = {Part.PROBLEM: "!", Part.QUESTION: "?"}
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
    "stalled": "bold red",
    "overdue": "bold red",
    "unaccounted": "bold red",
}
_DIM = "dim"


class Cell(NamedTuple):
    """A column: what it is called, how wide it is at least, and how much of what is left it gets."""

    title: str
    width: int
    share: int = 0
    right: bool = False


_COLUMNS = {
    Part.PROBLEM: (Cell("", 20, 4), Cell("since", 7, right=True), Cell("next", 9, right=True), Cell("", 0, 1)),
    Part.QUESTION: (Cell("", 20, 4), Cell("asked by", 10), Cell("since", 7, right=True)),
    Part.AGENT: (Cell("", 10, 1), Cell("", 11), Cell("task", 10, 2), Cell("next", 9, right=True), Cell("", 0, 2)),
    Part.TASK: (Cell("", 16, 2), Cell("", 8), Cell("who", 10), Cell("next", 9, right=True), Cell("", 0, 3)),
}
"""The columns of each part; the last one of a width of nought is there only where there is room for it."""
_LEAST = 12


def widths(part: Part, room: int) -> list[int]:
    """How wide the columns are in so much room; what does not fit at all is 0."""
    columns = _COLUMNS[part]
    taken = sum(one.width + GAP for one in columns) - GAP
    spare, shares = max(room - 2 - taken, 0), sum(one.share for one in columns)
    found = [one.width + spare * one.share // shares for one in columns]
    if not columns[-1].width and found[-1] < _LEAST:
        found[0] += found[-1] + GAP
        found[-1] = 0
    return found


def heading(part: Part, count: str, room: int) -> str:
    """The line above a part: what it is, how many, and what its columns are."""
    titles = [one.title for one in _COLUMNS[part]]
    titles[0] = f"{part.value.upper()} {count}"
    return _line(titles, part, room)


def pieces(row: LiveRow, now: int, room: int) -> list[tuple[str, str]]:
    """A row as pieces of text, each with its style; together exactly as wide as there is room."""
    due = "" if row.due is None else within(row.due, now).removeprefix("in ").replace(" overdue", " late")
    since = "" if row.since is None else short(max(now - row.since, 0))
    share = "" if row.progress is None else f" {row.progress:.0%}"
    state = _STYLES.get(row.state.partition(",")[0], "")
    match row.part:
        case Part.PROBLEM:
            cells = [(row.note or row.name, ""), (since, _DIM), (due, "cyan"), (row.ahead, _DIM)]
        case Part.QUESTION:
            cells = [(row.name, _DIM if row.state == "dismissed" else ""), (row.who or "the watch", ""), (since, _DIM)]
        case Part.AGENT:
            next_ = row.ahead if row.task is None or row.due is not None else row.note
            cells = [(row.name, ""), (row.state, state), (row.who + share, ""), (due, "cyan"), (next_, _DIM)]
        case Part.TASK:
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


def _line(cells: list[str], part: Part, room: int) -> str:
    sized = zip(cells, _COLUMNS[part], widths(part, room), strict=True)
    return "  " + (" " * GAP).join(_fitted(text, width, right=one.right) for text, one, width in sized if width)


def _fitted(text: str, width: int, *, right: bool) -> str:
    text = cut(text, width)
    blank = " " * max(width - width_of(text), 0)
    return blank + text if right else text + blank
