"""Plain SVG pictures, drawn by hand: bars and lines, ours in colour and the others in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

_OURS, _OTHERS = "#c2571a", "#8a8f98"
_FONT = 'font-family="system-ui, sans-serif"'
_WIDTH, _LEFT, _ROW = 760, 190, 30


def bars(path: Path, title: str, found: Sequence[tuple[str, float, bool]], unit: str) -> None:
    """One horizontal bar for each name, its figure beside it."""
    most = max(value for _, value, _ in found)
    room = _WIDTH - _LEFT - 110
    parts = [_title(title)]
    for number, (name, value, ours) in enumerate(found):
        top = 50 + number * _ROW
        length = max(1.0, value / most * room)
        figure = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
        parts += [
            _text(_LEFT - 8, top + 15, name, anchor="end"),
            f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="20" fill="{_OURS if ours else _OTHERS}"/>',
            _text(_LEFT + length + 6, top + 15, f"{figure}{unit}"),
        ]
    _write(path, parts, 60 + len(found) * _ROW)


def lines(path: Path, title: str, steps: Sequence[str], found: Sequence[tuple[str, Sequence[float], bool]]) -> None:
    """One line for each name over the steps, on a logarithmic scale."""
    values = [value for _, series, _ in found for value in series]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    height, left, right, top = 360, 60, _WIDTH - 230, 50
    across = (right - left) / max(1, len(steps) - 1)

    def place(value: float) -> float:
        return top + (high - math.log10(value)) / (high - low) * (height - top - 40)

    parts = [_title(title)]
    for number, step in enumerate(steps):
        parts.append(_text(left + number * across, height - 10, step, anchor="middle"))
    for power in range(math.ceil(low), math.floor(high) + 1):
        level = place(10**power)
        parts.append(f'<line x1="{left}" y1="{level:.1f}" x2="{right}" y2="{level:.1f}" stroke="#e3e5e8"/>')
        parts.append(_text(left - 8, level + 4, f"{10**power:g}", anchor="end"))
    last = -math.inf
    for name, series, ours in sorted(found, key=lambda one: place(one[1][-1])):
        colour = _OURS if ours else _OTHERS
        points = " ".join(f"{left + number * across:.1f},{place(value):.1f}" for number, value in enumerate(series))
        last = max(last + 15, place(series[-1]) + 4)  # names must not lie on each other
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(right + 8, last, name, colour=colour))
    _write(path, parts, height)


def _title(text: str) -> str:
    return f'<text x="16" y="28" {_FONT} font-size="16" font-weight="600" fill="#222">{escape(text)}</text>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#444") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} font-size="12" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(text)}</text>"
    )


def _write(path: Path, parts: Sequence[str], height: float) -> None:
    path.parent.mkdir(exist_ok=True)
    size = f'viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}"'
    body = "\n".join(parts)
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{ground}\n{body}\n</svg>\n')
