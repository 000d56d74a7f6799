"""The state of the watch in a few lines: that all is well, or what needs you first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.ink import headed, prose
from allswell.doors.cli.render import GAP, paint
from allswell.engine.explaining.words import many, within

if TYPE_CHECKING:
    from allswell.engine.explaining.overview import Need, Overview

_BEGIN = """There is no watch here yet.

Put it in front of a command, and it begins:
  allswell run -- make all
Or let it watch over agents: set this folder up, and hand them work:
  allswell init
  allswell submit "write the changelog"
Or see it at work first, with real processes:
  allswell demo"""
_ORDER = ("held", "ready", "delayed", "waiting", "done", "failed", "cancelled", "skipped", "split")
_EACH_MOST = 4
_MORE = {
    "question": "allswell questions",
    "failed": "allswell tasks --state failed",
    "unaccounted": "allswell doctor",
    "stalled": "allswell agents",
    "overdue": "allswell doctor",
    "stopped": "allswell tasks --role run",
    "clock": "allswell doctor",
}
_MARKS = {"question": ("?", "warn"), "overdue": ("!", "warn"), "stalled": ("!", "warn"), "stopped": ("!", "warn")}


def nothing_yet() -> str:
    """What is said where there is no store, with what to type."""
    return "\n".join(f"  {typed_here(line.strip())}" if line[:1] == " " else line for line in _BEGIN.splitlines())


def words(seen: Overview) -> str:
    """The whole state."""
    counted = GAP.join(paint(f"{seen.counts[state]:,} {state}", state) for state in _ORDER if seen.counts.get(state))
    counted = f"  {counted}" if counted else "  Nothing has been handed over yet."
    held = seen.dismissed
    if held.questions:
        what = (
            f"{many(held.questions, 'dismissed question holds', 'dismissed questions hold')} {many(held.tasks, 'task')}"
        )
        counted += f"\n  {what}: {paint(typed_here('allswell questions'), 'held')}"
    if seen.well:
        ahead = ""
        if seen.next_due is not None and seen.next_due > seen.now:
            ahead = f"  The next thing falls due {within(seen.next_due, seen.now)}."
        elif seen.next_due is not None:
            ahead = "  Something has just fallen due; any command that opens the watch sees to it."
        return "\n".join(part for part in (paint("All's well.", "ready"), counted, ahead) if part)
    title = f"{many(len(seen.needs), 'thing needs', 'things need')} you."
    return headed(title, [*_needs(seen.needs), "", counted])


def _needs(needs: tuple[Need, ...]) -> list[str]:
    lines: list[str] = []
    told: Counter[str] = Counter()
    total = Counter(need.kind for need in needs)
    for need in needs:
        told[need.kind] += 1
        if told[need.kind] <= _EACH_MOST:
            mark, style = _MARKS.get(need.kind, ("✗", "failed"))
            text = prose(need.what, indent="    ")
            lines += [f"  {paint(mark, style)} {text.lstrip()}", f"    {paint(need.command, 'held')}"]
        elif told[need.kind] == total[need.kind]:
            lines += [f"    and {total[need.kind] - _EACH_MOST:,} more: {paint(typed_here(_MORE[need.kind]), 'held')}"]
    return lines
