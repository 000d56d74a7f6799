"""What a flow came to, told at its end: in words with what to do next, or as data."""

from __future__ import annotations

from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.render import paint, plain, sentence
from allswell.doors.cli.width import columns, cut

if TYPE_CHECKING:
    from allswell.flows.run.runner import Summary

CODES = {
    "done": Exit.FINE,
    "failed": Exit.FAILED,
    "needs_human": Exit.NEEDS_HUMAN,
    "timed_out": Exit.TIMED_OUT,
    "interrupted": Exit.INTERRUPTED,
}
_LISTED = 20
_TAIL, _SHOWN = 4_096, 5
"""Bytes of a step's output that are looked at, and lines of it that are shown where it has failed."""


def finish(frame: Frame, summary: Summary | None) -> None:
    """Tell it, and end with the code that it means."""
    if summary is None:
        return
    from allswell.doors.shapes.flow_end import FlowRanShape

    code = CODES[summary.verdict]
    frame.say(FlowRanShape.of(summary, int(code)), None if frame.json else _words(summary))
    if code is not Exit.FINE:
        frame.leave(code)


def _last_lines(base: str, name: str) -> list[str]:
    """The end of what the last attempt at a step printed: what was said on standard error, or else the rest."""
    from allswell.domain.evidence import last_words

    found = [log for log in Path(base).glob(f"*/llm/{escape(name)}-*.std*") if log.stem[len(name) + 1 :].isdigit()]
    for log in sorted(found, key=lambda log: (int(log.stem[len(name) + 1 :]), log.suffix == ".stderr"), reverse=True):
        with suppress(OSError), log.open("rb") as file:
            file.seek(max(file.seek(0, 2) - _TAIL, 0))
            lines = last_words(file.read()).splitlines()
            if lines:
                return [cut(plain(line), (columns() or 120) - 4) for line in lines[-_SHOWN:]]
    return []


def _words(summary: Summary) -> str:
    from collections import Counter

    counted = Counter(summary.states.values())
    tally = ", ".join(f"{count:,} {state}" for state, count in counted.most_common())
    head = {
        "done": paint("All's well:", "ready") + f" {plain(summary.flow)} is done",
        "failed": paint(f"{plain(summary.flow)} has failed", "failed"),
        "needs_human": paint(f"{plain(summary.flow)} needs you", "waiting"),
        "timed_out": paint(f"{plain(summary.flow)} ran out of time", "failed"),
        "interrupted": paint(f"{plain(summary.flow)} was interrupted", "waiting"),
    }[summary.verdict]
    lines = [sentence(f"{head} ({tally or 'no steps'}).  {summary.base}")]
    bad = [name for name, state in summary.states.items() if state in ("failed", "cancelled", "asked")]
    for name in bad[:_LISTED]:
        lines.append(sentence(f"  {plain(name)}: {plain(summary.reasons.get(name, ''))}"))
        lines += [f"    {line}" for line in _last_lines(summary.base, name)]
    if len(bad) > _LISTED:
        lines.append(f"  and {len(bad) - _LISTED:,} more")
    lines += [f"  {typed_here(f'allswell show {question}')}" for question in summary.questions[:_LISTED]]
    if summary.verdict != "done":
        first = "after the answer: " if summary.questions else "to go on: "
        lines.append(paint(f"  {first}{typed_here(f'allswell resume {summary.run}')}", "dim"))
    return "\n".join(lines)
