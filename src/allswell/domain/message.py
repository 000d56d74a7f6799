"""A message of a queue, as its handler sees it: `{"type": "order.paid", "payload": …}` and what PGMQ knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

BATCH = "allswell_batch"
"""The header that says which batch a message belongs to."""


class Message(msgspec.Struct, frozen=True):
    """What a handler is given."""

    queue: str
    id: int
    read_count: int
    """How often it was read, this time included. With the id, it is the token that its end is checked against."""
    type: str
    payload: Any
    """Whatever the sender gave, as JSON has it."""
    headers: Mapping[str, Any]


class Unreadable(msgspec.Struct, frozen=True):
    """A message that no handler can be found for by its type, because it has none."""

    why: str


def is_type(value: object) -> bool:
    """Whether it can be a message's type, whatever a caller without types gave."""
    return isinstance(value, str) and bool(value)


def read_body(body: object) -> tuple[str, object] | Unreadable:
    """The type and the payload of what lies in a queue."""
    if not isinstance(body, Mapping):
        return Unreadable(f"the message is {_named(body)}, and must be a JSON object with a `type`")
    kind = body.get("type")
    if not isinstance(kind, str) or not kind:
        return Unreadable(f"the message's `type` is {_named(kind)}, and must be text that names a handler")
    return kind, body.get("payload")


def _named(value: object) -> str:
    match value:
        case None:
            return "missing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "empty" if not value else "text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"
