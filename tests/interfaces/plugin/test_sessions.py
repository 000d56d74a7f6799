"""Sessions that a human has started: listed by the hook, told once when they wait, and neither ended nor slowed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.cli.shell import Shell
from tests.interfaces.plugin.test_hook import CODEX, RECORDED, START
from tests.patience import SECONDS
from tests.runtime.process.stage import until

ALLSWELL = [sys.executable, "-P", "-m", "allswell"]
WAITS = {"message": "Claude needs your permission to use Bash", "notification_type": "permission_prompt"}


class Human:
    """Somebody at a session of a client, as far as its hooks can tell: its process is this one."""

    def __init__(self, folder: Path, home: Path, allswell: list[str], client: str = "claude") -> None:
        self.client = client
        self.shell = Shell(folder, os.urandom(8).hex(), {"HOME": str(home), "CLAUDE_CODE_ENTRYPOINT": "cli"})
        self.allswell = allswell
        self.data = home / "data"

    def meets(self, kind: str, **fields: object) -> None:
        known = CODEX if self.client == "codex" else RECORDED
        event = {**known.get(kind, known["Stop"]), "hook_event_name": kind, **fields}
        done = subprocess.run(
            [*START, self.client, *self.allswell],
            input=json.dumps(event).encode(),
            cwd=self.shell.folder,
            env={**self.shell.env, "CLAUDE_PLUGIN_DATA": str(self.data)},
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"", b"")

    def listed(self) -> list[dict[str, Any]]:
        return [one for one in self.shell.json("agents")["agents"] if one["kind"] == "human"]

    def health(self) -> str:
        return "".join(one["health"] for one in self.listed())


@pytest.fixture
def human(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Human:
    home, folder = tmp_path / "home", tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return Human(folder, home, ALLSWELL)


def test_it_is_listed_told_once_that_it_waits_and_gone_when_it_has_ended(human: Human) -> None:
    shell = human.shell
    shell("submit", "anything")
    human.meets("SessionStart")
    until(lambda: human.health() == "working")
    (row,) = human.listed()
    assert row["agent_id"] == "claude:7f99863e"
    assert f"started by a human in {shell.folder}" in row["evidence"]
    human.meets("Notification", **WAITS)
    until(lambda: human.health() == "waiting for a human")
    human.meets("Notification", **WAITS)
    assert "needs your permission to use Bash" in human.listed()[0]["evidence"]
    assert "claude:7f99863e" in shell("agents").stdout
    human.meets("PostToolUse")
    until(lambda: human.health() == "working")
    human.meets("SessionEnd")
    until(lambda: human.listed() == [])
    kinds = [kind for kind in shell.kinds() if kind.startswith(("human_", "agent_"))]
    assert kinds == ["human_session_began", "agent_waits", "human_session_ended"]


def record_of(human: Human, source: str) -> str:
    """Where Codex keeps a session that was started by this."""
    path = human.shell.folder / f"{source}.jsonl"
    kept = {"type": "session_meta", "payload": {"cwd": '"source":"cli"', "source": source, "instructions": "x" * 9_000}}
    path.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    return str(path)


def test_one_of_codex_is_listed_and_waits_for_a_permission_and_for_its_next_prompt(human: Human) -> None:
    human.client, shell = "codex", human.shell
    path = record_of(human, "cli")
    shell("submit", "anything")
    human.meets("SessionStart", transcript_path=path)
    until(lambda: human.health() == "working")
    assert human.listed()[0]["agent_id"] == "codex:01a1f236"
    human.meets("UserPromptSubmit", transcript_path=path)
    human.meets("PreToolUse", transcript_path=path)
    human.meets("PermissionRequest", transcript_path=path)
    until(lambda: human.health() == "waiting for a human")
    assert "Codex needs your permission to use Bash" in human.listed()[0]["evidence"]
    human.meets("PostToolUse", transcript_path=path)
    until(lambda: human.health() == "working")
    human.meets("Stop", transcript_path=path)
    until(lambda: human.health() == "waiting for a human")
    human.meets("UserPromptSubmit", transcript_path=path)
    until(lambda: human.health() == "working")
    human.meets("SessionEnd", transcript_path=path)
    until(lambda: human.listed() == [])


@pytest.mark.parametrize("source", ["exec", "mcp", "none"])
def test_one_of_codex_that_a_program_has_started_is_not_listed(human: Human, source: str) -> None:
    human.client = "codex"
    mark = human.shell.folder / "started"
    human.allswell = ["sh", "-c", f'echo "$@" >> {mark}', "sh"]
    (human.shell.folder / "allswell.toml").write_text("")
    path = "/nonexist" if source == "none" else record_of(human, source)
    human.meets("SessionStart", transcript_path=path)
    human.meets("SessionStart", transcript_path=record_of(human, "cli"), session_id="other")
    until(mark.exists)
    until(mark.read_text)
    assert mark.read_text() == f"session begins --client=codex --id=other --pid={os.getpid()}\n"


def test_one_that_was_killed_is_not_listed(human: Human) -> None:
    shell = human.shell
    shell("submit", "anything")
    with subprocess.Popen(["sleep", "60"]) as process:
        shell("session", "begins", "--client", "claude", "--id", "s1", "--pid", str(process.pid))
        assert len(human.listed()) == 1
        process.kill()
        process.wait()
        assert human.listed() == []
    assert (
        "no such session"
        in shell("session", "begins", "--client", "claude", "--id", "s1", "--pid", str(process.pid), code=2).stderr
    )


@pytest.mark.parametrize(
    "why, kind",
    [
        ("there is no watch", "SessionStart"),
        ("a program has started it", "SessionStart"),
        ("nothing waits", "Notification"),
        ("it goes on", "PostToolUse"),
    ],
)
def test_nothing_is_started_where_there_is_nothing_to_report(human: Human, why: str, kind: str) -> None:
    """Each start of a program would cost the machine of the session something."""
    mark, settings = human.shell.folder / "started", human.shell.folder / "allswell.toml"
    human.allswell = ["sh", "-c", f'echo "$@" >> {mark}', "sh"]
    if why != "there is no watch":
        settings.write_text("")
    if why == "a program has started it":
        human.shell.variables["CLAUDE_CODE_ENTRYPOINT"] = "sdk-cli"
    human.meets(kind, notification_type="auth_success")
    human.shell.variables["CLAUDE_CODE_ENTRYPOINT"] = "cli"
    settings.write_text("")
    human.meets("SessionStart", session_id="other")
    until(mark.exists)
    until(mark.read_text)
    assert mark.read_text() == f"session begins --client=claude --id=other --pid={os.getpid()}\n"


def test_a_session_is_reported_where_the_users_own_settings_are_all_there_is(human: Human, tmp_path: Path) -> None:
    mark, own = human.shell.folder / "started", tmp_path / "home" / ".config" / "allswell"
    human.allswell = ["sh", "-c", f'echo "$@" >> {mark}', "sh"]
    human.shell.variables["XDG_CONFIG_HOME"] = ""
    own.mkdir(parents=True)
    (own / "allswell.toml").write_text("")
    human.meets("SessionStart")
    until(mark.exists)


def test_an_agent_lists_no_session_as_a_humans(human: Human) -> None:
    words = shlex.join([*ALLSWELL, "session", "begins", "--client=claude", "--id=s1", f"--pid={os.getpid()}"])
    done = human.shell("run", "--", "sh", "-c", words, code=2)
    assert "is for humans, and this runs inside attempt" in done.stderr
    assert human.listed() == []
