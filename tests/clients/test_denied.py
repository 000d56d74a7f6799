"""The real Claude Code and calls that it refuses: worked around, given up, and allowed for one attempt.

`make clients` runs this. What the model does is the fake provider's script; the permissions are Claude Code's own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from allswell.testing.provider import CallTool, Reply
from tests.clients.test_real import CLAUDE, CLIENTS, QUIET, Clients, clients

pytestmark = pytest.mark.slow
__all__ = ["clients"]
EDITS = ("--permission-mode", "acceptEdits")
TEST = "./check now"
"""A command that `acceptEdits` refuses; it notes that it was run."""


def bash(command: str, description: str = "Run it") -> CallTool:
    return CallTool("Bash", {"command": command, "description": description})


class Project:
    """Somebody whose agents need a permission for the tests."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.shell = clients.shell
        check = self.shell.folder / "check"
        check.write_text('#!/bin/sh\necho "$@" >> ran\n')
        check.chmod(0o755)

    def run(
        self, *acts: CallTool | Reply, options: tuple[str, ...] = (), args: tuple[str, ...] = (), code: int = 0
    ) -> str:
        self.clients.provider.script(*acts)
        env = {**QUIET, "ANTHROPIC_BASE_URL": self.clients.provider.url, "ANTHROPIC_API_KEY": "k"}
        return self.clients._run(env, options, (*CLAUDE, *EDITS, *args), code)

    def resume(self, *acts: CallTool | Reply, code: int = 0) -> str:
        self.clients.provider.script(*acts)
        env = {**QUIET, "ANTHROPIC_BASE_URL": self.clients.provider.url, "ANTHROPIC_API_KEY": "k"}
        handed = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        return self.shell("run", *handed, "--resume", "night", code=code).stderr

    def shown(self) -> Any:  # noqa: ANN401 - whatever it is
        return self.shell.json("show", "night")

    def ran(self) -> list[str]:
        """What the command was called with, each time."""
        path = self.shell.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def heard(self) -> str:
        return str([request.body for request in self.clients.provider.requests])


@pytest.fixture
def project(clients: Clients) -> Project:
    return Project(clients)


def test_denied_and_worked_around_is_done_with_the_warning(project: Project) -> None:
    write = CallTool("Write", {"file_path": "new", "content": "hi"})
    said = project.run(bash(TEST), write, Reply("I could not run the tests, and have finished."))
    assert f"allswell: 1 call was refused: Bash({TEST})" in said
    shown = project.shown()
    assert (shown["task"]["state"], shown["questions"]) == ("done", [])
    assert shown["attempts"][0]["warning"] == f"1 call was refused: Bash({TEST})"
    assert (project.shell.folder / "new").read_text() == "hi"
    assert project.ran() == []


def test_a_verify_that_passes_after_a_denial_decides(project: Project) -> None:
    write = CallTool("Write", {"file_path": "new", "content": "hi"})
    project.run(bash(TEST), write, Reply("Finished."), options=("--verify", "test -e new"))
    shown = project.shown()
    assert (shown["task"]["state"], shown["attempts"][0]["outcome"]) == ("done", "done")
    assert shown["attempts"][0]["warning"] == f"1 call was refused: Bash({TEST})"


OTHERS = (f"{TEST} please", f"timeout 5 {TEST}", f"{TEST} 2>&1", f"X=1 {TEST}", f"{TEST} && ls", "./check *", "./check")
"""Commands that are not the one that was refused; a permission rule for that one would let some of them pass."""
TURNS = len(OTHERS) + 2
GIVES_UP = ("--max-turns", str(TURNS))


def test_denied_and_given_up_asks_and_allow_lets_the_next_attempt_make_exactly_that_call(project: Project) -> None:
    said = project.run(*[bash(TEST)] * TURNS, args=GIVES_UP, code=1)
    assert "answer: allswell questions" in said
    (question,) = project.shown()["questions"]
    assert [option["key"] for option in question["options"]] == ["accept", "allow", "retry", "clarify", "skip"]
    assert f"{TURNS} calls were refused: Bash({TEST})." in question["text"]
    assert f"Its work is in {project.shell.folder}, on the branch main." in question["text"]
    project.shell("answer", "night", "allow")
    others = [bash(command) for command in OTHERS]
    project.resume(bash(TEST, "worded otherwise"), *others, Reply("Finished."))
    assert project.ran() == ["now"]
    shown = project.shown()
    assert (shown["task"]["state"], len(shown["attempts"])) == ("done", 2)
    assert shown["attempts"][1]["warning"].startswith(f"{len(OTHERS)} calls were refused: Bash({OTHERS[0]}), ")
    assert f"this call is allowed, exactly as written: Bash({TEST})" in project.heard()


