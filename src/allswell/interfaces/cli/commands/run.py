"""`run`: put it in front of any command, and nothing of what it does is lost.

The command becomes a task like any other; what happens to it stands in the journal. This file only translates: the
tries are `runtime/attempt/retry.py`, the attempt `runtime/attempt/runner.py`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import msgspec

from allswell.errors import AllswellError, Refused
from allswell.interfaces.cli.context import CliContext, Exit
from allswell.interfaces.cli.options import Argument, Option, Rest
from allswell.interfaces.cli.registry import RUNNING, Commands

if TYPE_CHECKING:
    from allswell.domain.agents.fleet import AgentSpec
    from allswell.interfaces.cli.run_session import RunSession
    from allswell.interfaces.cli.terminal import Terminal
    from allswell.runtime.attempt import AttemptOutcome
    from allswell.runtime.workspace.worktree import Worktree


# What `allswell run` was asked for, and what came of it.

AGENTS_OWN = ("ANTHROPIC_*", "CLAUDE_*", "OPENAI_*", "CODEX_*", "GEMINI_*", "SSH_AUTH_SOCK")
"""With `--clean-env`: what the agents people run need to reach their providers; all others are handed on by name."""

_NULL = os.makedev(1, 3)
"""The device without content, which a command has anyway that is given nothing."""


class RunPayload(msgspec.Struct, frozen=True):
    """What was asked for, as the task's payload keeps it, so that it can be resumed."""

    command: tuple[str, ...]
    cwd: str
    timeout: int | None
    idle: int | None
    grace: int
    retries: int = 0
    env: tuple[str, ...] = ()
    """Names and patterns of variables that are handed on; never their values."""
    clean: bool = False
    """Whether only those are, and what every command needs; otherwise it inherits all that is not ours."""
    verify: tuple[str, ...] = ()
    """What must pass before it counts as done."""
    agent: str = ""
    """The agent of the settings that it was started as, if any."""

    @property
    def handed_on(self) -> tuple[str, ...]:
        """Patterns of the variables that the command gets beside those that every command needs."""
        return (*AGENTS_OWN, *self.env) if self.clean else ("*",)


class RunOutcome(msgspec.Struct):
    """What came of it."""

    code: int
    task: str = ""
    outcome: AttemptOutcome | None = None
    attempts: int = 0
    state: str = ""
    error: AllswellError | None = None
    starved: bool = False
    """Whether it was not tried again because its standard input was too long to be kept."""
    asked: bool = False
    """Whether a human has to decide now how it goes on."""
    held_back: list[str] = []
    """The variables that a command which has failed was not handed on."""
    untold: AllswellError | None = None
    """Why the store does not know how it ended, if it does not."""
    worktree: Worktree | None = None


class Variables(msgspec.Struct, frozen=True):
    """What `-e` said: variables to hand on by name, and those that are set."""

    names: tuple[str, ...] = ()
    values: dict[str, str] = {}

    @classmethod
    def of(cls, given: Sequence[str]) -> Variables:
        """From what was typed: NAME, NAME=VALUE or ABC_*."""
        names = tuple(one for one in given if "=" not in one)
        return cls(names, {key: value for key, _, value in (one.partition("=") for one in given if "=" in one)})


def agent_called(context: CliContext, name: str) -> AgentSpec:
    """The agent of the settings that a command is started as, or `Refused`."""
    agents = context.settings.fleet.agents
    if name in agents:
        return agents[name]
    from allswell.engine.lookup import did_you_mean

    other = did_you_mean(name, agents) or (f"; there are: {', '.join(agents)}" if agents else "")
    hint = other or f": add [agents.{name}] to allswell.toml (`allswell help fleet`)"
    raise Refused("unknown_agent", f"no agent is called {name!r}{hint}", where="--agent")


def piped() -> int | None:
    """Our standard input, where it is something to read from: a pipe, a file, and no terminal."""
    try:
        handle = sys.stdin.fileno()
        status = os.fstat(handle)
    except (AttributeError, OSError, ValueError):  # closed, or none of a process's own
        return None
    if os.isatty(handle) or not _readable(status.st_mode) or status.st_rdev == _NULL:
        return None
    return handle


def _readable(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        RUNNING,
        "run",
        run,
        "allswell run -- claude -p 'fix it' --output-format stream-json --verbose",
        "allswell run --timeout 1h --idle 10m --retries 2 -- make all",
        "allswell run --worktree --name nightly -- codex exec --json 'update docs'",
        "allswell run --agent coder -- claude -p 'fix it'    the limits of [agents.coder]",
        "allswell run flow.yaml -i branch=main    a flow, step by step",
        "git diff | allswell run -- claude -p 'review it'",
        "allswell run --verify 'make test' -- claude -p 'fix the parser'",
        "allswell run --resume t_…                the same command once more",
    )


