"""The first `allswell.toml` of a project: which coding agents are on this machine, and how each is run under watch.

Only what was found is written, with the settings that matter most: a working tree for each task, which begins with the
work of what the task needs, and an end for what shows no progress. Nothing is overwritten, and no link is written
through.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allswell.errors import Refused
from allswell.store.files import doubt

NAME = "allswell.toml"
IGNORED = ".allswell/"
_GITIGNORE_MOST = 1 << 20
IDLE = "10m"


PROMPT = """
{name}

{payload}

{handover}

You work unattended. With the tools of the MCP server allswell you report what you have done (checkin), ask a human what
you cannot decide (ask), and say how it ended (done, fail).
"""
"""The prompt of an agent that has our tools."""
SERVER = '{"mcpServers":{"allswell":{"command":"allswell","args":["mcp"],"alwaysLoad":true}}}'
"""Our MCP server as Claude Code is told of it: within an attempt it speaks for that attempt."""
FROM_ATTEMPT = ("SOCKET", "SECRET", "TASK", "TOKEN", "AGENT", "ATTEMPT", "DEADLINE")
CODEX_SERVER = (
    'mcp_servers.allswell={command="allswell",args=["mcp"],env_vars=['
    + ",".join(f'"ALLSWELL_{name}"' for name in FROM_ATTEMPT)
    + '],default_tools_approval_mode="approve",required=true}'
)
"""The same for Codex, which hands no variable on to a server that is not named."""


class KnownAgent(msgspec.Struct, frozen=True):
    """A coding agent that can be run without somebody at its terminal."""

    name: str
    command: tuple[str, ...]
    pass_env: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Words of its command that give it our tools, in front of the prompt or behind all others."""


KNOWN: tuple[KnownAgent, ...] = (
    KnownAgent(
        "claude",
        (
            *("claude", "-p", "{prompt}", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            *("--permission-mode", "acceptEdits", "--allowedTools", "Bash,mcp__allswell"),
        ),
        ("ANTHROPIC_*", "CLAUDE_*"),
        (
            "Claude Code; its events are read as they come. --max-budget-usd would cap a session.",
            "It may edit files and run any command, such as tests and commits: no human is there to be asked. Less",
            'than Bash is "Bash(npm test *),Bash(git commit *),mcp__allswell", for example.',
        ),
        ("--mcp-config", SERVER),
    ),
    KnownAgent(
        "codex",
        ("codex", "exec", "--json", "--sandbox", "workspace-write", "{prompt}"),
        ("OPENAI_*", "CODEX_*"),
        (
            "Codex; its events are read as they come. Its own sandbox lets commands write into its folder only: what",
            "is left uncommitted there is committed by Allswell.",
        ),
        ("-c", CODEX_SERVER),
    ),
    KnownAgent(
        "gemini",
        (
            *("gemini", "--skip-trust", "--output-format", "stream-json", "--approval-mode", "auto_edit"),
            *("-p", "{prompt}"),
        ),
        ("GEMINI_*", "GOOGLE_*"),
        ("Gemini CLI; its events are read as they come. It may edit files; for commands see its --allowed-tools.",),
    ),
    KnownAgent(
        "opencode",
        ("opencode", "run", "--format", "json", "{prompt}"),
        ("ANTHROPIC_*", "OPENAI_*", "OPENCODE_*"),
        ("opencode; its events are read as they come. It refuses what it would ask a human for: see `permission`.",),
    ),
    KnownAgent("cursor-agent", ("cursor-agent", "-p", "{prompt}"), ("CURSOR_*",)),
    KnownAgent("aider", ("aider", "--yes-always", "--message", "{prompt}"), ("ANTHROPIC_*", "OPENAI_*")),
    KnownAgent("goose", ("goose", "run", "-t", "{prompt}"), ("GOOSE_*",)),
)
"""The ones that are looked for, in the order in which they are offered."""


def agents_on(path: str | None) -> list[KnownAgent]:
    """The agents whose programs are found."""
    return [one for one in KNOWN if shutil.which(one.name, path=path) is not None]


def written(agents: Sequence[KnownAgent], *, worktree: bool, concurrency: int = 1, tools: bool = True) -> str:
    """The text of a first `allswell.toml`; with an example that is commented out, where there is no agent.

    `tools` is whether `allswell mcp` can run here.
    """
    head = (
        "# Made by `allswell init`. `allswell check` reads it, `allswell config` lists every setting.\n\n"
        "# A task in a working tree of its own begins with the branches of what it needs, merged.\n"
        "bring_needs = true\n"
    )
    if not agents:
        example = _entry(KNOWN[0], worktree=worktree, concurrency=concurrency, tools=tools)
        lines = "".join(f"# {line}\n" for line in example.strip().splitlines())
        return f"{head}\n# No agent was found on PATH. Any command can be one:\n{lines}"
    return head + "".join(_entry(one, worktree=worktree, concurrency=concurrency, tools=tools) for one in agents)


def command_of(agent: KnownAgent, *, tools: bool) -> tuple[str, ...]:
    """The command of an agent, with our tools or without."""
    if not tools or not agent.tools:
        return agent.command
    before = len(agent.command) - (agent.command[-1] == "{prompt}")
    return (*agent.command[:before], *agent.tools, *agent.command[before:])


def _entry(agent: KnownAgent, *, worktree: bool, concurrency: int, tools: bool) -> str:
    lines = ["", f"[agents.{agent.name}]", *(f"# {line}" for line in agent.about)]
    lines.append(f"command = {_list(command_of(agent, tools=tools))}")
    if tools and agent.tools:
        lines.append(f'prompt = """{PROMPT}"""')
    elif agent.tools:
        lines.append("# To let it ask, check in and finish by tools: install allswell[mcp], and set this up again.")
    lines += [f"pass_env = {_list(agent.pass_env)}"] if agent.pass_env else []
    lines += [f"concurrency = {concurrency}"] if concurrency != 1 else []
    if worktree:
        lines.append("# Each task in a working tree of its own, on a branch of its own (allswell/NAME-OF-THE-TASK-…).")
        lines.append("worktree = true")
    else:
        lines.append(
            "# Set this once there is a git repository with a commit: each task gets a working tree of its own."
        )
        lines.append("worktree = false")
    lines.append("# After this time without progress it is ended, its work is kept, and the task is tried again.")
    lines.append(f'idle = "{IDLE}"')
    return "\n".join(lines) + "\n"


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quoted, words)) + "]"


