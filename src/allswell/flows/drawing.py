"""A flow as an SVG picture: waves from left to right, a box for each step, the longest way through it in bold.

It is one file without scripts, fonts or anything else from elsewhere, in the colours that its viewer prefers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from allswell.flows.layout import Layout, Node

_WIDE, _HIGH = 220, 54
_GAP_X, _GAP_Y = 70, 22
_MARGIN, _HEAD = 24, 46
_LETTERS = 30

_STYLE = """\
    :root { --ink: #1f2430; --dim: #6b7280; --box: #ffffff; --line: #b8bfca; --way: #2563eb; --back: #f7f8fa; }
    @media (prefers-color-scheme: dark) {
      :root { --ink: #e6e8ee; --dim: #9aa3b2; --box: #262b36; --line: #4b5565; --way: #7aa7ff; --back: #171a21; }
    }
    text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: var(--ink); }
    .title { font-size: 17px; font-weight: 600; } .id { font-weight: 600; } .dim { fill: var(--dim); font-size: 11px; }
    rect.box { fill: var(--box); stroke: var(--line); } .way rect.box { stroke: var(--way); stroke-width: 2; }
    path { fill: none; stroke: var(--line); stroke-width: 1.3; } path.way { stroke: var(--way); stroke-width: 2; }
"""


def draw(name: str, limit: str, layout: Layout) -> str:
    """The picture of a flow."""
    nodes = layout.nodes
    waves, tallest = len(layout.sizes), max(layout.sizes, default=0)
    by_id = {node.id: node for node in nodes}
    width = 2 * _MARGIN + waves * _WIDE + (waves - 1) * _GAP_X
    height = _HEAD + _MARGIN + tallest * (_HIGH + _GAP_Y)
    size = f'width="{width}" height="{height}"'
    drawn = f'xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}"'
    sum_ = f"{len(nodes):,} steps, limit {limit}"
    lines = [
        f'<svg {drawn} role="img" aria-label="{_text(f"The flow {name}")}">',
        f"  <style>\n{_STYLE}  </style>",
        f'  <rect {size} style="fill: var(--back)"/>',
        f'  <text class="title" x="{_MARGIN}" y="32">{_text(name)}</text>',
        f'  <text class="dim" x="{width - _MARGIN}" y="32" text-anchor="end">{_text(sum_)}</text>',
    ]
    for line in layout.lines:
        start, end = by_id[line.start], by_id[line.end]
        places = [(start.wave + number, row) for number, row in enumerate((start.row, *line.rows))]
        points = [_corner(wave, row, layout.sizes) for wave, row in [*places, (end.wave, end.row)]]
        lines.append(_line(points, way=start.longest and end.longest))
    lines += [_box(node, *_corner(node.wave, node.row, layout.sizes)) for node in nodes]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _corner(wave: int, row: int, sizes: Sequence[int]) -> tuple[float, float]:
    """The upper left corner of a place; a short wave stands in the middle."""
    down = (max(sizes) - sizes[wave]) / 2 + row
    return _MARGIN + wave * (_WIDE + _GAP_X), _HEAD + down * (_HIGH + _GAP_Y)


def _line(points: Sequence[tuple[float, float]], *, way: bool) -> str:
    """A curve from the right side of one box to the left side of another, through the places between."""
    shape = ""
    for (x1, y1), (x2, y2) in pairwise((x, y + _HIGH / 2) for x, y in points):
        start, bend = x1 + _WIDE, (x2 - x1 - _WIDE) / 2
        shape += f"{'L' if shape else 'M'}{start:g} {y1:g}C{start + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"
    return f'  <path class="{"way" if way else "need"}" d="{shape}"/>'


def _box(node: Node, x: float, y: float) -> str:
    times = f" ×{node.members:,}" if node.members > 1 else ""
    right = node.limit.removesuffix(" (override)") + (" !" if node.limit.endswith(")") else "")
    does = ("✓ " if node.audited else "") + node.what
    left, end = f'x="{x + 12:g}"', f'x="{x + _WIDE - 12:g}"'
    return (
        f'  <g class="{"way" if node.longest else "step"}"><title>{_text(f"{node.what}, {node.limit}", 300)}</title>'
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="7"/>'
        f'<text class="id" {left} y="{y + 22:g}">{_text(node.id + times, 22)}</text>'
        f'<text class="dim" {left} y="{y + 40:g}">{_text(does)}</text>'
        f'<text class="dim" {end} y="{y + 22:g}" text-anchor="end">{_text(right)}</text></g>'
    )


def _text(text: str, most: int = _LETTERS) -> str:
    """Text that XML can hold, at most so long."""
    plain = "".join(" " if unicodedata.category(one).startswith(("C", "Z")) else one for one in text)
    return escape(plain if len(plain) <= most else plain[: most - 1] + "…")
