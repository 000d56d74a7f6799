"""Installing the plugin for a coding agent's program: what is written where, and how it is taken away again.

Claude Code loads every plugin that lies in its folder of skills, with its hooks and its servers, so a folder there is
all that is installed: no settings of the user's are changed, and nothing but that folder is removed. Codex loads
plugins from marketplaces, which a folder can be: it is told of ours by commands of its own, since only Codex writes to
its settings, and it runs no hook that its user has not trusted. The plugin is the hook of `hook.py`; where it is
wanted, our MCP server and a skill for working off the queue as well, which cost each session some time and context. The
programs in it are named by their paths, those of the Allswell that installs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shlex import join, quote
from typing import Final

import msgspec

from allswell.errors import Refused
from allswell.settings.first_file import FROM_ATTEMPT
from allswell.store.files import doubt_about

CLIENTS: Final = ("claude", "codex")
"""The programs that there is a plugin for."""
NAME = "allswell"
MANIFEST: Mapping[str, str] = {"claude": ".claude-plugin/plugin.json", "codex": ".codex-plugin/plugin.json"}
EVENTS: Mapping[str, tuple[str, ...]] = {
    "claude": (
        *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Notification"),
        *("Stop", "StopFailure", "SessionEnd"),
    ),
    "codex": (
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse"),
        *("Stop", "SessionEnd"),
    ),
}
"""The events at which each program starts our hook."""
_SECONDS = 10
"""After so many a program ends our hook; it ends by itself after half of them."""
_SECONDS_AT_END = 3
"""As long as Codex lets a hook be when a session ends."""
_CODEX_PATIENCE = 60
"""Seconds after which a command of Codex has not worked."""
_PLUGIN = "plugin"
"""The plugin's folder in a marketplace of Codex."""
_SERVER_HEARS = ("STORE", "KEY", *FROM_ATTEMPT)
_ABOUT = "Reports to Allswell: each tool is a sign of life, a lost lease stops the work, waiting for a human is told."
_TRUST = "Codex runs its hooks once you trust them: start codex, and choose “Trust all and continue” where it asks"
_HERE = Path(__file__).parent


class PluginPlan(msgspec.Struct, frozen=True):
    """What is to be installed: the files of a folder, by their path in it."""

    client: str
    folder: Path
    files: dict[str, str]
    manifest: str
    """Which of them names the plugin."""
    data: Path
    """Where the program lets the plugin keep something: removed with it."""
    install: tuple[tuple[str, ...], ...] = ()
    """Commands of the program by which it takes the plugin in, once the folder is written."""
    remove: tuple[tuple[str, ...], ...] = ()
    """Those by which it lets go of it."""
    then: str = ""
    """What its user still has to do."""


def plan_for(client: str, *, tools: bool = False) -> PluginPlan:
    """What is to be installed for a program, with our tools or without."""
    files = files_for(client, tools=tools)
    if client == "claude":
        home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
        data = home / "plugins" / "data" / f"{NAME}-skills-dir"
        return PluginPlan(client, home / "skills" / NAME, files, MANIFEST[client], data)
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    folder, plugin = home / NAME, f"{NAME}@{NAME}"
    add = ("codex", "plugin", "marketplace", "add", str(folder))
    entry = {"name": NAME, "source": {"source": "local", "path": f"./{_PLUGIN}"}, "category": "Coding"}
    shop = {"name": NAME, "interface": {"displayName": "Allswell"}, "plugins": [entry]}
    return PluginPlan(
        client,
        folder,
        {".agents/plugins/marketplace.json": _json(shop)} | {f"{_PLUGIN}/{name}": text for name, text in files.items()},
        f"{_PLUGIN}/{MANIFEST[client]}",
        home / "plugins" / "data" / f"{NAME}-{NAME}",
        (add, ("codex", "plugin", "add", plugin)),
        # It refuses to remove a marketplace that is not there, and adds one again that is.
        (add, ("codex", "plugin", "remove", plugin), ("codex", "plugin", "marketplace", "remove", NAME)),
        _TRUST,
    )