def _quoted(word: str) -> str:
    """A word as TOML; one with quotes in it stays readable."""
    return f"'{word}'" if '"' in word and "'" not in word else msgspec.json.encode(word).decode()


def check_place(folder: Path) -> None:
    """Refuse a folder that has settings already, or in which others could put some."""
    if os.path.lexists(folder / NAME):
        text = f"there is an {NAME} here already, and nothing is overwritten"
        raise Refused("set_up_already", text, where=str(folder / NAME), hint="`allswell check` reads it")
    why = doubt(folder.stat())
    if why is not None:
        raise Refused("not_yours", f"{folder}: {why}", where=str(folder))


def write(folder: Path, text: str) -> Path:
    """Write the settings, new and for their user to change; `Refused` where something stands there."""
    path = folder / NAME
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.fchmod(opened, 0o644)  # whatever the umask is: nobody else may write what names commands to run
    except FileExistsError:
        check_place(folder)
        raise
    except OSError as error:
        raise Refused("cannot_write", f"{path} cannot be written: {error.strerror}", where=str(path)) from None
    with open(opened, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
    return path


def ignores_state(top: Path) -> bool:
    """Whether a repository's own `.gitignore` has the line for the folder of ours."""
    try:
        content = _read_own(top / ".gitignore")
    except OSError:
        return False
    wanted = (IGNORED, IGNORED.rstrip("/"), f"/{IGNORED}", f"/{IGNORED.rstrip('/')}")
    return any(line.strip() in wanted for line in content.splitlines())


def ignore_state(top: Path) -> str | None:
    """Add the line to the `.gitignore` of a repository; in words why that cannot be, or None."""
    path = top / ".gitignore"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        opened = os.open(path, flags, 0o644)
    except OSError as error:
        return "it is a link" if error.errno == errno.ELOOP else str(error.strerror)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
            return "it is not a file of yours alone"
        last = os.pread(opened, 1, found.st_size - 1) if found.st_size else b"\n"
        os.write(opened, (b"" if last == b"\n" else b"\n") + f"{IGNORED}\n".encode())
    finally:
        os.close(opened)
    return None


def _read_own(path: Path) -> str:
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(opened, _GITIGNORE_MOST).decode("utf-8", "replace")
    finally:
        os.close(opened)
