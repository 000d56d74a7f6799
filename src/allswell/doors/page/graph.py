"""What needs what, as a picture: waves from left to right, a box for each thing, and a line from what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from allswell.engine.explaining.words import clean
from allswell.flows.arrangement import Arrangement, arrange

MOST = 120
"""Boxes in one picture."""
_WIDE, _HIGH = 176, 40
_GAP_X, _GAP_Y = 46, 14
_MARGIN = 4
_LETTERS = 23


class GraphThing(Struct, frozen=True):
    """One thing that is to be drawn."""

    id: str
    name: str
    state: str
    under: str
    """What stands below its name, in small letters."""
    href: str
    needs: Sequence[str]


class GraphBox(Struct, frozen=True):
    """A box, with its place in the picture."""

    thing: GraphThing
    x: float
    y: float
    label: str


class GraphEdge(Struct, frozen=True):
    """A line; it is met when what it comes from has ended well."""

    path: str
    met: bool


class DrawnGraph(Struct, frozen=True):
    """A picture."""

    width: int
    height: int
    box_width: int
    box_height: int
    boxes: list[GraphBox]
    edges: list[GraphEdge]
    says: str


def draw_graph(things: Sequence[GraphThing], what: str) -> DrawnGraph:
    """Draw things and what they need of each other; needs that are not among them have no line."""
    by_id = {thing.id: thing for thing in things}
    needs = {thing.id: [need for need in thing.needs if need in by_id and need != thing.id] for thing in things}
    placed = arrange(needs)
    tallest = max(placed.sizes, default=0)
    boxes = [
        GraphBox(by_id[id_], *_corner(placed, placed.wave[id_], placed.row[id_]), clean(by_id[id_].name, _LETTERS))
        for wave in placed.waves
        for id_ in wave
    ]
    edges = [
        GraphEdge(_path(placed, start, end, rows), by_id[start].state in ("done", "merged"))
        for (start, end), rows in placed.lines.items()
    ]
    waves = len(placed.sizes)
    width = 2 * _MARGIN + waves * _WIDE + max(waves - 1, 0) * _GAP_X
    height = 2 * _MARGIN + tallest * (_HIGH + _GAP_Y)
    says = f"{what}: " + "; ".join(_said(thing, needs, by_id) for thing in list(by_id.values())[:MOST])
    return DrawnGraph(width, height, _WIDE, _HIGH, boxes, edges, says)


def _said(thing: GraphThing, needs: Mapping[str, Sequence[str]], by_id: Mapping[str, GraphThing]) -> str:
    before = ", ".join(clean(by_id[need].name, 40) for need in needs[thing.id])
    return f"{clean(thing.name, 40)} ({thing.state})" + (f" needs {before}" if before else "")


def _corner(placed: Arrangement, wave: int, row: int) -> tuple[float, float]:
    """The upper left corner of a place; a short wave stands in the middle."""
    down = (max(placed.sizes) - placed.sizes[wave]) / 2 + row
    return _MARGIN + wave * (_WIDE + _GAP_X), _MARGIN + down * (_HIGH + _GAP_Y)


def _path(placed: Arrangement, start: str, end: str, rows: Sequence[int]) -> str:
    first = placed.wave[start]
    through = [(first + number, row) for number, row in enumerate((placed.row[start], *rows))]
    corners = [_corner(placed, wave, row) for wave, row in [*through, (placed.wave[end], placed.row[end])]]
    x, y = corners[0]
    parts = [f"M{x + _WIDE:g} {y + _HIGH / 2:g}"]
    for (left, high), (right, low) in pairwise(corners):
        middle = (left + _WIDE + right) / 2
        parts.append(f"C{middle:g} {high + _HIGH / 2:g} {middle:g} {low + _HIGH / 2:g} {right:g} {low + _HIGH / 2:g}")
        if (right, low) != corners[-1]:
            parts.append(f"L{right + _WIDE:g} {low + _HIGH / 2:g}")
    return "".join(parts)
