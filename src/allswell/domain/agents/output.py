"""What agents report on their standard output, line by line: who speaks which protocol, and what of it is progress.

Two are known: `claude -p --output-format stream-json` (one object a line, each with a `session_id`) and
`codex exec --json` (types with a dot, such as `item.completed`). A line counts where it reports a step of the work. It
does not where it only says that time passes (`tool_progress`, pings), that the provider is waited for (`api_retry`,
`rate_limit_event`), or that something went wrong. Unknown types are none of ours, and no error: both protocols grow.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from allswell.domain.agents.cost import of_answer
from allswell.domain.agents.denied import CALLS_MOST, Denied, DeniedCall, denied_call, denied_in, remark
from allswell.domain.agents.refusal import LONGEST_LIMIT_LINE, ProviderRefusal, from_claude, from_codex, instant_of
from allswell.domain.agents.usage import Usage
from allswell.domain.duration import show
from allswell.domain.service.classify import class_of_answer, shortened
from allswell.domain.service.retry import ErrorClass, Failure


class AgentLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a protocol."""

    dialect: str
    what: str
    progress: bool
    session: str | None = None
    """By which the agent can go on later."""
    refusal: ProviderRefusal | None = None
    """Set where the provider has refused, and the client tries again by itself."""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    name: str = ""


class _ModelMessage(msgspec.Struct, gc=False):
    content: list[_Part] | str = ""
    model: str = ""


class _Line(msgspec.Struct, gc=False):
    type: str
    subtype: str = ""
    session_id: str = ""
    thread_id: str = ""
    message: _ModelMessage | str | None = None
    event: _Part | None = None
    item: _Part | None = None
    error_status: object = None
    error: object = None
    attempt: object = None
    max_retries: object = None
    retry_delay_ms: object = None


_READ = msgspec.json.Decoder(_Line, strict=False)
LONGEST_LINE = 1 << 20
"""Bytes; a longer line is not looked at."""
_CLAUDE_STEPS = ("assistant", "user", "result")
_CODEX_STEPS = ("thread.started", "turn.started", "turn.completed", "item.started", "item.updated", "item.completed")
_CODEX_TROUBLE = ("turn.failed", "error")
_SYNTHETIC = "<synthetic>"
"""The model that Claude Code names where its message is an error of the provider's."""


def read_line(line: bytes) -> AgentLine | None:
    """What a line says, if it is of a protocol that we know."""
    if not line.startswith(b"{") or len(line) > LONGEST_LINE:
        return None
    try:
        said = _READ.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _progress_of_claude(said) if said.session_id else _progress_of_codex(said)


def _progress_of_claude(said: _Line) -> AgentLine | None:
    kind = said.type
    if kind == "system" and said.subtype == "api_retry":
        refusal = from_claude(said.error_status, said.error, said.attempt, said.max_retries, said.retry_delay_ms)
        return AgentLine("claude", "system api_retry", False, said.session_id, refusal)
    if kind == "system":
        step = said.subtype in ("init", "compact_boundary")
        return AgentLine("claude", f"system {said.subtype}"[:80], step, said.session_id)
    if kind == "stream_event":
        inner = "" if said.event is None else said.event.type
        return AgentLine("claude", inner[:80] or kind, inner not in ("", "ping", "error"), said.session_id)
    if kind in ("tool_progress", "rate_limit_event"):
        return AgentLine("claude", kind, False, said.session_id)
    if kind not in _CLAUDE_STEPS:
        return None
    what = said.subtype or kind
    if isinstance(said.message, _ModelMessage) and said.message.model == _SYNTHETIC:
        return AgentLine("claude", "an error of the provider", False, said.session_id)
    if isinstance(said.message, _ModelMessage) and not isinstance(said.message.content, str):
        parts = [f"{part.type} {part.name}".strip() for part in said.message.content if part.type]
        what = ", ".join(parts[:3]) or kind
    return AgentLine("claude", what[:80], True, said.session_id)


