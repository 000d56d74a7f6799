"""Installing the plugin for a coding agent's program: what is written where, and how it is taken away again.

Claude Code loads every plugin that lies in its folder of skills, with its hooks and its servers, so a folder there is
all that is installed: no settings of the user's are changed, and nothing but that folder is removed. The plugin is the
hook of `hook.py`; where it is wanted, our MCP server and a skill for working off the queue as well, which cost each
session some time and context. The programs in it are named by their paths, those of the Allswell that installs it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from allswell.errors import Refused
from allswell.store.files import doubt_about

CLIENTS: Final = ("claude",)
"""The programs that there is a plugin for."""
NAME = "allswell"
MANIFEST: Mapping[str, str] = {"claude": ".claude-plugin/plugin.json"}
EVENTS: Mapping[str, tuple[str, ...]] = {
    "claude": (
        *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "Notification"),
        *("Stop", "StopFailure", "SessionEnd"),
    ),
}
"""The events at which each program starts our hook."""
_SECONDS = 10
"""After so many a program ends our hook; it ends by itself after half of them."""
_ABOUT = "Reports to Allswell: each tool is a sign of life, a lost lease stops the work, waiting for a human is told."
_HERE = Path(__file__).parent


class PluginPlan(msgspec.Struct, frozen=True):
    """What is to be installed: the files of a folder, by their path in it."""

    client: str
    folder: Path
    files: dict[str, str]
    data: Path
    """Where the program lets the plugin keep something: removed with it."""


def plan_for(client: str, *, tools: bool = False) -> PluginPlan:
    """What is to be installed for a program, with our tools or without."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    data = home / "plugins" / "data" / f"{NAME}-skills-dir"
    return PluginPlan(client, home / "skills" / NAME, files_for(client, tools=tools), data)


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
        server = {"command": allswell[0], "args": [*allswell[1:], "mcp"], "alwaysLoad": True}
        files[".mcp.json"] = _json({"mcpServers": {NAME: server}})
        files["skills/night-watch/SKILL.md"] = (_HERE / "night-watch.md").read_text(encoding="utf-8")
    return files


def _hooks(client: str, program: tuple[str, ...]) -> dict[str, object]:
    """At each event the hook is started without a shell, by a Python that looks at no settings of the folder."""
    args = ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/hooks/hook.py", *program]
    hook = {"type": "command", "command": sys.executable, "args": args, "timeout": _SECONDS}
    return {event: [{"hooks": [hook]}] for event in EVENTS[client]}


def _json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"


def install(plan: PluginPlan) -> bool:
    """Write the folder anew; whether one was there. `Refused` where it is not ours."""
    was_there = _check_ours(plan)
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
    return was_there


def uninstall(plan: PluginPlan) -> bool:
    """Take it away; whether it was there. `Refused` where what is there is not ours."""
    if not _check_ours(plan):
        return False
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
        named = json.loads((plan.folder / MANIFEST[plan.client]).read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, LookupError, TypeError):
        named = None
    if named != NAME or plan.folder.is_symlink():
        text = f"{plan.folder} is something else than this plugin, and nothing is overwritten"
        raise Refused("set_up_already", text, where=str(plan.folder), hint="move it away")
    return True
