"""`run`: put it in front of any command, and nothing of what it does is lost.

The command becomes a task like any other; what happens to it stands in the journal. This file only translates: the
tries are `runtime/attempt/tries.py`, the attempt `runtime/attempt/attempt.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.asked import Variables, piped
from allswell.doors.cli.commands import RUNNING, Commands
from allswell.doors.cli.frame import Exit, Frame
from allswell.doors.cli.options import Argument, Json, Option, Rest, Store
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.doors.cli.asked import Ran
    from allswell.doors.cli.course import Course
    from allswell.doors.cli.terminal import Terminal


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        RUNNING,
        "run",
        run,
        "allswell run -- claude -p 'fix it' --output-format stream-json --verbose",
        "allswell run --timeout 1h --idle 10m --retries 2 -- make all",
        "allswell run --worktree --name nightly -- codex exec --json 'update docs'",
        "allswell run flow.yaml -i branch=main    a flow, step by step",
        "git diff | allswell run -- claude -p 'review it'",
        "allswell run --verify 'make test' -- claude -p 'mend the parser'",
        "allswell run --resume t_…                the same command once more",
    )


def run(
    flow: Annotated[
        str | None, Argument(metavar="FLOW", help="A flow (YAML), or -- before a command.", show_default=False)
    ] = None,
    inputs: Annotated[
        list[str] | None, Option("--input", "-i", metavar="NAME=VALUE", help="An input of the flow; repeatable.")
    ] = None,
    jobs: Annotated[
        int, Option("--jobs", "-j", metavar="N", min=1, max=1_000, help="How many steps of a flow run at once.")
    ] = 16,
    timeout: Annotated[
        str | None, Option("--timeout", metavar="TIME", help="The hard limit of each attempt. Default: agent_timeout.")
    ] = None,
    idle: Annotated[
        str | None, Option("--idle", metavar="TIME", help="End it after so long without progress. Default: 5m; or off.")
    ] = None,
    retries: Annotated[
        int | None, Option("--retries", metavar="N", min=0, max=1_000, help="Try so often again.")
    ] = None,
    grace: Annotated[
        str | None, Option("--grace", metavar="TIME", help="Between SIGTERM and SIGKILL. Default: 10s.")
    ] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="The task's name. Default: the command.")] = None,
    worktree: Annotated[bool, Option("--worktree", help="Run it in a git worktree of its own.")] = False,
    interactive: Annotated[
        bool, Option("--interactive", "-it", help="A terminal of its own for the command; nothing is idle by default.")
    ] = False,
    no_stdin: Annotated[bool, Option("--no-stdin", help="The command has nothing to read, whatever we have.")] = False,
    clean_env: Annotated[
        bool, Option("--clean-env", help="Hand on only what every command needs, and what -e names.")
    ] = False,
    hand_on: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="NAME", help="NAME=VALUE; or NAME, ABC_* with --clean-env; repeatable."),
    ] = None,
    verify: Annotated[
        str | None,
        Option("--verify", metavar="CMD", help="A command that must pass before it is done; no shell reads it."),
    ] = None,
    resume: Annotated[
        str | None,
        Option("--resume", metavar="TASK", help="Run a task's command once more, as its next attempt.", of=("task",)),
    ] = None,
    store: Store = None,
    json: Json = False,
    command: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="What to run, with its arguments.")] = None,
) -> None:
    """Run a flow, or any command, under watch: limits that hold, and the work kept.

    A flow's file says what its steps are and how long each may take; `allswell resume` goes on with it. A command's
    output passes through unchanged, its exit code is ours; 124 means that a limit was reached. At any bad end its
    uncommitted work is in a snapshot, and a receipt says where.

    A command reads what is piped to us, and inherits our environment. Typed at a terminal it has nothing to read and
    sees no terminal, unless --interactive gives it one. Some wait for ever for the end of a pipe that nobody closes,
    codex for one: --no-stdin.

    With --verify, done counts once that command has passed, where the command ran. Where it fails, the same command is
    run again and told what was found: in ALLSWELL_HANDOVER, for {handover} in its arguments, and on its standard input
    if that would be empty. After verify_attempts failures a human is asked, and the exit code is 3.
    """
    _start_warden()
    from allswell.doors.cli.course import Course

    frame = Frame(store, json=json)
    if flow is not None:
        of_commands = {"--timeout": timeout, "--idle": idle, "--retries": retries, "--name": name, "--resume": resume}
        of_commands["--verify"] = verify
        flags = {**of_commands, "--worktree": worktree, "--env": hand_on, "--clean-env": clean_env}
        flags |= {"--interactive": interactive, "--no-stdin": no_stdin, "--": command}
        _run_flow(frame, flow, inputs or (), jobs, [flag for flag, given in flags.items() if given])
        return
    if any("=" not in one for one in inputs or ()):
        text = "-i is an input of a flow, NAME=VALUE; a terminal for a command: allswell run -it -- COMMAND"
        raise Refused("usage", text, where="--input")
    if inputs:
        raise Refused("usage", "--input is a flow's; name the flow: allswell run FLOW.yaml -i …", where="--input")
    if resume is None and not command:
        raise Refused("no_command", "which command? allswell run [OPTIONS] -- COMMAND…", where="COMMAND")
    if resume is not None and command:
        raise Refused("usage", "--resume runs the task's own command; give no other one", where="--resume")
    if resume is not None:
        frame.for_humans("run --resume")
    terminal = _terminal(json=json, retries=retries, no_stdin=no_stdin, verify=verify) if interactive else None
    course = Course(
        frame,
        command or [],
        timeout=timeout,
        idle=idle,
        retries=retries,
        grace=grace,
        name=name,
        worktree=worktree,
        variables=Variables.of(hand_on or []),
        clean=clean_env,
        stdin=None if no_stdin or interactive else piped(),
        resume=resume,
        verify=verify,
        terminal=terminal,
    )
    _tell(frame, course, course.run())


def _terminal(*, json: bool, retries: int | None, no_stdin: bool, verify: str | None) -> Terminal:
    """A terminal for the command, where we have one ourselves and nothing else was asked for that it cannot be."""
    others = {"--json": json, "--retries": retries, "--no-stdin": no_stdin, "--verify": verify}
    for flag in (flag for flag, given in others.items() if given):
        raise Refused("usage", f"{flag} and --interactive exclude each other", where=flag)
    if not sys.stdin.isatty():
        text = "--interactive needs a terminal, and standard input is none"
        raise Refused("no_terminal", text, where="--interactive", hint="leave it out: what is piped is handed on")
    from allswell.doors.cli.terminal import Terminal

    return Terminal(sys.stdin.fileno())


def _run_flow(frame: Frame, flow: str, inputs: Sequence[str], jobs: int, flags: Sequence[str]) -> None:

    from allswell.doors.cli.flowrun import run_flow

    is_file = os.path.isfile(flow)  # noqa: PTH113 - Path.is_file raises where a name is too long
    if flow != "-" and not flow.endswith((".yaml", ".yml")) and not is_file:
        from shlex import quote

        if "--" in inputs:
            text = f"-i is an input of a flow, NAME=VALUE; a terminal: allswell run -it -- {quote(flow)} …"
            raise Refused("usage", text, where="--input")
        raise Refused("no_command", f"put -- before the command: allswell run -- {quote(flow)} …", where="COMMAND")
    if flags:
        text = f"{flags[0]} is for a command; a flow's file says it for each step, and `allswell resume` goes on"
        raise Refused("usage", text, where=flags[0])
    run_flow(frame, flow, inputs, jobs)


def _start_warden() -> None:
    """Have the warden started while everything else is still being imported: it takes about as long."""
    import threading

    from allswell.errors import AllswellError
    from allswell.runtime.warden import KEEPER

    def start() -> None:
        with contextlib.suppress(AllswellError):  # whoever needs it is told why
            KEEPER.ensure()

    threading.Thread(target=start, daemon=True).start()


def _tell(frame: Frame, course: Course, ran: Ran) -> None:
    """Three lines at a bad end; nothing where all went well."""
    if ran.error is not None:
        raise ran.error
    from allswell.doors.cli.ending import tell

    tell(frame, ran, course.retries)
    if ran.code != Exit.FINE:
        frame.leave(ran.code)
