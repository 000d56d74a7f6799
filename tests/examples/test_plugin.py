"""The hooks of the plugin for Claude Code, called as it calls them, on a real store; tests/clients has the real one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interfaces.cli.shell import Shell
from tests.patience import SECONDS

PLUGIN = Path(__file__).parents[2] / "examples" / "claude-code-plugin"
OURS = "mcp__plugin_allswell_allswell__"


class Session:
    """A session of Claude Code, as far as its hooks can tell."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.shell = Shell(folder, os.urandom(8).hex())
        self.env = {**self.shell.env, "CLAUDE_PLUGIN_DATA": str(folder / "data"), **env}

    def tells(self, event: str, **fields: object) -> dict[str, Any]:
        """What the hook answers to an event."""
        said = json.dumps({"session_id": "s1", "hook_event_name": event, **fields})
        done = subprocess.run(
            [sys.executable, PLUGIN / "hooks" / "lease.py"],
            input=said,
            cwd=self.shell.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        return answer

    def uses(self, tool: str, answer: object = None, **given: object) -> dict[str, Any]:
        return self.tells("PostToolUse", tool_name=tool, tool_input=given, tool_response=answer)


def test_a_session_checks_in_by_working_and_stops_when_it_has_let_go(tmp_path: Path) -> None:
    session = Session(tmp_path)
    shell = session.shell
    id_ = shell("submit", "write it").stdout.strip()
    assert session.uses("Bash") == {}
    assert session.tells("Stop") == {}, "it holds nothing"
    claim = shell.json("claim", "--agent", "ada")
    text = json.dumps({"claims": [claim]})
    assert session.uses(f"{OURS}claim", [{"type": "text", "text": text}]) == {}
    before = shell.json("show", id_)["task"]
    assert session.uses("Bash") == {}
    after = shell.json("show", id_)["task"]
    assert before != after, "a tool that was used is a check-in"
    assert session.uses("Bash") == {}
    assert shell.json("show", id_)["task"] == after, "and not each of them"
    told = session.tells("Stop")
    assert (told["decision"], id_ in told["reason"]) == ("block", True)
    assert session.tells("Stop", stop_hook_active=True) == {}, "it is told once"
    session.uses(f"{OURS}ask", text="?", hold=True)
    assert session.tells("Stop")["decision"] == "block"
    session.uses(f"{OURS}done")
    assert session.tells("Stop") == {}


def test_a_session_that_has_lost_its_lease_is_stopped(tmp_path: Path) -> None:
    session = Session(tmp_path)
    shell = session.shell
    id_ = shell("submit", "write it").stdout.strip()
    claim = shell.json("claim", "--agent", "ada")
    session.uses(f"{OURS}claim", {"structuredContent": {"claims": [claim]}})
    shell("cancel", id_)
    told = session.uses("Edit")
    assert (told["continue"], id_ in told["stopReason"]) == (False, True)
    assert session.uses("Edit") == {}, "there is nothing left to be lost"


def test_where_the_watch_cannot_be_reached_the_work_goes_on(tmp_path: Path) -> None:
    session = Session(tmp_path, ALLSWELL_STORE="sqlite:////nowhere/x.db")
    claim = {"task": {"task_id": "t_1"}, "token": 1}
    session.uses(f"{OURS}claim", {"structuredContent": {"claims": [claim]}})
    assert session.uses("Bash") == {}
    assert session.uses(f"{OURS}claim", "not what it should be") == {}


def test_the_plugin_names_what_is_there() -> None:
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    assert set(hooks) == {"PostToolUse", "Stop"}
    assert json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["name"] == "allswell"
    assert json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]["allswell"]["args"] == ["mcp"]
    assert (PLUGIN / "skills" / "night-watch" / "SKILL.md").read_text().startswith("---\nname: night-watch\n")
