"""What the last line of an agent's output says about its end: exit code 0 is not always done.

Claude Code (`--output-format stream-json`) ends with a `result`: an error of the provider's (`is_error`, with
`api_error_status`), a turn that something else than its end has ended (`terminal_reason`), tools that it was not
allowed to use (`permission_denials`). Codex (`exec --json`) ends with `turn.failed`. Both may come with exit code 0.

Only the very last line counts. Whoever prints something after it has gone on after it, and speaks by its exit code.
Reasons that nobody here knows decide nothing: both protocols grow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.classify import shortened
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.status import class_of_answer

LONGEST = 8 << 20
"""Bytes; of a longer line nothing is known. What was denied stands in it whole, so it can be long."""
_SHOWN = 3
"""Denied tools that are named."""
_INPUT = 200

_REASONS: Mapping[str, tuple[ErrorClass, str]] = {
    "tool_deferred": (ErrorClass.AUTH, "it waits for a permission"),
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
}
"""Why a turn of Claude Code ended, where that is not done."""
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")


def not_done(line: bytes) -> Failure | None:
    """Why the agent whose last line this is was not done, if it says so."""
    if not line.startswith(b"{") or len(line) > LONGEST:
        return None
    try:
        said = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    if said.get("type") == "result" and said.get("session_id"):
        return _claude(said)
    return _codex(said) if said.get("type") == "turn.failed" else None


def _claude(said: dict[str, Any]) -> Failure | None:
    told = _words(said.get("result")) or _words(said.get("errors")) or _words(said.get("subtype"))
    status = said.get("api_error_status")
    if said.get("is_error") and isinstance(status, int):
        return Failure(class_of_answer(status, told), shortened(told), status=status)
    meant = _REASONS.get(str(said.get("terminal_reason")))
    if meant is not None:
        error, reason = meant
        about = _tool(said.get("deferred_tool_use"), "name", "input") or (told if said.get("is_error") else "")
        return Failure(error, shortened(f"{reason}: {about}" if about else reason))
    if said.get("is_error"):
        return Failure(class_of_answer(None, told), shortened(told or "it reports an error"))
    denied = said.get("permission_denials")
    if isinstance(denied, list) and denied:
        shown = [tool for one in denied[:_SHOWN] if (tool := _tool(one, "tool_name", "tool_input"))]
        more = f" and {len(denied) - len(shown)} more" if shown and len(denied) > len(shown) else ""
        return Failure(ErrorClass.AUTH, shortened(f"it was not allowed to use {', '.join(shown) or 'a tool'}{more}"))
    return None


def _codex(said: dict[str, Any]) -> Failure:
    error = said.get("error")
    told = _words(error.get("message") if isinstance(error, Mapping) else error) or "its turn failed"
    found = _STATUS.search(told[:2_000])
    status = None if found is None else int(found[1])
    return Failure(class_of_answer(status, _body(told)), shortened(told), status=status)


def _body(told: str) -> object:
    """What the provider answered, where that was handed on as it is."""
    try:
        return msgspec.json.decode(told) if told.startswith("{") else told
    except (msgspec.DecodeError, RecursionError):
        return told


def _tool(one: object, name: str, given: str) -> str:
    """A tool with what it was to do, in a few words."""
    if not isinstance(one, Mapping) or not isinstance(one.get(name), str):
        return ""
    text = msgspec.json.encode(one.get(given)).decode()
    return f"{one[name]} {text if len(text) <= _INPUT else text[:_INPUT] + '…'}"


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    return "; ".join(str(one) for one in value) if isinstance(value, list) else ""
