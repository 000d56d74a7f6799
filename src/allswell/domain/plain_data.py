"""A user's value as JSON text: what JSON cannot say is refused, and never written as something else.

JSON has no NaN and no infinity. The encoder writes them as `null`, which reads as "nothing": a lost measurement would
look like one that was never taken. A text without `null` cannot hold any, so only those that have one are looked
through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.errors import Refused

_ENCODER = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="deterministic")


def to_json(value: object, where: str) -> str:
    """JSON text of a payload or result; what JSON cannot say is refused."""
    try:
        return written(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("not_json", f"{where} cannot be written as JSON: {error}", where=where) from error


def written(value: object, *, ordered: bool = False) -> str:
    """JSON text; with `ordered`, the same for the same value. Where there is none, `TypeError`, `ValueError` or so."""
    text = (_SORTED if ordered else _ENCODER).encode(value).decode()
    if "null" not in text:
        return text
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
    except TypeError:  # `msgspec.Raw`, which is JSON already
        return text
    place = _endless(plain, "")
    if place is not None:
        raise ValueError(place)
    return text


def _endless(value: Any, place: str) -> str | None:  # noqa: ANN401 - whatever there is
    """Where a number is that has no end or is none, in words; None if there is none."""
    if isinstance(value, float):
        if math.isfinite(value):
            return None
        return f"JSON has no {value}" + (f" (at {place.lstrip('.')})" if place else "")
    if isinstance(value, Mapping):
        inner = ((f"{place}.{key}", one) for key, one in value.items())
    elif isinstance(value, list | tuple):
        inner = ((f"{place}.{number}", one) for number, one in enumerate(value))
    else:
        return None
    return next((found for where, one in inner if (found := _endless(one, where)) is not None), None)
