"""What the fake provider can be told to do with a request. Each act is a value, so a script of them can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class Act(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """One way to answer."""


class Reply(Act, frozen=True, tag=True):
    """Answer well, as a stream if one was asked for."""

    text: str = "All's well."


class CallTool(Act, frozen=True, tag=True):
    """Answer well, by having the client call a tool of its own."""

    name: str
    arguments: Mapping[str, Any] = {}
    namespace: str = ""
    """Where OpenAI's responses find the tool, if it stands in a group of them."""


class Fail(Act, frozen=True, tag=True):
    """Answer with an error status, and a body in the words of the API that was called."""

    status: int = 500
    code: str = ""
    """The machine-readable code or type; by default the one that fits the status."""
    message: str = "This is what you asked for."
    headers: Mapping[str, str] = {}


class Hang(Act, frozen=True, tag=True):
    """Take the request and never answer."""


class Drip(Act, frozen=True, tag=True):
    """Answer well, a byte at a time."""

    every: int = 20
    """Milliseconds between two bytes."""
    text: str = "All's well."


class Reset(Act, frozen=True, tag=True):
    """Take the request and reset the connection."""


class BreakOff(Act, frozen=True, tag=True):
    """Begin to answer well, and reset the connection in the middle."""

    after: int = 2
    """So many events of a stream are sent; of any other answer, half of the body."""
    text: str = "All's well."


class Garble(Act, frozen=True, tag=True):
    """Answer 200 and application/json with something that is no JSON."""


class FailInStream(Act, frozen=True, tag=True):
    """Begin a stream well, and report an error in it."""

    after: int = 2
    code: str = "overloaded_error"
    message: str = "This is what you asked for."
    text: str = "All's well."


AnyAct = Reply | CallTool | Fail | Hang | Drip | Reset | BreakOff | Garble | FailInStream


def rate_limited(retry_after: str | None = None, *, ms: int | None = None) -> Fail:
    """429, with a Retry-After in any form you like, or `retry-after-ms`, or neither."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Fail(429, headers=headers if ms is None else {**headers, "retry-after-ms": str(ms)})


def overloaded() -> Fail:
    """529, as an overloaded provider answers."""
    return Fail(529, "overloaded_error", "Overloaded")


def unauthorized() -> Fail:
    """401: the key is wrong."""
    return Fail(401, message="invalid x-api-key")


def quota_used_up(api: Literal["openai", "anthropic"] = "openai") -> Fail:
    """What a provider says when there is nothing left to pay with."""
    if api == "openai":
        return Fail(429, "insufficient_quota", "You exceeded your current quota, please check your plan.")
    return Fail(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.")


def context_overflow(api: Literal["openai", "anthropic"] = "openai") -> Fail:
    """What a provider says to a prompt that is too long."""
    if api == "openai":
        return Fail(400, "context_length_exceeded", "This model's maximum context length is 8192 tokens.")
    return Fail(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
