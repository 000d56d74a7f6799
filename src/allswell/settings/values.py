"""Kinds of values: how each is read from TOML and the environment, shown to people, and told to editors.

`KINDS` is the one table of them. Settings (`schema.py`) and the fields of named tables (`tables.py`) name a kind, and
`read_value` reads all of them; what does not fit is `InvalidValue`, which names the setting and says what it must be.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from allswell.domain import duration
from allswell.domain.values import command_of, hide
from allswell.errors import Refused

DURATION_PATTERN = r"^\s*((\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+|\d+\s*)$"
Value = bool | int | float | str | None


class SettingKind(StrEnum):
    """What a setting's value is."""

    TEXT = "text"
    DURATION = "duration"
    SECONDS = "seconds"
    """As a duration, but a bare number is seconds: what pools and queues are set with elsewhere."""
    COUNT = "count"
    SHARE = "share"
    PERCENT = "percent"
    SIZE = "size"
    MONEY = "money"
    """Dollars."""
    PRICE = "price"
    """Dollars for a million of something; nothing is a price too."""
    CHOICE = "choice"
    COMMAND = "command"
    """A program with its arguments: a list of words, or a text that is split into words, without a shell."""
    # What fields of named tables hold besides (`tables.py`).
    INTEGER = "integer"
    """A whole number, below 0 too."""
    PROSE = "prose"
    """Any text, of several lines too."""
    WORDS = "words"
    """The words of a command."""
    NAMES = "names"
    ONE_OR_MORE = "one_or_more"
    """A name, or a list of them."""
    FLAG = "flag"
    VARIABLES = "variables"
    """Of an environment."""
    ROUTES = "routes"
    """Whom to tell, by severity."""


