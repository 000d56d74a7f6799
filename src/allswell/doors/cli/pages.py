"""The command line as Typer has it: help in groups, shell completion, and what is wrong with a command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from allswell.doors.cli.frame import Exit, told
from allswell.doors.cli.options import GROUPS, UPKEEP, Commands, Declared, examples
from allswell.errors import Refused

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

NAME = "allswell"
_USAGE = "usage"
"""The code of what Typer refuses; the words are its own."""
_EXIT_CODES = (
    "Exit codes: 0 fine, 1 failed, 2 used wrongly, 3 needs a human, 4 lease lost, 5 nothing to claim,"
    " 75 store unavailable, 124 timed out."
)


class Grouped(TyperGroup):
    """The help page lists commands under what they are for."""

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - the name is Typer's
        """Every command, group by group, in the order in which they were added."""
        return sorted(self.commands, key=lambda name: GROUPS.index(self._group(name)))

    def _group(self, name: str) -> str:
        named = getattr(self.commands[name], "rich_help_panel", None)
        return named if named in GROUPS else UPKEEP

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """One list for each group."""
        width = max(map(len, self.commands), default=0)
        for group in GROUPS:
            names = [name for name in self.list_commands(ctx) if self._group(name) == group]
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(100)) for name in names]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


def make(commands: Commands, bare: Callable[..., None], rest: Mapping[str, object] | None = None) -> typer.Typer:
    """The whole command line; `bare` is what it does without a command, `rest` what stood behind `--`."""
    app = typer.Typer(
        name=NAME,
        cls=Grouped,
        epilog=examples(
            'allswell submit "write the changelog"     hand work over',
            "allswell claim --agent ada                take it",
            "allswell                                  how things stand",
        )
        + "\n\n"
        + _EXIT_CODES,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_root(bare))
    for command in commands.named.values():
        declared = _declared(command.function, rest=rest or {})
        app.command(command.name, rich_help_panel=command.group, epilog=command.epilog)(declared)
    return app


def _declared(
    function: Callable[..., None], *before: inspect.Parameter, rest: Mapping[str, object] = {}
) -> Callable[..., None]:
    """The function with Typer's declarations in the place of ours; `rest` is what stood behind `--`."""
    signature = inspect.signature(function, eval_str=True)
    known = [one for one in signature.parameters.values() if not _is_rest(one)]
    behind_it = [one for one in signature.parameters.values() if _is_rest(one)]
    typed = [*before, *(one.replace(annotation=_typed(one.annotation)) for one in known)]

    @wraps(function)
    def called(**given: object) -> None:
        function(**given, **{one.name: rest.get(one.name, one.default) for one in behind_it})

    called.__signature__ = signature.replace(parameters=typed)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in typed}
    return called


def _is_rest(one: inspect.Parameter) -> bool:
    declared = get_args(one.annotation)[1:2]
    return bool(declared) and isinstance(declared[0], Declared) and declared[0].rest


def behind(commands: Commands, given: Sequence[str]) -> tuple[Sequence[str], Mapping[str, object]]:
    """A command line without what stands behind `--`, where its command takes that, and the latter by its name."""
    command = commands.named.get(given[0]) if given else None
    if command is None or "--" not in given:
        return given, {}
    names = [
        name for name, one in inspect.signature(command.function, eval_str=True).parameters.items() if _is_rest(one)
    ]
    place = list(given).index("--")
    return (given[:place], {names[0]: list(given[place + 1 :])}) if names else (given, {})


def _typed(annotation: object) -> object:
    kind, declared = get_args(annotation)[:2]
    assert isinstance(declared, Declared)  # noqa: S101 - a signature of ours
    if not declared.names:
        argument = typer.Argument(metavar=declared.metavar, help=declared.help, show_default=declared.show_default)
        return Annotated[kind, argument]
    option = typer.Option(
        *declared.names,
        metavar=declared.metavar,
        help=declared.help,
        envvar=declared.envvar,
        min=declared.min,
        max=declared.max,
        show_default=declared.show_default,
    )
    return Annotated[kind, option]


def _root(bare: Callable[..., None]) -> Callable[..., None]:
    """What runs before every command, and alone where there is none."""

    def root(context: typer.Context, **given: object) -> None:
        command = context.invoked_subcommand
        if command is None:
            bare(**given)
            return
        for name, value in given.items():
            if value:
                text = f"--{name} goes behind the command: {NAME} {command} --{name} …"
                raise Refused("usage", text, where=f"--{name}")

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    typed = _declared(bare, first)
    root.__doc__ = bare.__doc__
    root.__signature__ = inspect.signature(typed)  # type: ignore[attr-defined]
    root.__annotations__ = typed.__annotations__
    return root


def run(commands: Commands, bare: Callable[..., None], given: Sequence[str]) -> int:
    """Let Typer read the command line and run what it finds; what it cannot read is told in our way."""
    before, rest = behind(commands, given)
    try:
        code = get_command(make(commands, bare, rest))(list(before), prog_name=NAME, standalone_mode=False)
    except TyperException as error:
        return int(_told(error, json="--json" in before))
    except typer.Abort:
        return int(Exit.INTERRUPTED)
    return code if isinstance(code, int) else int(Exit.FINE)


def page(commands: Commands, bare: Callable[..., None]) -> str:
    """The help page of the whole command line, as `help.txt` holds it."""
    command = get_command(make(commands, bare))
    with command.make_context(NAME, [], resilient_parsing=True, terminal_width=80) as context:
        return command.get_help(context) + "\n"


def _told(error: TyperException, *, json: bool) -> Exit:
    """A command line that could not be read: what is wrong with it, and where to look."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else NAME
    message = " ".join(error.format_message().split()).rstrip(".")
    message = message[:1].lower() + message[1:]
    return told(Refused(_USAGE, message, where=path, hint=f"`{path} --help` shows what there is"), json=json)
