"""An explanation in words: the chain, what comes next, what you could do, and how the time was spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.ink import headed, prose, width
from allswell.doors.cli.render import GAP, paint
from allswell.doors.cli.width import width_of
from allswell.engine.explaining.words import length, many, within

if TYPE_CHECKING:
    from allswell.engine.explaining.shapes import Explanation, Link, Next, Span, Todo

_STEP = "  "
_BAR = 16
_SPANS_MOST = 14
_COLOURS = {"held": "held", "asked": "warn", "waiting": "waiting", "paused": "delayed", "ready": "ready"}
_BAD = ("agent_", "lease_", "run_timeout", "failed")


def words(told: Explanation) -> str:
    """The whole explanation."""
    parts = [
        _chain(told.chain),
        headed("It also waits for", [prose(one, indent=_STEP) for one in told.beside]),
        headed("What happens next", [_next(one, told.now) for one in told.next]),
        headed("What you could do now", _todo(told.todo)),
        _spent(told.spent, ended=told.state not in ("held", "ready", "waiting", "delayed", "nowhere", "open")),
    ]
    return "\n\n".join(part for part in parts if part)


def _chain(links: tuple[Link, ...]) -> str:
    lines = []
    for depth, link in enumerate(links):
        indent = _STEP * depth
        first = indent if depth == 0 else f"{_STEP * (depth - 1)}└ "
        says = list(link.says) or [link.state]
        named = f"{says[0]} ({link.id})" if link.id else says[0]
        lines.append(prose(named, indent=first, further=indent).replace(f"({link.id})", paint(f"({link.id})", "dim")))
        lines += [prose(one, indent=indent) for one in says[1:]]
    return "\n".join(lines)


def _next(one: Next, now: int) -> str:
    when = "then" if one.at is None else within(one.at, now)
    return prose(one.what, indent=f"{_STEP}{when:<9}{GAP}", further=" " * 13)


def _todo(todo: tuple[Todo, ...]) -> list[str]:
    """What to type, and what it does: beside each other where there is room."""
    wide = max((width_of(one.command) for one in todo), default=0)
    lines = []
    for one in todo:
        if wide + 4 + width_of(one.what) + 2 <= width():
            lines.append(f"{_STEP}{paint(one.command.ljust(wide), 'held')}{GAP}{one.what}")
        else:
            lines += [prose(f"{one.what}:", indent=_STEP), f"{_STEP}{_STEP}{paint(one.command, 'held')}"]
    return lines


def _spent(spans: tuple[Span, ...], *, ended: bool) -> str:
    if len(spans) < 2 and not (ended and spans):
        return ""
    total = max(sum(span.end - span.start for span in spans), 1)
    shown = spans if len(spans) <= _SPANS_MOST else (*spans[:4], *spans[4 - _SPANS_MOST :])
    lines = [_span(span, total) for span in shown]
    if len(shown) < len(spans):
        lines.insert(4, f"{_STEP}… {many(len(spans) - len(shown), 'more stretch', 'more stretches')} …")
    title = f"How the time was spent ({length(total)} {'in all' if ended else 'so far'})"
    return headed(title, lines)


def _span(span: Span, total: int) -> str:
    share = (span.end - span.start) / total
    bad = span.outcome is not None and span.outcome.startswith(_BAD)
    bar = paint("█" * max(round(share * _BAR), 1), "failed" if bad else _COLOURS[span.kind])
    pad = " " * (_BAR - max(round(share * _BAR), 1))
    who = "" if span.agent is None else f"{span.agent}, attempt {span.token}: "
    head = f"{_STEP}{span.kind:<8}{length(span.end - span.start):>8}{GAP}"
    text = prose(f"{who}{span.says}", indent=" " * (len(head) + _BAR + 2))
    return f"{head}{bar}{pad}{GAP}{text.lstrip()}"
