"""What an agent printed, as a person reads it: `allswell logs`, the page and the live view show these entries."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from allswell.domain.agents.cost import usd
from allswell.domain.agents.denied import remark
from allswell.domain.agents.output import (
    AgentEvent,
    AgentLine,
    AgentText,
    Note,
    SessionStarted,
    Thinking,
    ToolCall,
    ToolCallRefused,
    ToolCallResult,
    Trouble,
    TurnEnded,
    decoded,
    denied_by,
    parse,
    words_of,
)
from allswell.domain.agents.refusal import ProviderRefusal
from allswell.domain.duration import show

_INPUT = 400
"""Characters of a tool's input that are shown."""
_SPOKEN_BY = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
"""What of a tool's input tells most, the first that is there; else all of it is shown."""


class LogKind(StrEnum):
    """What an entry is."""

    TEXT = "text"
    """A line of no protocol."""
    MESSAGE = "message"
    """What the agent says."""
    THINKING = "thinking"
    TOOL = "tool"
    """A tool is called."""
    RESULT = "result"
    """What a tool brought."""
    ERROR = "error"
    NOTE = "note"
    """What the agent's program tells of itself: a session begins, the provider is waited for."""
    END = "end"
    """A turn has ended, with what it took."""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was printed."""

    kind: LogKind
    text: str
    tool: str = ""
    """Which one is called."""
    cost_usd: float | None = None
    """What it says that it cost; None where it says nothing."""
    tokens: int | None = None


def entries(line: bytes) -> list[LogEntry]:
    """What one line says; none where it is a line of a protocol that says nothing to a person."""
    parsed = parse(line)
    if not parsed.dialect:
        return [LogEntry(LogKind.TEXT, decoded(line))]
    try:
        return [entry for event in parsed.events if (entry := _entry(event, parsed)) is not None]
    except RecursionError:  # what could just be read may be too deep to show
        return [LogEntry(LogKind.TEXT, decoded(line))]


def _entry(event: AgentEvent, line: AgentLine) -> LogEntry | None:
    match event:
        case SessionStarted(model):
            return LogEntry(LogKind.NOTE, f"session {line.session or ''}{f', {model}' if model else ''}")
        case AgentText(text):
            return LogEntry(LogKind.MESSAGE, text)
        case Thinking(text):
            return LogEntry(LogKind.THINKING, text)
        case ToolCall(announced=False):
            return LogEntry(LogKind.TOOL, _input(event.input), event.name)
        case ToolCallResult():
            return LogEntry(LogKind.ERROR if event.is_error else LogKind.RESULT, event.text)
        case ToolCallRefused(with_result=False):
            return LogEntry(LogKind.NOTE, f"{event.tool} was refused: {event.message}")
        case ProviderRefusal():
            return LogEntry(LogKind.NOTE, f"the provider is called again: {event.words}")
        case Note(text):
            return LogEntry(LogKind.NOTE, text)
        case Trouble(text):
            return LogEntry(LogKind.ERROR, text)
        case TurnEnded():
            return _ended(event, line)
        case _:
            return None


def _ended(end: TurnEnded, line: AgentLine) -> LogEntry:
    """How a session or a turn ended; that it says so at all is its own claim."""
    kind = LogKind.END if end.failure is None else LogKind.ERROR
    spent = end.expense
    tokens = None if spent.given is None else spent.given + (spent.written or 0)
    if line.dialect != "claude":
        text = "its turn is over" if end.failure is None else end.failure.message
        return LogEntry(kind, text, tokens=tokens)
    parts = [f"not done: {end.failure.message}" if end.failure is not None else "it says that it is done"]
    if refused := remark(denied_by(iter((end,)))):
        parts.append(refused)
    if end.took is not None:
        parts.append(show(end.took))
    if end.turns is not None:
        parts.append(f"{end.turns} turn{'' if end.turns == 1 else 's'}")
    return LogEntry(kind, ", ".join(parts), cost_usd=usd(spent.cost), tokens=tokens)


def _input(value: object) -> str:
    """What a tool is given, in a line: what tells most of it, or all of it."""
    if isinstance(value, Mapping):
        told = next((value[name] for name in _SPOKEN_BY if isinstance(value.get(name), str)), None)
        value = told if told is not None else value or ""
    text = words_of(value)
    return text if len(text) <= _INPUT else f"{text[:_INPUT]}…"
