"""One thing that an attempt has printed, as it is shown: its mark, its words, and how they are painted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allswell.domain.log_line import LogEntry

RESULT_LINES = 12
"""Lines of what a tool brought that are shown to a person."""
_MARKS = {"tool": ("→", "held"), "result": (" ", "dim"), "error": ("✗", "failed"), "note": ("·", "dim")}
_MARKS |= {"end": ("=", "bold"), "thinking": ("~", "dim")}
_OVER_EVERY_LINE = ("result", "thinking", "note")


class LogWords(NamedTuple):
    """An entry in words. Whatever an agent said is data: whoever shows them makes them harmless."""

    mark: str
    """What stands before the first line; empty where nothing does, and nothing is indented."""
    mark_style: str
    text: str
    style: str


def words_of(entry: LogEntry, stream: str) -> LogWords:
    """One entry; of what a tool brought, the beginning."""
    kind, text = str(entry.kind), entry.text
    if kind in ("text", "message"):
        return LogWords("", "", text, "warn" if kind == "text" and stream == "stderr" else "")
    mark, style = _MARKS[kind]
    if kind in ("result", "error"):
        lines = text.splitlines() or ["(nothing)"]
        if len(lines) > RESULT_LINES:
            more = len(lines) - RESULT_LINES
            text = "\n".join([*lines[:RESULT_LINES], f"… {more:,} more line{'' if more == 1 else 's'}: --raw"])
    if entry.tool:
        text = f"{entry.tool}  {text}".rstrip()
    said = [text]
    if entry.cost_usd is not None:
        said.append(f"${entry.cost_usd:,.4f}")
    if entry.tokens is not None:
        said.append(f"{entry.tokens:,} tokens")
    shown = ", ".join(said) if kind in ("end", "error") else text
    return LogWords(mark, style, shown, style if kind in _OVER_EVERY_LINE else "")
