"""The command line: every command there is, and every way in which one can end.

Each command is a thin function in a module of its group; what it needs to do its work, it imports when it is called.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated

from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.context import CliContext, CliExit, Exit, flush, hush, told, write
from allswell.interfaces.cli.options import Option, call, parameters
from allswell.interfaces.cli.parser import read, tokens
from allswell.interfaces.cli.registry import CliCommand, Commands, by_our_name
from allswell.interfaces.cli.rendering import use_store

_MODULES = {
    "run": "run",
    "resume": "flow",
    "init": "settings",
    "up": "fleet",
    "work": "fleet",
    "serve": "serve",
    "worker": "worker",
    "sinks run": "sinks",
    "coordinate": "build",
    "build-agent": "build",
    "audit-agent": "build",
    "tasks": "tasks",
    "show": "show",
    "runs": "tasks",
    "events": "events",
    "sinks": "sinks",
    "deliveries": "sinks",
    "comms": "events",
    "receipts": "receipts",
    "diff": "receipts",
    "logs": "logs",
    "why": "status",
    "watch": "status",
    "graph": "flow",
    "agents": "fleet",
    "tracking": "fleet",
    "worker status": "worker",
    "questions": "tasks",
    "answer": "decide",
    "retry": "decide",
    "dismiss": "decide",
    "unpark": "tasks",
    "cancel": "tasks",
    "verify": "verify",
    "recover": "receipts",
    "deliveries retry": "sinks",
    "deliveries drop": "sinks",
    "submit": "submit",
    "claim": "work",
    "checkin": "work",
    "done": "work",
    "fail": "work",
    "release": "work",
    "ask": "work",
    "session": "work",
    "request": "requests",
    "inbox": "requests",
    "respond": "requests",
    "decline": "requests",
    "mcp": "serve",
    "demo": "status",
    "drill": "status",
    "check": "check",
    "config": "settings",
    "doctor": "settings",
    "trust": "settings",
    "key create": "serve",
    "key link": "serve",
    "key list": "serve",
    "key revoke": "serve",
    "key revoke-links": "serve",
    "worker setup": "worker",
    "sinks setup": "sinks",
    "sinks check": "sinks",
    "sinks forget": "sinks",
    "alerts test": "sinks",
    "completion": "completion",
}
"""Every command, in the order of the help page, and the module whose `add_to` declares it."""


def commands() -> Commands:
    """Every command there is."""
    return Commands({name: f"{__package__}.commands.{module}" for name, module in _MODULES.items()})


def bare(
    version: Annotated[bool, Option("--version", help="Show the version.")] = False, *, context: CliContext
) -> None:
    """Allswell runs coding agents and other long commands, notices when one hangs, and keeps its work."""
    if version:
        from importlib.metadata import version as installed

        from allswell.views.commands import VersionShape

        number = installed("allswell")
        context.say(VersionShape(number), f"allswell {number}")
    else:
        from allswell.interfaces.cli.commands import status

        status.bare(context)


BARE = CliCommand(
    "",
    bare,
    "",
    (
        "allswell run -- make all                  run any command, and keep its work",
        "allswell up                               start the agents of allswell.toml",
        "allswell                                  what runs, and what needs you",
    ),
)
"""What `allswell` does without a command."""


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line; every way it can end has its exit code, and none is a traceback."""
    given = list(sys.argv[1:] if args is None else args)
    use_store(None)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # nothing that an agent said can break the telling
    try:
        try:
            return _run(given)
        except AllswellError as error:
            return int(told(error, json=_wants_json(given)))
        except KeyboardInterrupt:
            return int(Exit.INTERRUPTED)
        finally:
            flush()
    except CliExit as left:
        return int(left.code)
    except BrokenPipeError:
        hush()
        return int(Exit.FINE)
    except Exception as error:  # noqa: BLE001 - the last door: a bug is reported as one, and the whole story on request
        return _told_bug(error, json=_wants_json(given))


def _run(given: list[str]) -> int:
    every = commands()
    if given[:1] == ["--complete"]:
        from allswell.interfaces.cli.commands import completion

        completion.complete(every, BARE, given[1:])
        return int(Exit.FINE)
    if given[:1] == ["help"]:
        from allswell.interfaces.cli import help_pages

        page = help_pages.asked_for(every, BARE, given[1:])
        if page is not None:
            write(page)
            return int(Exit.FINE)
    if given and every.find(given)[0] is None:
        given = by_our_name(given)
    command, words = every.find(given)
    if command is None:
        command = BARE
        if given and not given[0].startswith("-"):
            return _told_names(every, given)
        _check_place(every, given)
    values = read(command, words)
    if values is not None:
        call(command.function, values)
    else:
        from allswell.interfaces.cli import help_pages

        write(help_pages.of_first_day(every, command) if command is BARE else help_pages.of_one(every, command))
    return int(Exit.FINE)


def _told_names(every: Commands, given: list[str]) -> int:
    """The line begins with words that name no command: perhaps all those that begin so are asked about."""
    size = next((place for place, word in enumerate(given) if word.startswith("-")), len(given))
    words, asked = given[:size], given[size : size + 1]
    if not every.below(words) or asked not in (["-h"], ["--help"]):
        raise every.unknown(words)
    from allswell.interfaces.cli import help_pages

    write(help_pages.of_group(every, words))
    return int(Exit.FINE)


def _check_place(every: Commands, given: list[str]) -> None:
    """Refuse a line that names its command behind an option."""
    for token in tokens(parameters(bare), given):
        if token.kind == "help":
            return
        if token.kind == "place":
            words = given[given.index(token.word) :]
            command, _ = every.find(words)
            if command is None:
                raise every.unknown(words)
            flag = given[0].partition("=")[0]
            hint = f"`{command.path} {flag} …`"
            raise Refused("usage", f"{flag} must stand after the command", where=flag, hint=hint)


def _wants_json(given: Sequence[str]) -> bool:
    """Whether an answer in JSON was asked for; what stands behind `--` is another command's."""
    return "--json" in (given[: given.index("--")] if "--" in given else given)


def _told_bug(error: Exception, *, json: bool) -> int:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # of a name that was typed, wherever it led
        error = Refused("name_too_long", "a name is too long for a file")
    elif os.environ.get("ALLSWELL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    code = int(told(error, json=json))
    with contextlib.suppress(CliExit):
        flush()
    return code
