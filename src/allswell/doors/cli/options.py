"""How commands say what they take: their signature, with an `Option` or an `Argument` beside each type.

These declarations are light, so that a command can be read and called without Typer (`swift.py`); Typer gets the same
ones for help, completion and everything that is wrong with a command line (`pages.py`). Options that commands share
stand here, so that one flag means one thing everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

RUNNING = "Run"
LOOKING = "Look"
DECIDING = "Decide"
WORKING = "Hold work (for agents)"
UPKEEP = "Look after the watch"
GROUPS = (RUNNING, LOOKING, DECIDING, WORKING, UPKEEP)
"""The groups of the help page, in its order."""

Function = TypeVar("Function", bound=Callable[..., None])


class Declared(NamedTuple):
    """What a parameter is called and what its help says; one without names is an argument."""

    names: tuple[str, ...]
    metavar: str | None
    help: str
    envvar: str | None = None
    min: float | None = None
    max: float | None = None
    show_default: bool = True
    rest: bool = False
    """Everything behind `--`, whatever it looks like; Typer does not see it."""


def Option(  # noqa: N802 - it stands where Typer's would
    *names: str,
    help: str,  # noqa: A002 - as Typer has it
    metavar: str | None = None,
    envvar: str | None = None,
    min: float | None = None,  # noqa: A002
    max: float | None = None,  # noqa: A002
    show_default: bool = True,
) -> Declared:
    """A parameter with names, such as `--limit` and `-n`."""
    return Declared(names, metavar, help, envvar, min, max, show_default)


def Argument(*, metavar: str, help: str, show_default: bool = True) -> Declared:  # noqa: A002, N802
    """A parameter by its place."""
    return Declared((), metavar, help, show_default=show_default)


def Rest(*, metavar: str, help: str) -> Declared:  # noqa: A002, N802
    """All that stands behind `--`."""
    return Declared((), metavar, help, show_default=False, rest=True)


Store = Annotated[
    str | None, Option("--store", metavar="URL", help="sqlite:///path or postgresql://…; default: .allswell/ nearby.")
]
Json = Annotated[bool, Option("--json", help="Answer in JSON.")]
Task = Annotated[
    str | None, Option("--task", "-t", metavar="ID", envvar="ALLSWELL_TASK", help="The task that is held.")
]
Token = Annotated[int | None, Option("--token", metavar="N", envvar="ALLSWELL_TOKEN", help="The lease's token.")]
Agent = Annotated[str | None, Option("--agent", "-a", metavar="NAME", envvar="ALLSWELL_AGENT", help="Who speaks.")]


class Command(NamedTuple):
    """One command: its name, what it does, and where and how its help is shown."""

    name: str
    function: Callable[..., None]
    group: str
    epilog: str


class Commands:
    """All commands, in the order in which they were added."""

    def __init__(self) -> None:
        self.named: dict[str, Command] = {}

    def command(self, name: str, *, rich_help_panel: str, epilog: str = "") -> Callable[[Function], Function]:
        """Add a command; `rich_help_panel` is its group."""

        def add(function: Function) -> Function:
            self.named[name] = Command(name, function, rich_help_panel, epilog)
            return function

        return add


def examples(*lines: str) -> str:
    r"""The end of a command's help page; `\b` keeps its lines as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
