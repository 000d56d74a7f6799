"""What an agent printed, line by line, as a person reads it: messages, tool calls, what came of them, what it cost.

Lines of the protocols that we know (protocol.py has them) become one entry or several; what only says that time passes
becomes none. Everything else is an entry as it stands: most programs print words. Nothing here is believed: whoever
shows an entry treats its text as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from allswell.domain.duration import show
from allswell.domain.final_line import not_done
from allswell.domain.model_usage import of_answer
from allswell.domain.protocol import LONGEST

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
    said = _object(line)
    if said is not None:
        if isinstance(said.get("session_id"), str) and said["session_id"]:
            return list(_claude(said, line))
        if isinstance(said.get("type"), str) and said["type"].partition(".")[0] in ("thread", "turn", "item"):
            return list(_codex(said, line))
    return [LogEntry(LogKind.TEXT, line.decode("utf-8", "replace").rstrip("\r\n"))]


def _object(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{") or len(line) > LONGEST:
        return None
    try:
        said = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude(said: Mapping[str, Any], line: bytes) -> Iterator[LogEntry]:
    match said.get("type"):
        case "system":
            yield from _system(said)
        case "assistant" | "user":
            message = said.get("message")
            content = message.get("content") if isinstance(message, Mapping) else message
            for part in content if isinstance(content, list) else [content]:
                yield from _part(part, by_user=said["type"] == "user")
        case "result":
            yield _ended(said, line)
        case "rate_limit_event":
            info = said.get("rate_limit_info")
            status = info.get("status") if isinstance(info, Mapping) else None
            if status not in (None, "allowed"):
                yield LogEntry(LogKind.NOTE, f"usage limit: {_words(status)}")
        case _:
            return  # pieces of messages, ticks of tools, and what is newer than we are


def _system(said: Mapping[str, Any]) -> Iterator[LogEntry]:
    subtype = said.get("subtype")
    if subtype == "init":
        model = f", {_words(said.get('model'))}" if said.get("model") else ""
        yield LogEntry(LogKind.NOTE, f"session {_words(said.get('session_id'))}{model}")
    elif subtype == "compact_boundary":
        yield LogEntry(LogKind.NOTE, "its context was compacted")
    elif subtype == "api_retry":
        yield LogEntry(LogKind.NOTE, f"the provider is called again: try {_words(said.get('attempt'))}")


def _part(part: object, *, by_user: bool) -> Iterator[LogEntry]:
    if isinstance(part, str):
        if not by_user and part.strip():
            yield LogEntry(LogKind.MESSAGE, part)
        return
    if not isinstance(part, Mapping):
        return
    match part.get("type"):
        case "text" if not by_user and _words(part.get("text")).strip():
            yield LogEntry(LogKind.MESSAGE, _words(part.get("text")))
        case "thinking" if _words(part.get("thinking")).strip():
            yield LogEntry(LogKind.THINKING, _words(part.get("thinking")))
        case "tool_use" | "server_tool_use":
            yield LogEntry(LogKind.TOOL, _input(part.get("input")), _words(part.get("name")))
        case "tool_result":
            kind = LogKind.ERROR if part.get("is_error") is True else LogKind.RESULT
            yield LogEntry(kind, _texts(part.get("content")))
        case _:
            return


def _ended(said: Mapping[str, Any], line: bytes) -> LogEntry:
    """How a session ended; that it says so at all is its own claim."""
    failure = not_done(line)
    took = said.get("duration_ms")
    turns = said.get("num_turns")
    cost = said.get("total_cost_usd")
    cost = float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0 else None
    tokens = of_answer(said)
    parts = [f"not done: {failure.message}" if failure is not None else "it says that it is done"]
    if isinstance(took, int) and took >= 0:
        parts.append(show(took))
    if isinstance(turns, int):
        parts.append(f"{turns} turn{'' if turns == 1 else 's'}")
    kind = LogKind.END if failure is None else LogKind.ERROR
    return LogEntry(kind, ", ".join(parts), cost_usd=cost, tokens=None if tokens is None else tokens.total)


# --- Codex ------------------------------------------------------------------------------------------------------------


def _codex(said: Mapping[str, Any], line: bytes) -> Iterator[LogEntry]:
    match said["type"]:
        case "thread.started":
            yield LogEntry(LogKind.NOTE, f"session {_words(said.get('thread_id'))}")
        case "item.started" | "item.completed":
            item = said.get("item")
            if isinstance(item, Mapping):
                yield from _item(item, over=said["type"] == "item.completed")
        case "turn.completed":
            tokens = of_answer(said)
            yield LogEntry(LogKind.END, "its turn is over", tokens=None if tokens is None else tokens.total)
        case "turn.failed":
            failure = not_done(line)
            yield LogEntry(LogKind.ERROR, "its turn failed" if failure is None else failure.message)
        case _:
            return


def _item(item: Mapping[str, Any], *, over: bool) -> Iterator[LogEntry]:
    match item.get("type"):
        case "agent_message" if over:
            yield LogEntry(LogKind.MESSAGE, _words(item.get("text")))
        case "reasoning" if over:
            yield LogEntry(LogKind.THINKING, _words(item.get("text")))
        case "command_execution" if not over:
            yield LogEntry(LogKind.TOOL, _words(item.get("command")), "shell")
        case "command_execution":
            code = item.get("exit_code")
            bad = isinstance(code, int) and code != 0
            said = _words(item.get("aggregated_output")).rstrip("\n")
            text = f"exit code {code}\n{said}".rstrip("\n") if bad else said
            yield LogEntry(LogKind.ERROR if bad else LogKind.RESULT, text)
        case "file_change" if over:
            changes = item.get("changes")
            listed = changes if isinstance(changes, list) else []
            paths = [_words(one.get("path")) for one in listed if isinstance(one, Mapping)]
            yield LogEntry(LogKind.TOOL, ", ".join(paths), "file_change")
        case "mcp_tool_call" if over:
            name = ".".join(filter(None, (_words(item.get("server")), _words(item.get("tool")))))
            yield LogEntry(LogKind.TOOL, _input(item.get("arguments")), name)
        case "web_search" if over:
            yield LogEntry(LogKind.TOOL, _words(item.get("query")), "web_search")
        case "error" if over:
            yield LogEntry(LogKind.ERROR, _words(item.get("message")))
        case _:
            return


# --- words ------------------------------------------------------------------------------------------------------------


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode("utf-8", "replace")


def _input(given: object) -> str:
    """What a tool is given, in a line: what tells most of it, or all of it."""
    if isinstance(given, Mapping):
        told = next((given[name] for name in _SPOKEN_BY if isinstance(given.get(name), str)), None)
        given = told if told is not None else given or ""
    text = _words(given)
    return text if len(text) <= _INPUT else f"{text[:_INPUT]}…"


def _texts(content: object) -> str:
    """What a tool brought, in words; what is no text is named."""
    if not isinstance(content, list):
        return _words(content)
    found = [one for one in content if isinstance(one, Mapping)]
    return "\n".join(_words(one.get("text")) if one.get("type") == "text" else f"[{one.get('type')}]" for one in found)
