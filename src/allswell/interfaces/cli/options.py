"""How commands say what they take: their signature, with an `Option`, an `Argument` or a `Rest` beside each type.

This is the one declaration of a command line: it is read by it (`parser.py`), explained by it (`help_pages.py`),
completed by it (`commands/completion.py`) and documented by it (docs/generate.py). Options that commands share stand
here, so that one flag means one thing everywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from allswell.domain.duration import with_unit
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.registry import LONGEST
from allswell.interfaces.cli.rendering import cut

TIME = "TIME"
"""Stands for a length of time: a bare number is seconds there, as for `timeout` and `sleep` (`with_unit`)."""
WHEN = "WHEN"
"""Stands for a moment: a length of time from now, or a date."""


class ParameterDeclaration(NamedTuple):
    """What a parameter is called and what its help says; one without names is given by its place."""

    names: tuple[str, ...]
    metavar: str | None
    help: str
    envvar: str | None = None
    min: float | None = None
    max: float | None = None
    show_default: bool = True
    rest: bool = False
    of: tuple[str, ...] = ()
    """What its values name, for completion: `commands/completion.py` knows where to look."""
    bare: str | None = None
    """Its value where it is given without one; another one then stands behind `=`, as getopt_long has it."""


def Option(  # noqa: N802 - a declaration, written as the type beside it
    *names: str,
    help: str,  # noqa: A002 - what it is, wherever options are declared
    metavar: str | None = None,
    envvar: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
    show_default: bool = True,
    of: tuple[str, ...] = (),
    bare: str | None = None,
) -> ParameterDeclaration:
    """A parameter with names, such as `--limit` and `-n`."""
    return ParameterDeclaration(names, metavar, help, envvar, min, max, show_default, of=of, bare=bare)


def Argument(*, metavar: str, help: str, show_default: bool = True, of: tuple[str, ...] = ()) -> ParameterDeclaration:  # noqa: A002, N802
    """A parameter by its place."""
    return ParameterDeclaration((), metavar, help, show_default=show_default, of=of)


def Rest(*, metavar: str, help: str) -> ParameterDeclaration:  # noqa: A002, N802
    """All that stands behind `--`, whatever it looks like."""
    return ParameterDeclaration((), metavar, help, show_default=False, rest=True)


Store = Annotated[
    str | None,
    Option(
        "--store", metavar="URL", help="sqlite:///path, postgresql://… or https://…. Default: the nearest .allswell/."
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]
Task = Annotated[
    str | None,
    Option("--task", "-t", metavar="ID", envvar="ALLSWELL_TASK", help="The task that you hold.", of=("task",)),
]
Token = Annotated[
    int | None,
    Option("--token", metavar="N", envvar="ALLSWELL_TOKEN", help="The token of your lease, as `claim` printed it."),
]
Agent = Annotated[
    str | None, Option("--agent", "-a", metavar="NAME", envvar="ALLSWELL_AGENT", help="The agent's name.")
]


# Options that many commands share, as one parameter of theirs: it is made of what was given to these options.

Storeless = Annotated[CliContext, "without a store"]
"""The context of a command that looks into no store."""


class LeaseOptions(NamedTuple):
    """The lease that a holder speaks about."""

    task: str | None
    token: int | None
    agent: str | None


_SHARED: Mapping[object, tuple[Callable[..., object], Mapping[str, object]]] = {
    CliContext: (CliContext, {"store": Store, "json": Json}),
    Storeless: (CliContext, {"json": Json}),
    LeaseOptions: (LeaseOptions, {"task": Task, "token": Token, "agent": Agent}),
}


# One parameter of a command, as its signature declares it: its kind, its default, and what a value of it may be.

Value = str | int | float | bool | list[str] | None
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # which 64 bits can hold, with which every store counts
_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}
_NOTHING = object()
"""The default of what must be given."""


class Parameter:
    """One parameter of a command."""

    def __init__(self, name: str, annotation: object, default: object) -> None:
        kind, declared = get_args(annotation)[:2]
        assert isinstance(declared, ParameterDeclaration)  # noqa: S101 - a signature of ours
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


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """The parameters of a command, in order; where it declares several together, each of them."""
    # As `inspect.signature` would tell; importing it costs as much as looking into the store does.
    code = function.__code__
    last = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(last) : code.co_argcount]
    defaults = dict(zip(names, last, strict=True)) | (function.__kwdefaults__ or {})
    known = []
    for name, hint in _hints(function).items():
        if hint in _SHARED:
            shared = _SHARED[hint][1].items()
            known += [Parameter(one, option, False if option is Json else None) for one, option in shared]
        else:
            known.append(Parameter(name, hint, defaults.get(name, _NOTHING)))
    return known


@cache
def _hints(function: Callable[..., None]) -> Mapping[str, object]:
    code = function.__code__
    hints = get_type_hints(function, include_extras=True)
    return {name: hints[name] for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def call(function: Callable[..., None], values: Mapping[str, object]) -> None:
    """Call a command with the values of its parameters."""
    arguments: dict[str, object] = {}
    for name, hint in _hints(function).items():
        make, shared = _SHARED.get(hint, (None, ()))
        arguments[name] = values[name] if make is None else make(**{one: values[one] for one in shared})
    function(**arguments)


def as_typed(name: str, function: Callable[..., None], given: Mapping[str, object]) -> str:
    """A command as it can be typed again; its store is left out, since who reads it is at that store."""
    words = ["allswell", *name.split()]
    for one in parameters(function):
        value = given.get(one.name)
        if one.name in ("store", "json") or value in (None, False, one.default):
            continue
        values = value if isinstance(value, list) else [value]
        option = [] if one.placed else [one.declared.names[0]]
        words += option if one.flag else [word for each in values for word in (*option, str(each))]
    return shlex.join(words)
