"""A flow as an SVG picture: waves from left to right, a box for each step, the longest way through it in bold.

It is one file without scripts, fonts or anything else from elsewhere, in the colours that its viewer prefers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import msgspec

from allswell.domain.check.model import CheckFigure
from allswell.domain.check.scopes import Need, StepFigures, longest_path
from allswell.domain.duration import show
from allswell.domain.values import start_of
from allswell.flows.spec import AgentPrompt, Flow, Function, RunCommand, Step

# Where things stand that need each other: in waves, each after all that it needs.
#
# Within a wave, things stand near what they need, so that few lines cross: each is put at the mean height of its needs,
# and then at that of its followers, a few times over. A line that passes a wave has a place of its own there, as if it
# were a thing, so that it leads between the others and never behind them.

_ROUNDS = 4
_MOST_PLACES = 20_000
"""With more of them lines go straight: nobody looks at such a picture line by line."""


class GraphLayout(msgspec.Struct, frozen=True):
    """All of them, and the lines between them."""

    wave: Mapping[str, int]
    row: Mapping[str, int]
    lines: Mapping[tuple[str, str], tuple[int, ...]]
    """From what is needed to what needs it: where the line passes the waves between them."""
    waves: tuple[tuple[str, ...], ...]
    """What stands in each wave, in order, without the places of lines."""
    sizes: tuple[int, ...]
    """How many places each wave has."""


def arrange(needs: Mapping[str, Sequence[str]]) -> GraphLayout:
    """Give everything a place; what needs itself, at one remove or several, has none."""
    wave = _waves(needs)
    beside: dict[str, list[str]] = {id_: [] for id_ in needs if id_ in wave}
    pairs = [(need, id_) for id_ in beside for need in needs[id_]]
    drawn = sum(wave[id_] - wave[need] for need, id_ in pairs) < _MOST_PLACES
    passing: dict[tuple[str, str], list[str]] = {}
    for need, id_ in pairs:
        places = [f"{need}>{id_}>{at}" for at in range(wave[need] + 1, wave[id_])] if drawn else []
        passing[need, id_] = places
        for before, after in pairwise([need, *places, id_]):
            beside.setdefault(after, []).append(before)
        wave |= {place: wave[need] + 1 + number for number, place in enumerate(places)}
    waves: list[list[str]] = [[] for _ in range(max(wave.values(), default=-1) + 1)]
    for id_ in beside:
        waves[wave[id_]].append(id_)
    row = _untangle(beside, waves)
    lines = {line: tuple(row[place] for place in places) for line, places in passing.items()}
    shown = tuple(tuple(id_ for id_ in ids if id_ in needs) for ids in waves)
    return GraphLayout(wave, row, lines, shown, tuple(map(len, waves)))


def _waves(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """For each the length of the longest chain of needs before it."""
    waiting = {id_: len(before) for id_, before in needs.items()}
    followers: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, before in needs.items():
        for need in before:
            followers[need].append(id_)
    wave = dict.fromkeys((id_ for id_, count in waiting.items() if not count), 0)
    ready = list(wave)
    for id_ in ready:  # grows while it is read: something follows when all it needs have come
        for follower in followers[id_]:
            wave[follower] = max(wave.get(follower, 0), wave[id_] + 1)
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    return {id_: wave[id_] for id_ in ready}


def _untangle(needs: Mapping[str, Sequence[str]], waves: list[list[str]]) -> dict[str, int]:
    """Sort each wave so that few lines cross; the row of every place."""
    followers: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, before in needs.items():
        for need in before:
            followers[need].append(id_)
    row = {id_: place for ids in waves for place, id_ in enumerate(ids)}
    for turn in range(_ROUNDS):
        beside = needs if turn % 2 == 0 else followers
        for ids in waves if turn % 2 == 0 else reversed(waves):
            means = {id_: _mean([row[one] for one in beside[id_]], row[id_]) for id_ in ids}
            ids.sort(key=means.__getitem__)
            row |= {id_: place for place, id_ in enumerate(ids)}
    return row


def _mean(rows: Sequence[int], otherwise: int) -> float:
    return sum(rows) / len(rows) if rows else otherwise


# Where the steps of a flow stand when it is drawn: in waves (`arrange`), with what is to be told of each.


class GraphNode(msgspec.Struct, frozen=True):
    """A step with its place: in which wave, on which row, and whether on the longest way through the flow."""

    id: str = msgspec.field(name="step_id")
    what: str
    """What it does, in short."""
    limit_ms: int
    overridden: bool
    """Whether its limit is one of its own."""
    members: int
    needs: tuple[str, ...]
    wave: int
    row: int
    longest: bool
    audited: bool

    @property
    def limit(self) -> str:
        """Its limit in words."""
        return show(self.limit_ms) + (" (override)" if self.overridden else "")


class FlowGraph(msgspec.Struct, frozen=True):
    """A flow and all its steps."""

    flow: str
    limit_ms: int
    steps: tuple[GraphNode, ...]


class LayoutLine(msgspec.Struct, frozen=True):
    """From a step to one that needs it."""

    start: str
    end: str
    rows: tuple[int, ...]
    """Where it passes the waves between them."""


class FlowLayout(msgspec.Struct, frozen=True):
    """A flow, laid out."""

    nodes: tuple[GraphNode, ...]
    lines: tuple[LayoutLine, ...]
    sizes: tuple[int, ...]
    """How many places each wave has."""


def lay_out(flow: Flow) -> FlowLayout:
    """Every step with its place, wave by wave, and the lines between them."""
    steps = {step.id: step for step in flow.steps}
    placed = arrange({step.id: step.needs for step in flow.steps})
    longest = _longest(flow)
    nodes = [
        _node(flow, steps[id_], number, placed.row[id_], longest)
        for number, ids in enumerate(placed.waves)
        for id_ in ids
    ]
    lines = [LayoutLine(start, end, rows) for (start, end), rows in placed.lines.items()]
    return FlowLayout(tuple(nodes), tuple(lines), placed.sizes)


def _longest(flow: Flow) -> set[str]:
    timed = [
        StepFigures(step.id, CheckFigure(step.id, flow.limit(step)), tuple(Need(need) for need in step.needs))
        for step in flow.steps
    ]
    return {step.id for step in longest_path(timed)}


def _node(flow: Flow, step: Step, wave: int, row: int, longest: set[str]) -> GraphNode:
    return GraphNode(
        id=step.id,
        what=described(step),
        limit_ms=flow.limit(step),
        overridden=step.timeout_override is not None,
        members=step.count(),
        needs=step.needs,
        wave=wave,
        row=row,
        longest=step.id in longest,
        audited=step.audit is not None or step.verify is not None,
    )


def described(step: Step) -> str:
    """What a step does, in a few words."""
    match step.work:
        case RunCommand(argv):
            return " ".join(argv)
        case AgentPrompt(agent, _):
            return f"agent {agent}"
        case Function(module, function, _):
            return f"python {module}:{function}"


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


def draw(name: str, limit: str, layout: FlowLayout) -> str:
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


def _box(node: GraphNode, x: float, y: float) -> str:
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
    return escape(start_of(plain, most))