def _progress_of_codex(said: _Line) -> AgentLine | None:
    if said.type in _CODEX_TROUBLE:
        # Anything may print {"type": "error"}; it is no progress in any case.
        refusal = from_codex(said.message) if isinstance(said.message, str) else None
        known = said.type == "turn.failed" or refusal is not None
        return AgentLine("codex", said.type, False, refusal=refusal) if known else None
    if said.type not in _CODEX_STEPS:
        return None
    item = "" if said.item is None else said.item.type
    return AgentLine("codex", f"{said.type} {item}".strip()[:80], item != "error", said.thread_id or None)


BEGINNINGS = frozenset({"claude: system init", "codex: thread.started", "codex: turn.started"})
"""Evidence of clients that have begun; whether their provider answers is not known by then."""
_RESUMED_BY = {"claude": "claude --resume {0}", "codex": "codex exec resume {0}"}


def resumed_by(dialect: str, session: str) -> str | None:
    """The command by which an agent goes on with a session."""
    told = _RESUMED_BY.get(dialect)
    # What an agent said is data: only what looks like an id may become part of something that people type.
    plain = 0 < len(session) <= 80 and session.isascii() and session.replace("-", "").replace("_", "").isalnum()
    return told.format(session) if told is not None and plain else None


# What the last line of an agent's output says about its end: exit code 0 is not always done.
#
# Claude Code (`--output-format stream-json`) ends with a `result`: an error of the provider's (`is_error`, with
# `api_error_status`), a turn that something else than its end has ended (`terminal_reason`). Codex (`exec --json`) ends
# with `turn.failed`. Both may come with exit code 0. Calls that were refused (`permission_denials`) say nothing about
# the end: an agent works around most of them (denied.py).
#
# Only the very last line counts. Whoever prints something after it has gone on after it, and speaks by its exit code.
# Reasons that nobody here knows decide nothing: both protocols grow.

LONGEST_FINAL_LINE = 8 << 20
"""Bytes; of a longer line nothing is known. What was denied stands in it whole, so it can be long."""

_REASONS: Mapping[str, tuple[ErrorClass, str]] = {
    "tool_deferred": (ErrorClass.PERMANENT, "it waits for a permission"),
    "hook_stopped": (ErrorClass.PERMANENT, "a hook stopped it"),
    "max_turns": (ErrorClass.TRANSIENT, "it reached its number of turns"),
    "prompt_too_long": (ErrorClass.CONTEXT_OVERFLOW, "its prompt was too long"),
    "blocking_limit": (ErrorClass.CONTEXT_OVERFLOW, "its context was full"),
    "rapid_refill_breaker": (ErrorClass.CONTEXT_OVERFLOW, "its context was full again and again"),
    "image_error": (ErrorClass.VALIDATION, "an image could not be read"),
    "model_error": (ErrorClass.TRANSIENT, "the model failed"),
    "aborted_streaming": (ErrorClass.TRANSIENT, "it was broken off"),
    "aborted_tools": (ErrorClass.TRANSIENT, "it was broken off"),
    "background_requested": (ErrorClass.TRANSIENT, "it was sent to the background"),
    "malformed_tool_use_exhausted": (ErrorClass.TRANSIENT, "its calls of tools could not be read"),
    "structured_output_retry_exhausted": (ErrorClass.TRANSIENT, "it gave no valid structured output"),
    "turn_setup_failed": (ErrorClass.TRANSIENT, "its turn could not begin"),
    "tool_deferred_unavailable": (ErrorClass.PERMANENT, "it waits for a permission, and cannot be gone on with"),
    "budget_exhausted": (ErrorClass.PERMANENT, "it has spent its budget"),
}
"""Why a turn of Claude Code ended, where that is not done."""
_BY_SUBTYPE: Mapping[str, str] = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget_exhausted",
    "error_max_structured_output_retries": "structured_output_retry_exhausted",
}
"""The same by the kind of the last line, for clients that give no reason; some of them call that no error, either."""
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_PLAIN = 400
_PLAIN_START = re.compile(
    r"(?:error: )?(?:credit balance is too low|invalid api key|not logged in|failed to authenticate|oauth token"
    r"|prompt is too long|quota exceeded|codex ran out of room)",
    re.IGNORECASE,
)
"""What Claude Code and Codex print as their only line, where they are not asked for a protocol."""