def run(
    flow: Annotated[
        str | None, Argument(metavar="FLOW", help="A flow (YAML); write -- before a command.", show_default=False)
    ] = None,
    inputs: Annotated[
        list[str] | None, Option("--input", "-i", metavar="NAME=VALUE", help="An input of the flow; repeatable.")
    ] = None,
    jobs: Annotated[
        int, Option("--jobs", "-j", metavar="N", min=1, max=1_000, help="Maximum number of a flow's steps at once.")
    ] = 16,
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="TIME", help="Time limit of each attempt. Default: run_timeout (off)."),
    ] = None,
    idle: Annotated[
        str | None,
        Option("--idle", metavar="TIME", help="End it after this time without progress. Default: run_idle (off)."),
    ] = None,
    retries: Annotated[
        int | None, Option("--retries", metavar="N", min=0, max=1_000, help="Number of retries. Default: 0.")
    ] = None,
    grace: Annotated[
        str | None, Option("--grace", metavar="TIME", help="Time between SIGTERM and SIGKILL. Default: 10s.")
    ] = None,
    keep_children: Annotated[
        bool,
        Option("--keep-children", help="Do not end background processes of the command (nohup, daemons)."),
    ] = False,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="The task's name. Default: the command.")] = None,
    agent: Annotated[
        str | None,
        Option("--agent", metavar="NAME", help="Use the limits, variables and worktree of [agents.NAME]."),
    ] = None,
    worktree: Annotated[bool, Option("--worktree", help="Run it in a git worktree of its own.")] = False,
    interactive: Annotated[
        bool, Option("--interactive", "-it", help="A person uses the command: being idle is fine.")
    ] = False,
    no_tty: Annotated[bool, Option("--no-tty", help="Give the command no terminal and no input.")] = False,
    raw: Annotated[bool, Option("--raw", help="Show an agent's events as they were printed.")] = False,
    no_stdin: Annotated[bool, Option("--no-stdin", help="Give the command no standard input.")] = False,
    clean_env: Annotated[
        bool, Option("--clean-env", help="Pass on only basic variables (PATH, HOME …) and those of -e.")
    ] = False,
    hand_on: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="NAME", help="NAME=VALUE; or NAME, ABC_* with --clean-env; repeatable."),
    ] = None,
    verify: Annotated[
        str | None,
        Option(
            "--verify",
            metavar="CMD",
            help="A command that must pass before the task is done; it is run without a shell.",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        Option(
            "--resume", metavar="TASK", help="Run the command of this task again, as its next attempt.", of=("task",)
        ),
    ] = None,
    *,
    context: CliContext,
    command: Annotated[list[str] | None, Rest(metavar="-- COMMAND…", help="What to run, with its arguments.")] = None,
) -> None:
    """Run any command, say when it hangs, and keep its work; or run a flow.

    A command has no time limit unless you set one. If it shows no progress for five minutes (run_silence), one line
    says so; it is not ended. It is ended by --timeout and --idle, or by the settings run_timeout and run_idle. With
    --agent NAME it has the limits that NAME has under `allswell up`.

    The command's output and exit code are passed on unchanged; exit code 124 means that a limit was reached. If the
    command does not end well, its uncommitted work is kept in a snapshot, and a receipt says where. A flow is a file
    that lists steps and their limits; `allswell resume` continues one.

    At a terminal the command uses it as it would without Allswell: colours, prompts, Ctrl-C and Ctrl-Z work. With
    --no-tty it has no terminal; nor has an agent that is run with one prompt (claude -p, codex exec). An agent without
    a prompt (claude, codex) is interactive: it is never idle unless you set --idle. The command reads standard input
    and inherits the environment. Some commands wait for ever for the end of a pipe (codex does): use --no-stdin.

    Processes that the command leaves in the background (nohup, a daemon) are ended with it and listed; --keep-children
    leaves them running.

    With --verify, the command counts as done when CMD has passed in the same folder. If CMD fails, the command is run
    again and gets the output of CMD: in ALLSWELL_HANDOVER, for {handover} in its arguments, and on its standard input
    if that is empty. After verify_attempts (3) failures a human is asked, and the exit code is 3.
    """
    _start_warden()
    from allswell.interfaces.cli.run_session import RunSession

    context.skip_untrusted = flow is None
    if flow is not None:
        of_commands = {"--timeout": timeout, "--idle": idle, "--retries": retries, "--name": name, "--resume": resume}
        of_commands |= {"--verify": verify, "--agent": agent}
        flags = {**of_commands, "--worktree": worktree, "--env": hand_on, "--clean-env": clean_env}
        flags |= {"--keep-children": keep_children}
        flags |= {"--interactive": interactive, "--no-tty": no_tty, "--no-stdin": no_stdin, "--raw": raw, "--": command}
        _run_flow(context, flow, inputs or (), jobs, [flag for flag, given in flags.items() if given])
        return
    if any("=" not in one for one in inputs or ()):
        text = "-i is an input of a flow, NAME=VALUE; a terminal for a command: allswell run -it -- COMMAND"
        raise Refused("usage", text, where="--input")
    if inputs:
        raise Refused("usage", "--input is a flow's; name the flow: allswell run FLOW.yaml -i …", where="--input")
    if resume is None and not command:
        options = "[OPTIONS]" if agent is None else f"--agent {agent}"
        raise Refused("no_command", f"which command? Write: allswell run {options} -- COMMAND…", where="COMMAND")
    if resume is not None and agent is not None:
        text = "--resume keeps the agent that the command was started as; leave --agent out"
        raise Refused("usage", text, where="--agent")
    if resume is not None and command:
        raise Refused("usage", "--resume runs the task's own command; give no other one", where="--resume")
    if resume is not None:
        context.for_humans("run --resume")
    excluding = {"--json": context.json, "--no-tty": no_tty, "--no-stdin": no_stdin}
    terminal = _terminal([flag for flag, given in excluding.items() if given], interactive=interactive)
    course = RunSession(
        context,
        command or [],
        timeout=timeout,
        idle=idle,
        retries=retries,
        grace=grace,
        keep_children=keep_children,
        name=name,
        worktree=worktree,
        variables=Variables.of(hand_on or []),
        clean=clean_env,
        stdin=None if no_stdin or interactive else piped(),
        resume=resume,
        verify=verify,
        agent=agent,
        terminal=terminal,
        interactive=interactive,
        raw=raw,
    )
    _tell(context, course, course.run())