FieldKind = SettingKind | tuple[str, ...]
"""What a field holds: a value of a kind, or one of these words."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB)", re.IGNORECASE)
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_FLAGS = {"true": True, "false": False}
_SEVERITIES = ("info", "warning", "critical")


class InvalidValue(Exception):
    """A value that is not what its setting wants; the message says what would be."""


def read_value(kind: FieldKind, raw: object, name: str, more: str = "") -> Any:  # noqa: ANN401 - as its kind has it
    """A value of a kind; `InvalidValue` with its name, what it must be, and `more`, if it is not."""
    if isinstance(kind, tuple):
        value = raw if raw in kind else None
        wanted = " or ".join(filter(None, (", ".join(f'"{one}"' for one in kind[:-1]), f'"{kind[-1]}"')))
    else:
        try:
            value = KINDS[kind].read(raw, name)
        except Refused as error:
            raise InvalidValue(error.message) from None
        wanted = KINDS[kind].wanted
    if value is None:
        raise InvalidValue(f"{name} must be {wanted}{more}")
    return value


def show_value(kind: SettingKind, value: Value) -> str:
    """A value as people read it; passwords are never shown."""
    return KINDS[kind].show(value)


def shape(kind: FieldKind, none: str | None = None) -> dict[str, Any]:
    """What a value of a kind is in JSON Schema; `none` stands for "no value" there."""
    shapes = [{"enum": list(kind)}] if isinstance(kind, tuple) else [dict(one) for one in KINDS[kind].shapes]
    shapes += [] if none is None else [{"const": none}]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _text(raw: object, _: str) -> str | None:
    return raw if isinstance(raw, str) and raw.strip() and raw.isprintable() else None


def _prose(raw: object, _: str) -> str | None:
    return raw if isinstance(raw, str) and "\0" not in raw else None


def _command(raw: object, name: str) -> str | None:
    return shlex.join(command_of(raw, name)) or None


def _words(raw: object, name: str) -> tuple[str, ...] | None:
    words = _names(raw, name)
    return words if words and not any("\0" in word for word in words) else None


def _names(raw: object, _: str) -> tuple[str, ...] | None:
    return tuple(raw) if isinstance(raw, list) and all(isinstance(word, str) for word in raw) else None


def _one_or_more(raw: object, name: str) -> tuple[str, ...] | None:
    return (raw,) if isinstance(raw, str) else _names(raw, name)


def _routes(raw: object, name: str) -> dict[str, tuple[str, ...]] | None:
    if not isinstance(raw, dict):
        return None
    return {severity: read_value(SettingKind.ONE_OR_MORE, told, f"{name}.{severity}") for severity, told in raw.items()}


def _variables(raw: object, _: str) -> dict[str, str] | None:
    return dict(raw) if isinstance(raw, dict) and all(isinstance(value, str) for value in raw.values()) else None


def _flag(raw: object, _: str) -> bool | None:
    return raw if isinstance(raw, bool) else _FLAGS.get(raw) if isinstance(raw, str) else None


def _duration(raw: object, name: str) -> int | None:
    return None if isinstance(raw, bool) or not isinstance(raw, int | str) else duration.parse(raw, where=name)


def _seconds(raw: object, name: str) -> float | None:
    seconds = _number(raw)
    if seconds is None:
        try:
            length = _duration(raw, name) if isinstance(raw, str) else None
        except Refused:  # its words are about milliseconds
            return None
        return None if length is None else _plain(length / 1_000)
    if not 0 <= seconds * 1_000 <= duration.LONGEST:
        raise InvalidValue(f"{name} must be between 0 and 366 days")
    return _plain(seconds)


def _integer(raw: object, _: str) -> int | None:
    number = _number(raw)
    return int(number) if number is not None and number.is_integer() and not isinstance(raw, float) else None


def _count(raw: object, name: str) -> int | None:
    number = _integer(raw, name)
    return number if number is not None and number >= 0 else None


def _share(raw: object, _: str) -> float | None:
    number = _number(raw)
    return number if number is not None and 0 <= number <= 1 else None


def _percent(raw: object, _: str) -> float | None:
    number = _number(raw.removesuffix("%") if isinstance(raw, str) else raw)
    return _plain(number) if number is not None and 0 < number < 100 else None


def _size(raw: object, _: str) -> int | None:
    if isinstance(raw, str) and (parts := _SIZE.fullmatch(raw.strip())):
        return round(float(parts[1]) * _SIZES[parts[2].lower()])
    number = _number(raw)
    return int(number) if number is not None and number >= 0 and number.is_integer() else None


def _money(raw: object, _: str) -> float | None:
    number = _number(raw)
    return _plain(number) if number is not None and 0 < number <= 1_000_000 else None


def _price(raw: object, _: str) -> float | None:
    number = _number(raw)
    return number if number is not None and 0 <= number <= 1_000_000 and not isinstance(raw, str) else None


def _plain(number: float) -> float:
    return int(number) if number.is_integer() else number


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    if isinstance(raw, str) and ("_" in raw or not raw.isascii()):
        return None  # Python would read a number there, and people might read another one
    try:
        number = float(raw)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < 2**53 else None


def described(raw: object) -> str:
    """What a source gives, in a few words."""
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"


def _show_number(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_text(value: Value) -> str:
    return hide(str(value))


def _show_length(length: Value) -> str:
    words = duration.show(int(length or 0))
    return words if duration.parse(words) == length else f"{length}ms"


def _show_size(value: Value) -> str:
    size = int(value or 0)
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= _SIZES[unit.lower()]:
            return f"{size / _SIZES[unit.lower()]:g}{unit}"
    return f"{size}B"


class ValueKind(NamedTuple):
    """What is known about a kind of values."""

    wanted: str
    """What a value must be, in words."""
    read: Callable[[object, str], Any]
    """The value, by what a source gives and its name; None (or `Refused`) where it does not fit."""
    shapes: tuple[dict[str, Any], ...]
    """What it is in JSON Schema: one of these."""
    show: Callable[[Value], str] = _show_text
    """How people read it."""


_TEXT: dict[str, Any] = {"type": "string"}
_LIST: dict[str, Any] = {"type": "array", "items": _TEXT}
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
_FRACTIONS = DURATION_PATTERN.replace(r"|\d+\s*)", r"|\d+(\.\d+)?\s*)")
_SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]?[bB])\s*$"
KINDS: dict[SettingKind, ValueKind] = {
    SettingKind.TEXT: ValueKind("text", _text, (_TEXT | {"minLength": 1},)),
    SettingKind.DURATION: ValueKind(
        'milliseconds, or a duration such as "15m"',
        _duration,
        (_WHOLE, _TEXT | {"pattern": DURATION_PATTERN}),
        _show_length,
    ),
    SettingKind.SECONDS: ValueKind(
        'seconds, or a duration such as "30s"',
        _seconds,
        ({"type": "number", "minimum": 0}, _TEXT | {"pattern": _FRACTIONS}),
        lambda value: _show_length(round(float(value or 0) * 1_000)),
    ),
    SettingKind.COUNT: ValueKind("a whole number, 0 or more", _count, ({"type": "integer"},), _show_number),
    SettingKind.INTEGER: ValueKind("a whole number", _integer, ({"type": "integer"},), _show_number),
    SettingKind.SHARE: ValueKind(
        "a number between 0 and 1", _share, ({"type": "number", "minimum": 0, "maximum": 1},), _show_number
    ),
    SettingKind.PERCENT: ValueKind(
        "a percentage, more than 0 and less than 100",
        _percent,
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100},),
        lambda value: f"{_show_number(value)}%",
    ),
    SettingKind.SIZE: ValueKind(
        'bytes, or a size such as "500MB"', _size, (_WHOLE, _TEXT | {"pattern": _SIZE_PATTERN}), _show_size
    ),
    SettingKind.MONEY: ValueKind(
        "an amount of dollars, more than 0",
        _money,
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000},),
        _show_number,
    ),
    SettingKind.PRICE: ValueKind(
        "dollars for a million tokens, 0 or more", _price, ({"type": "number", "minimum": 0, "maximum": 1_000_000},)
    ),
    SettingKind.CHOICE: ValueKind("one of its choices", _text, (_TEXT,)),
    SettingKind.COMMAND: ValueKind(
        'a command: ["make", "test"] or "make test"', _command, (_TEXT, _LIST | {"minItems": 1})
    ),
    SettingKind.PROSE: ValueKind("text", _prose, (_TEXT,)),
    SettingKind.WORDS: ValueKind(
        'a list of words, such as ["claude", "-p", "{prompt}"]; nothing goes through a shell',
        _words,
        (_LIST | {"minItems": 1},),
    ),
    SettingKind.NAMES: ValueKind('a list of names, such as ["ANTHROPIC_*"]', _names, (_LIST,)),
    SettingKind.ONE_OR_MORE: ValueKind("a name, or a list of names", _one_or_more, (_TEXT, _LIST)),
    SettingKind.FLAG: ValueKind(
        "true or false", _flag, ({"type": "boolean"},), lambda value: "true" if value else "false"
    ),
    SettingKind.VARIABLES: ValueKind(
        'a table of text, such as { LOG = "info" }', _variables, ({"type": "object", "additionalProperties": _TEXT},)
    ),
    SettingKind.ROUTES: ValueKind(
        'a table, such as { warning = ["env:SLACK_URL"], critical = ["env:PAGER_URL"] }',
        _routes,
        (
            {
                "type": "object",
                "propertyNames": {"enum": list(_SEVERITIES)},
                "additionalProperties": {"anyOf": [_TEXT, _LIST]},
            },
        ),
    ),
}