def not_done(line: bytes) -> Failure | None:
    """Why the agent whose last line this is was not done, if it says so."""
    if not line.startswith(b"{") or len(line) > LONGEST_FINAL_LINE:
        return None
    try:
        said = msgspec.json.decode(line)
        return _end_of(said) if isinstance(said, dict) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # what could just be read may be too deep to show
        return None


def _end_of(said: dict[str, Any]) -> Failure | None:
    if said.get("type") == "result" and said.get("session_id"):
        return _end_of_claude(said)
    return _end_of_codex(said) if said.get("type") == "turn.failed" else None


def with_denied(failure: Failure, denied: Denied) -> Failure:
    """A failure with the calls that were refused before it; not where the provider's answer explains it."""
    deferred = () if failure.denied is None else failure.denied.calls
    if failure.status is not None or failure.account or not (denied.count or deferred):
        return failure
    together = msgspec.structs.replace(denied, calls=(*deferred, *denied.calls)[:CALLS_MOST])
    return msgspec.structs.replace(failure, denied=together)


def _end_of_claude(said: dict[str, Any]) -> Failure | None:
    told = _end_words(said.get("result")) or _end_words(said.get("errors")) or _end_words(said.get("subtype"))
    status, subtype, ended = said.get("api_error_status"), str(said.get("subtype")), str(said.get("terminal_reason"))
    broken = bool(said.get("is_error")) or subtype.startswith("error") or ended == "api_error"
    if broken and isinstance(status, int):
        return _by_provider(class_of_answer(status, told), told, status)
    meant = _REASONS.get(ended) or _REASONS.get(_BY_SUBTYPE.get(subtype, ""))
    if meant is not None:
        error, reason = meant
        deferred = _deferred(said.get("deferred_tool_use"))
        if deferred is not None:
            return Failure(error, shortened(f"{reason}: {deferred.text}"), denied=Denied((deferred,)))
        return Failure(error, shortened(f"{reason}: {told}" if told and broken else reason))
    if broken:
        return _by_provider(class_of_answer(None, told), told or "it reports an error", None)
    return None


def _end_of_codex(said: dict[str, Any]) -> Failure:
    error = said.get("error")
    told = _end_words(error.get("message") if isinstance(error, Mapping) else error) or "its turn failed"
    found = _STATUS.search(told[:2_000])
    status = None if found is None else int(found[1])
    return _by_provider(class_of_answer(status, _body(told)), told, status)


def _by_provider(error: ErrorClass, told: str, status: int | None) -> Failure:
    """A failure as the provider's answer has it: a refused login or a used-up quota is the whole account's."""
    return Failure(error, shortened(told), status=status, account=error in (ErrorClass.AUTH, ErrorClass.PERMANENT))


def plain_refusal(line: bytes) -> Failure | None:
    """What a last line in plain text says, where it begins with what a client prints that its provider refuses."""
    text = line[:_PLAIN].decode("utf-8", "replace").strip()
    if len(line) > _PLAIN or not _PLAIN_START.match(text):
        return None
    error = class_of_answer(None, text)
    return None if error is ErrorClass.TRANSIENT else _by_provider(error, text, None)


def _body(told: str) -> object:
    """What the provider answered, where that was handed on as it is."""
    try:
        return msgspec.json.decode(told) if told.startswith("{") else told
    except (msgspec.DecodeError, RecursionError):
        return told


def _deferred(call: object) -> DeniedCall | None:
    """The call that waits for a permission; a hook has put it off, and what a hook says counts more than an allow."""
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        return None
    return denied_call(call["name"], call.get("input"), "a hook of yours has put it off, and decides about it")


def _end_words(value: object) -> str:
    if isinstance(value, str):
        return value
    return "; ".join(str(one) for one in value) if isinstance(value, list) else ""


