"""How many tokens a model was given and wrote, as providers and agents report it.

An answer of a provider carries `usage` under names of its own: Anthropic's messages count what came from its cache
apart, OpenAI's older interface calls the two sides prompt and completion, Gemini has `usageMetadata`. In a stream the
figures come in events, each with the newest ones. Agents report the same on their standard output: Claude Code in its
`result`, Codex at the end of every turn. What says nothing of it is None, never nought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from allswell.domain.step_receipt import Tokens

_GIVEN = ("prompt_tokens", "input_tokens", "promptTokenCount")
_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")
"""What Anthropic does not count among `input_tokens`."""
_WRITTEN = ("completion_tokens", "output_tokens", "candidatesTokenCount")
_LONGEST = 1 << 20


def of_answer(body: object) -> Tokens | None:
    """What one answer of a provider cost."""
    if not isinstance(body, Mapping):
        return None
    return _tokens(_usage(body))


def of_events(raw: bytes) -> Tokens | None:
    """What an answer cost that came as a stream of events (`data: {…}`)."""
    newest: dict[str, Any] = {}
    for line in raw.splitlines():
        if line.startswith(b"data:") and (body := _object(line[5:])) is not None:
            for part in (body, body.get("message"), body.get("response")):
                if isinstance(part, Mapping):
                    newest |= _usage(part)
    return _tokens(newest)


def of_output(lines: Iterable[bytes]) -> Tokens | None:
    """What an agent said of itself on its standard output; all its sessions and turns together."""
    found: Tokens | None = None
    for line in lines:
        if not line.startswith(b"{") or b'"usage"' not in line or (body := _object(line)) is None:
            continue
        if body.get("type") in ("result", "turn.completed"):
            found = plus(found, of_answer(body))
    return found


def plus(one: Tokens | None, other: Tokens | None) -> Tokens | None:
    """Both together; what is not known adds nothing."""
    if one is None or other is None:
        return one or other
    return Tokens(one.prompt + other.prompt, one.completion + other.completion, one.total + other.total)


def _object(line: bytes) -> Mapping[str, Any] | None:
    if len(line) > _LONGEST:
        return None
    try:
        body = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return body if isinstance(body, Mapping) else None


def _usage(body: Mapping[str, Any]) -> dict[str, Any]:
    found = body.get("usage") or body.get("usageMetadata")
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {}


def _tokens(usage: Mapping[str, Any]) -> Tokens | None:
    given, written = _first(usage, _GIVEN), _first(usage, _WRITTEN)
    if given is None and written is None:
        return None
    prompt = (given or 0) + sum(_first(usage, (name,)) or 0 for name in _CACHED)
    return Tokens(prompt, written or 0, prompt + (written or 0))


def _first(usage: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
