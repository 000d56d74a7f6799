"""Reading and showing the value of a setting: as TOML has it, as the environment has it, as people read it."""

from __future__ import annotations

import math
import re
import shlex

from allswell.domain import duration
from allswell.domain.values import command_of, hide
from allswell.errors import Refused
from allswell.settings.schema import Setting, SettingKind, Value

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB)", re.IGNORECASE)
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}

WANTED = {
    SettingKind.TEXT: "text",
    SettingKind.DURATION: 'milliseconds, or a duration such as "15m"',
    SettingKind.SECONDS: 'seconds, or a duration such as "30s"',
    SettingKind.COUNT: "a whole number",
    SettingKind.SHARE: "a number between 0 and 1",
    SettingKind.PERCENT: "a percentage, more than 0 and less than 100",
    SettingKind.SIZE: 'bytes, or a size such as "500MB"',
    SettingKind.MONEY: "an amount of dollars, more than 0",
    SettingKind.CHOICE: "one of its choices",
    SettingKind.COMMAND: 'a command: ["make", "test"] or "make test"',
}


class UnfitValue(Exception):
    """A value that is not what its setting wants; the message says what would be."""


def read(setting: Setting, raw: object) -> Value:
    """The value that a source gives. Text is read as a number where one is wanted: the environment has only text."""
    if setting.none is not None and raw == setting.none:
        return None
    value = _read(setting.kind, raw, setting.name)
    if setting.choices and value not in setting.choices:
        value = None
    if value is None:
        also = "" if setting.none is None else f', or "{setting.none}"'
        wanted = " or ".join(f'"{choice}"' for choice in setting.choices) or WANTED[setting.kind]
        shown = hide(raw) if setting.name == "store" and isinstance(raw, str) else raw
        raise UnfitValue(f"{setting.name} must be {wanted}{also}, not {_described(shown)}")
    return value


def _read(kind: SettingKind, raw: object, name: str) -> Value:
    match kind:
        case SettingKind.TEXT | SettingKind.CHOICE:
            return raw if isinstance(raw, str) and raw.strip() and raw.isprintable() else None
        case SettingKind.COMMAND:
            return _command(raw, name)
        case SettingKind.DURATION:
            return _duration(raw, name)
        case SettingKind.SECONDS:
            return _seconds(raw, name)
        case SettingKind.COUNT:
            number = _number(raw)
            return int(number) if number is not None and number.is_integer() and not isinstance(raw, float) else None
        case SettingKind.SHARE:
            number = _number(raw)
            return number if number is not None and 0 <= number <= 1 else None
        case SettingKind.PERCENT:
            number = _number(raw.removesuffix("%") if isinstance(raw, str) else raw)
            if number is None or not 0 < number < 100:
                return None
            return _plain(number)
        case SettingKind.SIZE:
            return _size(raw)
        case SettingKind.MONEY:
            number = _number(raw)
            return _plain(number) if number is not None and 0 < number <= 1_000_000 else None


def _command(raw: object, name: str) -> str | None:
    try:
        return shlex.join(command_of(raw, name)) or None
    except Refused as error:
        raise UnfitValue(error.message) from None


def _duration(raw: object, name: str) -> int | None:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return None
    try:
        return duration.parse(raw, where=name)
    except Refused as error:
        raise UnfitValue(error.message) from None


def _seconds(raw: object, name: str) -> float | None:
    seconds = _number(raw)
    if seconds is None:
        try:
            length = _duration(raw, name) if isinstance(raw, str) else None
        except UnfitValue:  # its words are about milliseconds
            return None
        return None if length is None else _plain(length / 1_000)
    if not 0 <= seconds * 1_000 <= duration.LONGEST:
        raise UnfitValue(f"{name} must be between 0 and 366 days")
    return _plain(seconds)


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


def _size(raw: object) -> int | None:
    if isinstance(raw, str) and (found := _SIZE.fullmatch(raw.strip())):
        return round(float(found[1]) * _SIZES[found[2].lower()])
    number = _number(raw)
    return int(number) if number is not None and number >= 0 and number.is_integer() else None


def _described(raw: object) -> str:
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    text = repr(raw)
    return text if len(text) <= 60 else text[:57] + "…"


def show(setting: Setting, value: Value) -> str:
    """A value as people read it, and as a file would take it; passwords are never shown."""
    if value is None:
        return setting.none or "-"
    match setting.kind:
        case SettingKind.DURATION:
            return _show_length(int(value))
        case SettingKind.SECONDS:
            return _show_length(round(float(value) * 1_000))
        case SettingKind.PERCENT:
            return f"{value:g}%" if isinstance(value, float) else f"{value}%"
        case SettingKind.SIZE:
            return _show_size(int(value))
        case SettingKind.MONEY:
            return f"{value:g}" if isinstance(value, float) else str(value)
        case SettingKind.TEXT | SettingKind.CHOICE | SettingKind.COMMAND:
            return hide(str(value))
        case SettingKind.COUNT | SettingKind.SHARE:
            return f"{value:g}" if isinstance(value, float) else str(value)


def _show_length(length: int) -> str:
    words = duration.show(length)
    return words if duration.parse(words) == length else f"{length}ms"


def _show_size(size: int) -> str:
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= _SIZES[unit.lower()]:
            return f"{size / _SIZES[unit.lower()]:g}{unit}"
    return f"{size}B"