# What an agent printed, line by line, as a person reads it: messages, tool calls, what came of them, what it cost.
#
# Lines of the protocols that we know (`read_line`) become one entry or several; what only says that time passes becomes
# none. Everything else is an entry as it stands: most programs print words. Nothing here is believed: whoever shows an
# entry treats its text as data.

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
    with contextlib.suppress(RecursionError):  # what could just be read may be too deep to show
        if said is not None and isinstance(said.get("session_id"), str) and said["session_id"]:
            return list(_log_of_claude(said, line))
        kind = None if said is None else said.get("type")
        if said is not None and isinstance(kind, str) and kind.partition(".")[0] in ("thread", "turn", "item"):
            return list(_log_of_codex(said, line))
    return [LogEntry(LogKind.TEXT, line.decode("utf-8", "replace").rstrip("\r\n"))]


def _object(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{") or len(line) > LONGEST_LINE:
        return None
    try:
        said = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _log_of_claude(said: Mapping[str, Any], line: bytes) -> Iterator[LogEntry]:
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
    elif subtype == "permission_denied":
        yield LogEntry(LogKind.NOTE, f"{_words(said.get('tool_name'))} was refused: {_words(said.get('message'))}")


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
    if refused := remark(denied_in(line)):
        parts.append(refused)
    if isinstance(took, int) and took >= 0:
        parts.append(show(took))
    if isinstance(turns, int):
        parts.append(f"{turns} turn{'' if turns == 1 else 's'}")
    kind = LogKind.END if failure is None else LogKind.ERROR
    return LogEntry(kind, ", ".join(parts), cost_usd=cost, tokens=None if tokens is None else tokens.total)


# --- Codex ------------------------------------------------------------------------------------------------------------


def _log_of_codex(said: Mapping[str, Any], line: bytes) -> Iterator[LogEntry]:
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


# What agents themselves report of their session and their context, in the lines that Claude Code prints (O6).
#
# How much of the session is left is told in its `rate_limit_event`s. How large the context has become is told with each
# message: all that went into it, and what came out. How large it may become is not told, so whoever sets up the fleet
# says it (`context_window`). What a helper of the agent's uses (`parent_tool_use_id`) is another context.

_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def reported(line: bytes, window: int | None = None) -> Usage | None:
    """What a line says is left, in percent; None if it says nothing. `window` is how many tokens the context takes."""
    about_session = b"rate_limit_event" in line
    if len(line) > LONGEST_LIMIT_LINE or not (about_session or (window is not None and b'"usage"' in line)):
        return None
    try:
        said = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    return _session(said) if about_session else _context(said, window or 0)


def _session(said: dict[str, Any]) -> Usage | None:
    info = said.get("rate_limit_info")
    if not isinstance(info, Mapping):
        return None
    used = _number(info.get("utilization"))
    if used is None or not 0 <= used <= 1:
        return None
    return Usage(None, (1 - used) * 100, instant_of(info.get("resetsAt")))


def _context(said: dict[str, Any], window: int) -> Usage | None:
    message = said.get("message")
    if said.get("type") != "assistant" or said.get("parent_tool_use_id") or not isinstance(message, Mapping):
        return None
    usage = message.get("usage")
    if not isinstance(usage, Mapping):
        return None
    used = sum(_number(usage.get(name)) or 0 for name in _TOKENS)
    return Usage(max(1 - used / window, 0) * 100) if used > 0 else None


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# The text of a check-in, in the two forms that agents were taught by the original protocol (O2, O3).
#
#     CHECKPOINT: <task>                     CHECKPOINT: <task>
#     Status: …                              Progress: 40%
#     Completed: …                           Current Activity: …
#     Remaining: …                           Blockers: …
#     Files Modified: …                      Estimated Remaining: …
#     Estimated Progress: 40%
#
# Agents write prose around it, markdown on it and lists below it, so reading is generous: labels in any case and order,
# with stars, dashes or a number before them; a value on the same line, on those below, or both. Nothing is required but
# the first line and one known label. Where a text has several, the last one counts: it is the newest.
#
# The text itself is kept as the check-in's note and goes to the next holder as it was written; what is read here is
# what the watch acts upon and shows (how far the work is, what blocks it).

_HEAD = re.compile(r"^[ \t>#*_`-]*CHECKPOINT\b[*_`]*\s*:[*_`]*[ \t]*(?P<task>[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_LABELS = {
    "status": "status",
    "completed": "completed",
    "remaining": "remaining",
    "files modified": "files",
    "estimated progress": "progress",
    "progress": "progress",
    "current activity": "activity",
    "blockers": "blockers",
    "estimated remaining": "time_left",
}
_LABEL = re.compile(
    r"^[\s>*_#`\d.)-]*(?P<label>"
    + "|".join(sorted(_LABELS, key=len, reverse=True))
    + r")[*_`]*\s*:[*_`]*(?P<value>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|\[[ xX]\])\s+")
_PERCENT = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:%|percent\b)", re.IGNORECASE)
_PARTS = re.compile(r"(\d+)\s*(?:/|of|out of)\s*(\d+)", re.IGNORECASE)
_SHARE = re.compile(r"\s*([01](?:\.\d+)?|\.\d+)\s*")
_SHOWN = 200
"""Characters in which a share must stand: what an agent writes is searched, so it is bounded."""
_NOTHING = frozenset(("", "none", "n/a", "na", "-", "nothing", "no", "no blockers"))


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent wrote, as far as it could be read."""

    task: str
    status: str = ""
    completed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    progress: float | None = None
    """A share from 0 to 1."""
    activity: str = ""
    blockers: tuple[str, ...] = ()
    time_left: str = ""
    """In the agent's own words: nobody's deadline moves for it."""


def read_checkpoint(text: str) -> Checkpoint | None:
    """The last checkpoint in a text; None if there is none."""
    heads = list(_HEAD.finditer(text)) if "checkpoint" in text.casefold() else []
    for place in range(len(heads) - 1, -1, -1):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        found = _fields(text[heads[place].end() : end].splitlines())
        if found:
            return _checkpoint(heads[place]["task"].strip().strip("*_`[]<> "), found)
    return None


def progress_in(text: str) -> float | None:
    """How far the work is, where a text holds a checkpoint that says so."""
    found = read_checkpoint(text)
    return None if found is None else found.progress


def _fields(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each label. Prose after an empty line belongs to nobody; a list goes on over empty lines."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    gap = False
    for line in lines:
        if label := _LABEL.match(line):
            current = found.setdefault(_LABELS[label["label"].lower()], [])
            current.clear()  # the same label again: what was said last holds
            line = label["value"]  # noqa: PLW2901 - the rest of it
        elif not line.strip():
            gap = True
            continue
        elif gap and not _BULLET.match(line):
            current = None
        if current is not None:
            current += [value] if (value := _BULLET.sub("", line).strip().strip("*_`").strip()) else []
        gap = False
    return found


def _checkpoint(task: str, found: dict[str, list[str]]) -> Checkpoint:
    return Checkpoint(
        task,
        " ".join(found.get("status", ())),
        _listed(found.get("completed", [])),
        _listed(found.get("remaining", [])),
        tuple(name.strip("`") for name in _listed(found.get("files", []))),
        _share(" ".join(found.get("progress", ()))),
        " ".join(found.get("activity", ())),
        _listed(found.get("blockers", [])),
        " ".join(found.get("time_left", ())),
    )


def _listed(lines: list[str]) -> tuple[str, ...]:
    """A list, written below each other or with commas on one line; the words for nothing are nothing."""
    parts = [part.strip().strip("`") for part in lines[0].split(",")] if len(lines) == 1 else lines
    return tuple(part for part in parts if part.casefold().rstrip(".") not in _NOTHING)


def _share(words: str) -> float | None:
    words = words[:_SHOWN]
    if percent := _PERCENT.search(words):
        share = float(percent[1].replace(",", ".")) / 100
    elif (parts := _PARTS.search(words)) and int(parts[2]):
        share = int(parts[1]) / int(parts[2])
    elif plain := _SHARE.fullmatch(words):
        share = float(plain[1])
    else:
        return None
    return share if 0 <= share <= 1 else None
