"""One parameter of a command, as its signature declares it: its kind, its default, and what a value of it may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from allswell.domain.duration import LONGEST as LONGEST_TIME
from allswell.doors.cli.commands import LONGEST
from allswell.doors.cli.options import TIME, WHEN, Declared
from allswell.doors.cli.width import cut

Value = str | int | float | bool | list[str] | None
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # which 64 bits can hold, with which every store counts
_BARE = re.compile(r"[0-9]{1,18}(\.[0-9]+)?|\.[0-9]+", re.ASCII)
ASK_FOR_UNIT = 10_000
"""A bare number above this many seconds was perhaps meant as milliseconds, so it is asked for its unit."""
_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}
_NOTHING = object()
"""The default of what must be given."""


class Parameter:
    """One parameter of a command."""

    def __init__(self, name: str, annotation: object, default: object) -> None:
        kind, declared = get_args(annotation)[:2]
        assert isinstance(declared, Declared)  # noqa: S101 - a signature of ours
        if get_origin(kind) in (Union, UnionType):
            kind = next(member for member in get_args(kind) if member is not NoneType)
        self.name = name
        self.declared = declared
        self.default = default
        self.listed = get_origin(kind) is list
        self.kind: object = get_args(kind)[0] if self.listed else kind

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is _NOTHING

    @property
    def flag(self) -> bool:
        """Whether it is given without a value."""
        return self.kind is bool

    @property
    def placed(self) -> bool:
        """Whether it is given by its place."""
        return not self.declared.names and not self.declared.rest

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values it may have, where it says so."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def metavar(self) -> str:
        """What stands for its value."""
        return self.declared.metavar or "|".join(self.choices) or self.name.upper()

    @property
    def title(self) -> str:
        """How it is spoken of: by its first name, or by what stands for it."""
        return self.declared.names[0] if self.declared.names else self.metavar

    @property
    def bounds(self) -> str:
        """The least and the most that a number may be, in words; empty where it may be any."""
        least, most = self.declared.min, self.declared.max
        if least is None:
            return "" if most is None else f"at most {most:,}"
        return f"at least {least:,}" if most is None else f"from {least:,} to {most:,}"

    @property
    def shown_default(self) -> str:
        """What holds where it is not given, if that is worth showing."""
        if self.required or not self.declared.show_default or self.default is None or self.default is False:
            return ""
        return str(self.default)

    @property
    def expected(self) -> str:
        """What a value of it must be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is int and not self.bounds:
            return "a whole number of at most 18 digits"
        return f"{_KINDS.get(self.kind, 'text')} {self.bounds}".rstrip()

    @property
    def timed(self) -> bool:
        """Whether its values are lengths of time, or may be."""
        return self.declared.metavar in (TIME, WHEN)

    def typed(self, text: str) -> str:
        """A text that was typed as its value: for a length of time, with the unit that a bare number has there."""
        return with_unit(text, moment=self.declared.metavar == WHEN) if self.timed else text

    def value(self, text: str) -> str | int | float:
        """A value of its kind; `ValueError` says what it must be."""
        value = self._converted(text)
        if value is None or not self._fits(value):
            raise ValueError(f"it must be {self.expected}, not {cut(text, LONGEST)!r}")
        return value

    def _converted(self, text: str) -> str | int | float | None:
        if self.kind is int:
            return int(text) if _INTEGER.fullmatch(text) else None
        if self.kind is float:
            return float(text) if NUMBER.fullmatch(text) else None
        return text

    def _fits(self, value: str | float) -> bool:
        if isinstance(value, str):
            return not self.choices or value in self.choices
        least, most = self.declared.min, self.declared.max
        return isfinite(value) and (least is None or value >= least) and (most is None or value <= most)


def with_unit(text: str, *, moment: bool = False) -> str:
    """A length of time that somebody typed, with its unit: a bare number is seconds; `moment` may be a date instead."""
    bare = text.strip()
    if not _BARE.fullmatch(bare):
        return text
    seconds = float(bare)
    if moment and seconds > LONGEST_TIME:  # milliseconds since 1970
        return text
    if seconds > ASK_FOR_UNIT:
        raise ValueError(f"seconds or milliseconds? Write {bare}s or {bare}ms, or 15m, 2h")
    return f"0{bare}s" if bare.startswith(".") else f"{bare}s"


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command, in order."""
    # As `inspect.signature` would tell; importing it costs as much as looking into the store does.
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    last = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(last) : code.co_argcount], last, strict=True))
    defaults |= function.__kwdefaults__ or {}
    hints = get_type_hints(function, include_extras=True)
    return [Parameter(name, hints[name], defaults.get(name, _NOTHING)) for name in names]