def files_for(client: str, *, tools: bool) -> dict[str, str]:
    """The files of the plugin of a program."""
    allswell = (sys.executable, "-P", "-m", "allswell")
    about: dict[str, object] = {
        "name": NAME,
        "version": version("allswell"),
        "description": _ABOUT,
        "author": {"name": "The Allswell authors"},
        "license": "Apache-2.0",
        "keywords": ["agents", "leases", "supervision"],
    }
    files = {
        MANIFEST[client]: _json(about),
        "hooks/hooks.json": _json({"description": _ABOUT, "hooks": _hooks(client, allswell)}),
        "hooks/hook.py": (_HERE / "hook.py").read_text(encoding="utf-8"),
    }
    if tools:
        server: dict[str, object] = {"command": allswell[0], "args": [*allswell[1:], "mcp"]}
        if client == "claude":
            server["alwaysLoad"] = True
        else:  # it hands no variable on to a server that is not named
            server["env_vars"] = [f"ALLSWELL_{name}" for name in _SERVER_HEARS]
        files[".mcp.json"] = _json({"mcpServers": {NAME: server}})
        files["skills/night-watch/SKILL.md"] = (_HERE / "night-watch.md").read_text(encoding="utf-8")
    return files


def _hooks(client: str, program: tuple[str, ...]) -> dict[str, object]:
    """At each event the hook is started, by a Python that looks at no settings of the folder."""
    return {event: [{"hooks": [_hook(client, event, program)]}] for event in EVENTS[client]}


def _hook(client: str, event: str, program: tuple[str, ...]) -> dict[str, object]:
    """Claude Code starts it without a shell; Codex by the user's, which knows where the plugin lies."""
    if client == "claude":
        args = ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/hooks/hook.py", client, *program]
        return {"type": "command", "command": sys.executable, "args": args, "timeout": _SECONDS}
    words = f'exec {quote(sys.executable)} -I -S "$PLUGIN_ROOT/hooks/hook.py" {join([client, *program])}'
    return {"type": "command", "command": words, "timeout": _SECONDS_AT_END if event == "SessionEnd" else _SECONDS}


def _json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"


def install(plan: PluginPlan) -> bool:
    """Write the folder anew; whether one was there. `Refused` where it is not ours."""
    was_there = _check_ours(plan)
    for command in plan.install:
        _program(command)
    new = plan.folder.with_name(f".{plan.folder.name}.new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        for name, text in plan.files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if was_there:
            shutil.rmtree(plan.folder)
        new.rename(plan.folder)
    except OSError as error:
        raise Refused("cannot_write", f"{error.filename} cannot be written: {error.strerror}", where="init") from None
    _run(plan.install)
    return was_there


def _program(command: Sequence[str]) -> str:
    """The program of a command; `Refused` where there is none."""
    path = shutil.which(command[0])
    if path is None:
        raise Refused("no_command", f"there is no program {command[0]!r} on PATH", where=command[0])
    return path


def _run(commands: Sequence[Sequence[str]]) -> None:
    """Have the program itself do something; `Refused` with its words where it does not."""
    for command in commands:
        try:
            done = subprocess.run(
                [_program(command), *command[1:]],
                cwd=Path.home(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CODEX_PATIENCE,
                check=False,
            )
            ended, said = done.returncode, done.stderr.decode("utf-8", "replace").strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            ended, said = 1, str(error)
        if ended != 0:
            lines = said.splitlines() or [f"exit code {ended}"]
            why = next((line for line in lines if line.startswith("Error: ")), lines[-1])
            raise Refused("not_installed", f"`{join(command)}` did not work: {why}", where=command[0])


def uninstall(plan: PluginPlan) -> bool:
    """Take it away; whether it was there. `Refused` where what is there is not ours."""
    if not _check_ours(plan):
        return False
    _run(plan.remove)
    try:
        shutil.rmtree(plan.folder)
        shutil.rmtree(plan.data, ignore_errors=True)
    except OSError as error:
        raise Refused("cannot_write", f"{error.filename} cannot be removed: {error.strerror}", where="init") from None
    return True


def _check_ours(plan: PluginPlan) -> bool:
    """Whether the plugin is installed; `Refused` where something else stands there, or others can write to it."""
    above = next(folder for folder in plan.folder.parents if folder.exists())
    why = doubt_about(above)
    if why is not None:
        raise Refused("not_yours", f"{above}: {why}", where=str(above))
    if not os.path.lexists(plan.folder):
        return False
    try:
        named = json.loads((plan.folder / plan.manifest).read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, LookupError, TypeError):
        named = None
    if named != NAME or plan.folder.is_symlink():
        text = f"{plan.folder} is something else than this plugin, and nothing is overwritten"
        raise Refused("set_up_already", text, where=str(plan.folder), hint="move it away")
    return True
