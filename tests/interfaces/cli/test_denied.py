"""Calls that an agent's program refused, end to end: finished work is done, with a warning wherever it is shown.

The agents are stand-ins that print what the real ones have printed; tests/clients/test_denied.py runs the real ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.clients.stand_in import CAPTURED, install
from tests.interfaces.cli.shell import Shell

REFUSED = "2 calls were refused: Bash(npm test), Bash(git push)"
FLEET = """\
[agents.claude]
command = ["{program}", "{{prompt}}"]
worktree = true
"""


@pytest.fixture
def worked_around(tmp_path: Path) -> str:
    """An agent that was refused two calls, and finished its work without them."""
    return str(install(tmp_path / "bin", "claude-denied", before="echo new > new"))


def test_a_refused_call_that_was_worked_around_is_a_warning_wherever_the_task_is_shown(
    shell: Shell, worked_around: str
) -> None:
    done = shell("run", "--name", "night", "--", worked_around)
    assert done.stderr == f"allswell: {REFUSED}\n"
    shown = shell.json("show", "night")
    assert (shown["task"]["state"], shown["questions"]) == ("done", [])
    (attempt,) = shown["attempts"]
    assert (attempt["outcome"], attempt["warning"]) == ("done", REFUSED)
    said = shell("show", "night").stdout
    assert f"warning    {REFUSED}" in said
    assert f"finished it; {REFUSED}" in " ".join(said.split())
    assert f"Warning: {REFUSED}." in " ".join(shell("why", "night").stdout.split())
    (receipt,) = shell.json("receipts")["receipts"]
    assert (receipt["status"], receipt["warnings"]) == ("done", [REFUSED])
    assert REFUSED in shell("logs", "night").stdout


def test_with_json_the_warning_is_among_the_warnings(shell: Shell, worked_around: str) -> None:
    ran = shell.run_json("--", worked_around)
    assert (ran["state"], ran["exit"], ran["warnings"]) == ("done", 0, [REFUSED])


def test_what_verifies_the_work_decides_about_it(shell: Shell, worked_around: str) -> None:
    shell("run", "--name", "good", "--verify", "test -e new", "--", worked_around)
    (attempt,) = shell.json("show", "good")["attempts"]
    assert (attempt["outcome"], attempt["warning"]) == ("done", REFUSED)
    said = shell("run", "--name", "bad", "--verify", "test -e other", "--", worked_around, code=3).stderr
    assert "3 of 3" in said
    shown = shell.json("show", "bad")
    assert {attempt["outcome"] for attempt in shown["attempts"]} == {"not_verified"}
    assert [question["kind"] for question in shown["questions"]] == ["not_verified"]


def test_an_agent_that_says_done_itself_is_done_with_the_warning(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-denied", after="allswell done '\"mine\"'")
    shell("run", "--name", "night", "--", str(program))
    shown = shell.json("show", "night")
    assert (shown["task"]["state"], shown["result"]) == ("done", "mine")
    assert shown["attempts"][0]["warning"] == REFUSED


def test_a_supervisor_tells_it_in_the_line_about_the_end_and_beside_the_branch(
    shell: Shell, worked_around: str
) -> None:
    (shell.folder / "allswell.toml").write_text(FLEET.format(program=worked_around))
    shell("submit", "paint")
    said = " ".join(shell("up", "--drain").stdout.split())
    assert f"claude has done “paint”; {REFUSED}; it says: “" in said
    assert ".” The work is on the branch allswell/paint-" in said
    assert said.count("were refused") == 1
    (receipt,) = shell.json("receipts")["receipts"]
    assert receipt["warnings"] == [REFUSED]
    assert receipt["branch"] is not None


# --- it could not go on -----------------------------------------------------------------------------------------------

AGENT = """\
import json, pathlib, subprocess, sys
printed = pathlib.Path({captured!r})
plugins = [word.partition("=")[2] for word in sys.argv if word.startswith("--plugin-dir=")]
pathlib.Path("plugins").write_text(json.dumps(plugins))
pathlib.Path("handed").write_text(" ".join([*sys.argv, sys.stdin.read()]))
if not plugins:
    sys.stdout.write((printed / "claude-gave-up.jsonl").read_text())
    sys.exit(1)
hooks = json.loads((pathlib.Path(plugins[0]) / "hooks" / "hooks.json").read_text())["hooks"]["PreToolUse"]
hook = hooks[0]["hooks"][0]
answers = {{}}
for command in ("npm test", "npm test ", "timeout 5 npm test", "npm test; rm x"):
    event = {{"tool_name": "Bash", "tool_input": {{"command": command, "description": "other words"}}}}
    ran = subprocess.run([hook["command"], *hook["args"]], input=json.dumps(event), capture_output=True, text=True)
    answers[command] = ran.stdout
pathlib.Path("answers").write_text(json.dumps(answers))
sys.stdout.write((printed / "claude-success.jsonl").read_text())
"""


@pytest.fixture
def gives_up(tmp_path: Path) -> str:
    """An agent that gives up where it is refused a call, and asks its hook as Claude Code does where it has one."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{AGENT.format(captured=str(CAPTURED))}")
    program.chmod(0o755)
    return str(program)


