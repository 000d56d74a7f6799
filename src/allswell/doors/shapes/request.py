"""A request to an expert."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class RequestedShape(Struct, frozen=True):
    """How a request to an expert stands; `result` is what came of it, or why nothing did."""

    request_id: str
    state: str
    result: Any