def test_what_was_allowed_is_allowed_in_one_attempt_only(project: Project) -> None:
    project.run(*[bash(TEST)] * TURNS, args=GIVES_UP, code=1)
    project.shell("answer", "night", "allow")
    project.resume(bash(TEST), *[bash("./check")] * (TURNS - 1), code=1)
    assert project.ran() == ["now"]
    project.shell("answer", "night", "retry")
    project.resume(bash(TEST), Reply("Finished."))
    assert project.ran() == ["now"]
    assert project.shown()["attempts"][2]["warning"] == f"1 call was refused: Bash({TEST})"


def test_what_the_users_own_rules_refuse_stays_refused(project: Project) -> None:
    """Newer clients say that a rule refused it, and it is not offered; for older ones the rule counts all the same."""
    rule = ("--disallowedTools", f"Bash({TEST})")
    project.run(*[bash(TEST)] * TURNS, args=(*GIVES_UP, *rule), code=1)
    (question,) = project.shown()["questions"]
    if "allow" in [option["key"] for option in question["options"]]:
        project.shell("answer", "night", "allow")
        project.resume(bash(TEST), Reply("Finished."))
    else:
        assert "cannot be allowed from here: a rule in the settings of Claude Code refuses it" in question["text"]
    assert project.ran() == []


def test_a_call_that_waits_for_a_human_is_made_once_it_is_allowed(project: Project) -> None:
    """The process ends with the call unmade; only the human's answer lets it be made, and other calls wait again."""
    settings = f'[agents.claude]\ncommand = ["{CLIENTS / "claude"}", "-p", "{{prompt}}"]\ndefer = ["Bash(./check*)"]\n'
    (project.shell.folder / "allswell.toml").write_text(settings)
    project.shell("trust", "--yes")
    said = project.run(bash(TEST), options=("--agent", "claude"), code=3)
    assert "allswell questions" in said
    assert project.ran() == []
    (question,) = project.shown()["questions"]
    assert (question["kind"], [option["key"] for option in question["options"]]) == (
        "permission",
        ["allow", "refuse", "skip"],
    )
    assert f"to call Bash({TEST}). The call has not been made" in question["text"]
    assert project.shell.living() == []
    project.shell("answer", "night", "allow", "and", "hurry")
    project.resume(Reply("Finished."), Reply("a second turn"))  # its session makes the call by itself, in one turn
    assert project.ran() == ["now"]
    assert "and hurry" in project.heard()
    assert project.shown()["result"]["message"] == "Finished."
    assert project.shown()["task"]["state"] == "done"


def test_a_refused_call_is_not_made_and_the_agent_hears_why(project: Project) -> None:
    settings = f'[agents.claude]\ncommand = ["{CLIENTS / "claude"}", "-p", "{{prompt}}"]\ndefer = ["Bash"]\n'
    (project.shell.folder / "allswell.toml").write_text(settings)
    project.shell("trust", "--yes")
    project.run(bash(TEST), options=("--agent", "claude"), code=3)
    project.shell("answer", "night", "refuse", "use make test")
    project.resume(Reply("Finished."))
    assert project.ran() == []
    assert "A human has refused this call. use make test" in project.heard()


OFF = {
    "disableAllHooks": True,
    "enabledPlugins": {"allswell-permissions@inline": False},
    "env": {"CLAUDE_CODE_SIMPLE": "1", "CLAUDE_CODE_SAFE_MODE": "1"},
}
"""Settings by which Claude Code runs no hook of ours."""


@pytest.mark.parametrize("name", OFF)
@pytest.mark.parametrize("named", [False, True], ids=["in the folder", "named by the command"])
def test_no_settings_let_a_call_pass_that_waits_and_what_is_allowed_is_made_once(
    project: Project, name: str, named: bool
) -> None:
    settings = f'[agents.claude]\ncommand = ["{CLIENTS / "claude"}", "-p", "{{prompt}}"]\ndefer = ["Bash"]\n'
    (project.shell.folder / "allswell.toml").write_text(settings)
    project.shell("trust", "--yes")
    (project.shell.folder / ".claude").mkdir()
    off = json.dumps({name: OFF[name]})
    for place in ("settings.json", "settings.local.json"):
        (project.shell.folder / ".claude" / place).write_text(off)
    args = ("--settings", off) if named else ()
    project.run(bash(TEST), options=("--agent", "claude"), args=("--allowedTools", "Bash", *args), code=3)
    assert project.ran() == []
    project.shell("answer", "night", "allow")
    project.resume(bash(TEST), code=3)  # its session makes the call; then it wants the same once more
    assert project.ran() == ["now"]
    assert len(project.shown()["questions"]) == 2
