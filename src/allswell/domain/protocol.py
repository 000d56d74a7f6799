"""What agents report on their standard output, line by line: who speaks which protocol, and what of it is progress.

Two are known: `claude -p --output-format stream-json` (one object a line, each with a `session_id`) and
`codex exec --json` (types with a dot, such as `item.completed`). A line counts where it reports a step of the work. It
does not where it only says that time passes (`tool_progress`, pings), that the provider is waited for (`api_retry`,
`rate_limit_event`), or that something went wrong. Unknown types are none of ours, and no error: both protocols grow.
"""

from __future__ import annotations

import msgspec


class Said(msgspec.Struct, frozen=True, gc=False):
    """One line of a protocol."""

    dialect: str
    what: str
    progress: bool
    session: str | None = None
    """By which the agent can go on later."""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    name: str = ""


class _Message(msgspec.Struct, gc=False):
    content: list[_Part] | str = ""


class _Line(msgspec.Struct, gc=False):
    type: str
    subtype: str = ""
    session_id: str = ""
    thread_id: str = ""
    message: _Message | str | None = None
    event: _Part | None = None
    item: _Part | None = None


_READ = msgspec.json.Decoder(_Line, strict=False)
LONGEST = 1 << 20
"""Bytes; a longer line is not looked at."""
_CLAUDE_STEPS = ("assistant", "user", "result")
_CODEX_STEPS = ("thread.started", "turn.started", "turn.completed", "item.started", "item.updated", "item.completed")
_CODEX_TROUBLE = ("turn.failed", "error")


def read(line: bytes) -> Said | None:
    """What a line says, if it is of a protocol that we know."""
    if not line.startswith(b"{") or len(line) > LONGEST:
        return None
    try:
        said = _READ.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _claude(said) if said.session_id else _codex(said)


def _claude(said: _Line) -> Said | None:
    kind = said.type
    if kind == "system":
        step = said.subtype in ("init", "compact_boundary")
        return Said("claude", f"system {said.subtype}"[:80], step, said.session_id)
    if kind == "stream_event":
        inner = "" if said.event is None else said.event.type
        return Said("claude", inner[:80] or kind, inner not in ("", "ping", "error"), said.session_id)
    if kind in ("tool_progress", "rate_limit_event"):
        return Said("claude", kind, False, said.session_id)
    if kind not in _CLAUDE_STEPS:
        return None
    what = said.subtype or kind
    if isinstance(said.message, _Message) and not isinstance(said.message.content, str):
        parts = [f"{part.type} {part.name}".strip() for part in said.message.content if part.type]
        what = ", ".join(parts[:3]) or kind
    return Said("claude", what[:80], True, said.session_id)


def _codex(said: _Line) -> Said | None:
    if said.type in _CODEX_TROUBLE:
        # Anything may print {"type": "error"}; it is no progress in any case.
        return Said("codex", said.type, False) if said.type == "turn.failed" else None
    if said.type not in _CODEX_STEPS:
        return None
    item = "" if said.item is None else said.item.type
    return Said("codex", f"{said.type} {item}".strip()[:80], item != "error", said.thread_id or None)


_RESUMED_BY = {"claude": "claude --resume {0}", "codex": "codex exec resume {0}"}


def resumed_by(dialect: str, session: str) -> str | None:
    """The command by which an agent goes on with a session."""
    told = _RESUMED_BY.get(dialect)
    # What an agent said is data: only what looks like an id may become part of something that people type.
    plain = 0 < len(session) <= 80 and session.isascii() and session.replace("-", "").replace("_", "").isalnum()
    return told.format(session) if told is not None and plain else None
