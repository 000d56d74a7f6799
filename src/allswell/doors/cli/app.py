"""The commands, in their groups, and every way in which they can end.

Each command is a thin function in a module of its group, imported here for its signature only: what it needs to do its
work, it imports when it is called. Most command lines are read without Typer (`swift.py`), all others with it. `run`
stands in front of other people's commands, so what it costs is theirs: a line that is plainly right needs no other one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated

from allswell.doors.cli import swift
from allswell.doors.cli.advice import use_store
from allswell.doors.cli.frame import Exit, Left, encoded, flush, hush, told, write
from allswell.doors.cli.options import Commands, Json, Option, Store
from allswell.errors import AllswellError, Refused

_COMPLETING = "_ALLSWELL_COMPLETE"


def commands() -> Commands:
    """Every command there is."""
    from allswell.doors.cli import (
        agents,
        checking,
        diffing,
        fleet,
        flowrun,
        graphing,
        people,
        receipts,
        running,
        story,
        upkeep,
    )

    every = Commands()
    running.add_to(every)
    flowrun.add_to(every)
    people.add_to(every)
    receipts.add_to(every)
    diffing.add_to(every)
    story.add_to(every)
    graphing.add_to(every)
    fleet.add_to(every)
    agents.add_to(every)
    checking.add_to(every)
    upkeep.add_to(every)
    return every


def bare(
    version: Annotated[bool, Option("--version", help="Say which version this is.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """The night watch for agents: nothing hangs silently, nothing is lost."""
    if version:
        from importlib.metadata import version as installed

        from allswell.doors.shapes.said import VersionShape

        number = installed("allswell")
        write(f"{encoded(VersionShape(number)) if json else f'allswell {number}'}\n")
    else:
        from allswell.doors.cli import story

        story.bare(store, json=json)


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
    except Left as left:
        return int(left.code)
    except BrokenPipeError:
        hush()
        return int(Exit.FINE)
    except Exception as error:  # noqa: BLE001 - the last door: a bug is reported as one, and the whole story on request
        return _told_bug(error, json=_wants_json(given))


def _run(given: list[str]) -> int:
    if given[:1] == ["run"] and _COMPLETING not in os.environ:
        from allswell.doors.cli.running import run as run_command

        values = swift.read(run_command, given[1:])
        if values is not None:
            run_command(**values)
            return int(Exit.FINE)
    every = commands()
    if _COMPLETING not in os.environ:
        named = every.named.get(given[0]) if given else None
        function, rest = (bare, given) if named is None else (named.function, given[1:])
        values = swift.read(function, rest)
        if values is not None:
            function(**values)
            return int(Exit.FINE)
    from allswell.doors.cli import pages

    return pages.run(every, bare, given)


def _wants_json(given: Sequence[str]) -> bool:
    """Whether an answer in JSON was asked for; what stands behind `--` is another command's."""
    return "--json" in (given[: given.index("--")] if "--" in given else given)


def _told_bug(error: Exception, *, json: bool) -> int:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # of a name that was typed, wherever it led
        error = Refused("name_too_long", "a name that was given is too long for a file")
    elif os.environ.get("ALLSWELL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    code = int(told(error, json=json))
    with contextlib.suppress(Left):
        flush()
    return code
