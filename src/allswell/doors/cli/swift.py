"""Reading a command line that is right, without Typer: what agents and people type most must start at once.

Importing Typer and reading signatures with it takes longer than all the rest of `allswell tasks`. So a command line is
first read here, by the same declarations. Whatever is not plainly right (an unknown option, a value of the wrong kind,
a cry for help) is left to Typer, which knows how to say what is wrong. A test holds both to the same understanding.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from allswell.doors.cli.options import Declared

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
Value = str | int | float | bool | list[str] | None
_NOTHING = object()
"""The default of what must be given."""


class Unclear(Exception):
    """Not plainly right: let Typer have a look."""


class Parameter:
    """One parameter of a command, as its signature declares it."""

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

    def value(self, text: str) -> Value:
        """A value of its kind."""
        if get_origin(self.kind) is Literal:
            if text in get_args(self.kind):
                return text
        elif self.kind is str:
            return text
        elif self.kind is int and _INTEGER.fullmatch(text):
            return self._bounded(int(text))
        elif self.kind is float and _NUMBER.fullmatch(text):
            return self._bounded(float(text))
        raise Unclear

    def _bounded(self, number: float) -> float:
        least, most = self.declared.min, self.declared.max
        if (least is not None and number < least) or (most is not None and number > most):
            raise Unclear
        return number


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


def read(function: Callable[..., None], args: Sequence[str]) -> dict[str, Any] | None:
    """What to call a command with, or None where Typer should have a look."""
    known = parameters(function)
    try:
        given = _given(known, iter(args))
        for one in known:
            variable = one.declared.envvar and os.environ.get(one.declared.envvar)
            if one.name not in given and variable:
                given[one.name] = one.value(variable)
    except Unclear:
        return None
    if any(one.required and one.name not in given for one in known):
        return None
    return {one.name: given.get(one.name, one.default) for one in known}


def _given(known: Sequence[Parameter], rest: Iterator[str]) -> dict[str, Value]:
    named = {name: one for one in known for name in one.declared.names}
    places = iter([one for one in known if not one.declared.names and not one.declared.rest])
    behind = next((one for one in known if one.declared.rest), None)
    given: dict[str, Value] = {}
    for word in rest:
        if word == "--" and behind is not None:
            given[behind.name] = list(rest)
            break
        if word == "-" or not word.startswith("-"):
            place = next(places, None)
            if place is None:
                raise Unclear
            given[place.name] = place.value(word)
            continue
        name, sign, text = word.partition("=") if word.startswith("--") else (word, "", "")
        one = named.get(name)
        if one is None:
            raise Unclear
        if one.kind is bool:
            if sign:
                raise Unclear
            given[one.name] = True
            continue
        value = one.value(text if sign else _next(rest))
        if one.listed:
            before = given.get(one.name)
            given[one.name] = [*(before if isinstance(before, list) else ()), str(value)]
        else:
            given[one.name] = value
    return given


def _next(rest: Iterator[str]) -> str:
    word = next(rest, None)
    if word is None or word.startswith("-"):
        raise Unclear
    return word
