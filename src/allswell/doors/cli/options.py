"""How commands say what they take: their signature, with an `Option`, an `Argument` or a `Rest` beside each type.

This is the one declaration of a command line: it is read by it (`reading.py`), explained by it (`pages.py`), completed
by it (`completing.py`) and documented by it (docs/generate.py). Options that commands share stand here, so that one
flag means one thing everywhere.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

TIME = "TIME"
"""Stands for a length of time: a bare number is seconds there, as for `timeout` and `sleep` (parameter.py)."""
WHEN = "WHEN"
"""Stands for a moment: a length of time from now, or a date."""


class Declared(NamedTuple):
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
    """What its values name, for completion: `completing.py` knows where to look."""
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
) -> Declared:
    """A parameter with names, such as `--limit` and `-n`."""
    return Declared(names, metavar, help, envvar, min, max, show_default, of=of, bare=bare)


def Argument(*, metavar: str, help: str, show_default: bool = True, of: tuple[str, ...] = ()) -> Declared:  # noqa: A002, N802
    """A parameter by its place."""
    return Declared((), metavar, help, show_default=show_default, of=of)


def Rest(*, metavar: str, help: str) -> Declared:  # noqa: A002, N802
    """All that stands behind `--`, whatever it looks like."""
    return Declared((), metavar, help, show_default=False, rest=True)


Store = Annotated[
    str | None,
    Option("--store", metavar="URL", help="sqlite:///path, postgresql://… or https://…; default: .allswell/ nearby."),
]
Json = Annotated[bool, Option("--json", help="Answer in JSON.")]
Task = Annotated[
    str | None,
    Option("--task", "-t", metavar="ID", envvar="ALLSWELL_TASK", help="The task that is held.", of=("task",)),
]
Token = Annotated[int | None, Option("--token", metavar="N", envvar="ALLSWELL_TOKEN", help="The lease's token.")]
Agent = Annotated[str | None, Option("--agent", "-a", metavar="NAME", envvar="ALLSWELL_AGENT", help="Who speaks.")]
