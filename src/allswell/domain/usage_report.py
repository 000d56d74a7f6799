"""What agents themselves report of their session and their context, in the lines that Claude Code prints (O6).

How much of the session is left is told in its `rate_limit_event`s. How large the context has become is told with each
message: all that went into it, and what came out. How large it may become is not told, so whoever sets up the fleet
says it (`context_window`). What a helper of the agent's uses (`parent_tool_use_id`) is another context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.names import Millis
from allswell.domain.usage import Usage
from allswell.domain.usage_limit import LONGEST

_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def reported(line: bytes, window: int | None = None) -> Usage | None:
    """What a line says is left, in percent; None if it says nothing. `window` is how many tokens the context takes."""
    about_session = b"rate_limit_event" in line
    if len(line) > LONGEST or not (about_session or (window is not None and b'"usage"' in line)):
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
    resets = _number(info.get("resetsAt"))
    return Usage(None, (1 - used) * 100, None if resets is None else Millis(round(resets * 1_000)))


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