def _terminal(excluding: Sequence[str], *, interactive: bool) -> Terminal | None:
    """Our terminal for the command, where we are run at one and no flag was given that excludes it."""
    if interactive:
        for flag in excluding:
            raise Refused("usage", f"{flag} and --interactive exclude each other", where=flag)
        if not sys.stdin.isatty():
            text = "--interactive needs a terminal, and standard input is none"
            raise Refused("no_terminal", text, where="--interactive", hint="leave it out: what is piped is passed on")
    elif excluding or not sys.stdin.isatty():
        return None
    from allswell.interfaces.cli.terminal import Terminal, foreground_terminal

    own = sys.stdin.fileno() if interactive else foreground_terminal()
    return None if own is None else Terminal(own)


def _run_flow(context: CliContext, flow: str, inputs: Sequence[str], jobs: int, flags: Sequence[str]) -> None:

    from allswell.interfaces.cli.commands.flow import run_flow

    is_file = os.path.isfile(flow)  # noqa: PTH113 - Path.is_file raises where a name is too long
    if flow != "-" and not flow.endswith((".yaml", ".yml")) and not is_file:
        if "--" in inputs:
            text = f"-i is an input of a flow, NAME=VALUE; a terminal: allswell run -it -- {quote(flow)} …"
            raise Refused("usage", text, where="--input")
        raise Refused("no_command", f"put -- before the command: allswell run -- {quote(flow)} …", where="COMMAND")
    if flags:
        text = f"{flags[0]} is for commands; a flow's file sets it for each step, and `allswell resume` continues it"
        raise Refused("usage", text, where=flags[0])
    run_flow(context, flow, inputs, jobs)


def _start_warden() -> None:
    """Have the warden started while everything else is still being imported: it takes about as long."""
    import threading

    from allswell.runtime.host import raise_limit
    from allswell.runtime.process import KEEPER

    raise_limit()  # before it is started: it is told the limit that commands get

    def start() -> None:
        with contextlib.suppress(AllswellError):  # whoever needs it is told why
            KEEPER.ensure()

    threading.Thread(target=start, daemon=True).start()


def _tell(context: CliContext, course: RunSession, ran: RunOutcome) -> None:
    """Three lines at a bad end; nothing where all went well."""
    if ran.error is not None:
        raise ran.error
    from allswell.interfaces.cli.run_display import tell

    tell(context, ran, course.retries)
    if ran.code != Exit.FINE:
        context.leave(ran.code)