def test_an_agent_that_could_not_go_on_asks_and_what_is_allowed_is_that_call_in_one_attempt(
    shell: Shell, gives_up: str
) -> None:
    said = shell("run", "--name", "night", "--", gives_up, "-p", "do it", code=1).stderr
    assert "answer: allswell questions" in said
    assert "no retries" not in said  # a human decides about that
    assert "allswell: 2 calls were refused: Bash(npm test)" in said
    assert "it said" not in said  # a protocol's last line says nothing to a person
    (question,) = shell.json("questions")["questions"]
    assert [option["key"] for option in question["options"]] == ["accept", "allow", "retry", "clarify", "skip"]
    assert f"Its work is in {shell.folder}, on the branch main." in question["text"]
    assert str(shell.folder) in " ".join(shell("show", "night").stdout.split())
    shell("answer", "night", "allow", "and", "hurry")
    shell("run", "--resume", "night")
    answers = json.loads((shell.folder / "answers").read_text())
    assert json.loads(answers.pop("npm test"))["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert set(answers.values()) == {""}
    assert "exactly as written: Bash(npm test) and hurry" in (shell.folder / "handed").read_text()
    (plugin,) = json.loads((shell.folder / "plugins").read_text())
    assert not Path(plugin).exists()
    shown = shell.json("show", "night")
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["failed:transient", "done"]


def test_an_allowance_is_spent_by_the_next_attempt(shell: Shell, tmp_path: Path) -> None:
    noted = f'printf "%s\\n" "$1" >> {tmp_path}/first'
    program = install(tmp_path / "bin", "claude-gave-up", before=noted)
    shell("run", "--name", "night", "--", str(program), "-p", "do it", code=1)
    shell("answer", "night", "allow")
    shell("run", "--resume", "night", code=1)
    shell("answer", "night", "retry")
    shell("run", "--resume", "night", code=1)
    first, second, third = (tmp_path / "first").read_text().splitlines()
    # the later ones go on with its session, and only the second has the plugin that allows the call
    assert (first, second.partition("=")[0], third) == ("-p", "--plugin-dir", "--resume")


DEFERS = """\
import json, pathlib, subprocess, sys
printed = pathlib.Path({captured!r})
settings = [pathlib.Path(word.partition("=")[2]).read_text() for word in sys.argv if word.startswith("--settings=")]
pathlib.Path("argv").write_text(json.dumps(sys.argv))
pathlib.Path("settings").write_text(json.dumps(settings))
if "--resume" not in sys.argv:
    sys.stdout.write((printed / "claude-deferred.jsonl").read_text())
    sys.exit(0)
(plugin,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--plugin-dir=")]
hooks = json.loads((pathlib.Path(plugin) / "hooks" / "hooks.json").read_text())["hooks"]["PreToolUse"]
hook = hooks[0]["hooks"][0]
pathlib.Path("hook").write_text(json.dumps(hook))
answers = []
for number in ("toolu_1", "toolu_2"):
    event = {{"tool_name": "Bash", "tool_input": {{"command": "ls -la"}}, "tool_use_id": number}}
    ran = subprocess.run([hook["command"], *hook["args"]], input=json.dumps(event), capture_output=True, text=True)
    answers.append(json.loads(ran.stdout)["hookSpecificOutput"]["permissionDecision"])
pathlib.Path("answers").write_text(json.dumps(answers))
sys.stdout.write((printed / "claude-success.jsonl").read_text())
"""


def test_what_is_allowed_in_a_session_that_goes_on_is_that_call_once(shell: Shell, gives_up: str) -> None:
    """An agent that may make a call once cannot make it again, nor switch the hook off by settings in its folder."""
    Path(gives_up).write_text(f"#!{sys.executable}\n{DEFERS.format(captured=str(CAPTURED))}")
    (shell.folder / "own.json").write_text('{"model": "x", "disableAllHooks": true, "env": {"KEY": "sk-secret"}}')
    settings = f'[agents.claude]\ncommand = ["{gives_up}", "-p", "{{prompt}}"]\ndefer = ["Bash"]\n'
    (shell.folder / "allswell.toml").write_text(settings)
    own = ("--settings", "own.json", "-p", "do it")
    shell("run", "--name", "night", "--agent", "claude", "--", gives_up, *own, code=3)
    (kept,) = json.loads((shell.folder / "settings").read_text())
    assert json.loads(kept)["model"] == "x"
    assert json.loads(kept)["disableAllHooks"] is False
    assert "sk-secret" in kept
    assert "sk-secret" not in (shell.folder / "argv").read_text(), "every user of the machine can read a command line"
    shell("answer", "night", "allow")
    shell("run", "--resume", "night")
    assert json.loads((shell.folder / "answers").read_text()) == ["allow", "defer"]
    assert "ls -la" not in (shell.folder / "hook").read_text(), "neither does one say which call was allowed"
    (shell.folder / "own.json").unlink()
    said = shell("run", "--agent", "claude", "--", gives_up, *own, code=None)
    assert "calls that match `defer` cannot be made to wait for a human: No such file" in " ".join(said.stderr.split())


@pytest.mark.parametrize(
    "words, why",
    [
        (("sh", "-c", '"$0"', "{program}"), "that takes a command that begins with claude"),
        (("{program}", "--bare"), "claude runs no hooks with --bare"),
        (("{program}", "--permission-mode", "plan"), "claude only plans"),
    ],
)
def test_what_cannot_be_allowed_is_not_offered(shell: Shell, tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    program = install(tmp_path / "bin", "claude-gave-up")
    shell("run", "--name", "night", "--", *(word.format(program=program) for word in words), code=1)
    (question,) = shell.json("questions")["questions"]
    assert [option["key"] for option in question["options"]] == ["accept", "retry", "clarify", "skip"]
    assert why in question["text"]


def test_an_agent_that_says_fail_after_a_refusal_asks_too(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-denied", after="allswell fail 'cannot test'")
    shell("run", "--name", "night", "--retries", "3", "--", str(program), code=3)
    (question,) = shell.json("questions")["questions"]
    assert [option["key"] for option in question["options"]] == [
        *("accept", "allow", "allow_2"),
        *("retry", "clarify", "skip"),
    ]
    assert f"has ended without being done: cannot test. {REFUSED}." in question["text"]
    assert len(shell.json("show", "night")["attempts"]) == 1


def test_an_agent_that_asks_after_a_refusal_may_be_allowed_the_call(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-denied", after="allswell ask 'May I test?'")
    shell("run", "--name", "night", "--", str(program), code=3)
    (question,) = shell.json("questions")["questions"]
    assert [option["key"] for option in question["options"]] == ["reply", "allow", "allow_2", "skip"]
    shell("answer", "night", "allow_2")
    assert shell.json("show", "night")["task"]["state"] == "ready"


def test_under_a_supervisor_the_worktree_is_named_and_what_is_accepted_is_on_its_branch(
    shell: Shell, tmp_path: Path
) -> None:
    program = install(tmp_path / "bin", "claude-gave-up", before="echo new > new")
    (shell.folder / "allswell.toml").write_text(FLEET.format(program=program))
    shell("submit", "paint")
    said = " ".join(shell("up", "--drain").stdout.split())
    assert "allswell asks: “Task t_" in said
    (question,) = shell.json("questions")["questions"]
    task = question["task_id"]
    worktree = shell.folder / ".allswell" / "worktrees" / task
    assert f"Its work is in {worktree}, on the branch allswell/paint-{task[-4:]}." in question["text"]
    assert f"worktree   {worktree}\n" in shell("show", "paint").stdout
    assert shell.json("show", "paint")["worktree"] == str(worktree)
    answered = shell("answer", "paint", "accept").stdout
    assert f"Its work is on the branch allswell/paint-{task[-4:]}" in " ".join(answered.split())
    shown = shell.json("show", "paint")
    assert (shown["task"]["state"], shown["work"]["branch"]) == ("done", f"allswell/paint-{task[-4:]}")
    assert shown["worktree"] is None
    assert not worktree.exists()


def test_a_flows_step_is_done_with_the_warning_or_asks(shell: Shell, worked_around: str) -> None:
    gives_up = install(Path(worked_around).parent / "other", "claude-gave-up")
    steps = f"steps:\n- {{id: paint, run: [{worked_around}]}}\n- {{id: stop, needs: paint, run: [{gives_up}]}}\n"
    (shell.folder / "flow.yaml").write_text(steps)
    shell("run", "flow.yaml", code=3)
    tasks = {task["name"]: task["task_id"] for task in shell.json("tasks", "--all")["tasks"]}
    assert shell.json("show", tasks["paint"])["attempts"][0]["warning"] == REFUSED
    (question,) = shell.json("questions")["questions"]
    assert (question["task_id"], question["kind"]) == (tasks["stop"], "denied")


def test_opencode_that_was_denied_a_call_and_ended_with_exit_code_0_is_not_done(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "opencode-denied")
    said = shell("run", "--name", "night", "--", str(program), "run", "--format", "json", "mend it", code=3).stderr
    assert "exit code 0, but it was not done: it stopped behind a call that it was not permitted to make" in said
    assert "answer: allswell questions" in said
    (question,) = shell.json("show", "night")["questions"]
    assert "1 call was refused: bash(echo hi)" in question["text"]
    assert "allow" not in [option["key"] for option in question["options"]], "its own settings decide"


def test_opencode_that_has_finished_is_done_with_what_it_said_and_cost(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "opencode-success")
    shell("run", "--name", "night", "--", str(program), "run", "--format", "json", "mend it")
    shown = shell.json("show", "night")
    assert shown["result"]["message"] == "All of it is made."
    assert shown["result"]["session"].startswith("ses_")
    assert (shown["spent"]["cost_usd"], shown["spent"]["tokens_in"]) == (0.000036, 2)
