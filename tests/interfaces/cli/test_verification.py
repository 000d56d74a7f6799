"""Proof of done, end to end: an agent reports that it is done, and the command that verifies it says otherwise.

The agents are stand-ins: real processes that say done, by exit code 0 or by `allswell done`, and are not.
"""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.runtime.process.stage import until

AGENT = """\
#!/bin/sh
tries=$(($(cat tries 2>/dev/null || echo 0) + 1))
echo $tries > tries
echo "$ALLSWELL_HANDOVER" > told.$tries
cat > read.$tries
echo "arguments: $*" > words.$tries
[ $tries -ge ${GOOD_AT:-99} ] && touch good
exit 0
"""
CHECK = """\
#!/bin/sh
echo "looking in $(pwd)"
test -e good && exit 0
echo 'the parser still fails' >&2
exit 2
"""


def programs(shell: Shell, agent: str = AGENT, check: str = CHECK) -> None:
    for name, text in (("agent", agent), ("check", check)):
        path = shell.folder / name
        path.write_text(text)
        path.chmod(0o755)


@pytest.mark.row("C2")
def test_a_command_that_says_done_and_is_not_is_run_again_and_told_what_was_found(shell: Shell) -> None:
    programs(shell)
    said = shell(
        *("run", "--name", "mend", "--env", "GOOD_AT=3", "--verify", "./check"), "--", "./agent", "why: {handover}"
    ).stderr
    assert "it reports done; verifying: ./check" in said
    assert "`./check` failed (exit code 2); sent back, 1 of 3" in said
    assert "the parser still fails" in said
    assert said.strip().splitlines()[-1].startswith("allswell: `./check` passed in ")
    assert (shell.folder / "told.1").read_text().strip() == ""
    for heard in ("told", "read", "words"):
        text = (shell.folder / f"{heard}.2").read_text()
        assert "It said done; `./check` failed (exit code 2), sent back, 1 of 3." in text, heard
        assert "the parser still fails" in text, heard
    assert (shell.folder / "words.1").read_text() == "arguments: why: \n"
    shown = shell.json("show", "mend")
    assert shown["task"]["state"] == "done"
    assert [one["outcome"] for one in shown["attempts"]] == ["not_verified", "not_verified", "done"]
    assert shown["verification"]["command"] == "./check"
    checks = [one["verification"] for one in shell.json("receipts")["receipts"]]
    assert [(one["passed"], one["why"]) for one in checks] == [
        (False, "exit code 2"),
        (False, "exit code 2"),
        (True, "exit code 0"),
    ]
    assert all(f"looking in {shell.folder}" in one["output"] for one in checks)
    assert "said done; `./check` failed (exit code 2), sent back, 1 of 3" in shell("show", "mend").stdout
    assert "`./check` passed." in shell("why", "mend").stdout
    kinds = shell.kinds()
    assert (kinds.count("task_said_done"), kinds.count("task_verified"), kinds.count("task_sent_back")) == (3, 3, 2)


def test_after_three_failures_a_human_is_asked_and_an_operator_may_verify_it_by_hand(shell: Shell) -> None:
    programs(shell)
    ran = shell.run_json("--name", "mend", "--verify", "./check", "--", "./agent", code=3)
    assert (ran["end"], ran["attempts"], ran["state"]) == ("unverified", 3, "open")
    assert ran["verification"]["output"].endswith("the parser still fails")
    (question,) = shell.json("questions")["questions"]
    assert "`./check` failed 3 times, the last time with: exit code 2" in question["text"]
    assert "Run the command that verifies it again" in shell("why", "mend").stdout
    failed = shell("verify", "mend", code=1)
    assert "still waits for you" in failed.stdout
    assert "the parser still fails" in failed.stderr
    (shell.folder / "good").touch()
    elsewhere = shell.folder / "elsewhere"
    elsewhere.mkdir()
    assert shell.json("verify", "mend", "--folder", str(elsewhere), code=1)["follows"] == "ask"
    done = shell.json("verify", "mend")
    assert (done["follows"], done["folder"]) == ("accept", str(shell.folder))
    assert shell.json("show", "mend")["task"]["state"] == "done"
    assert shell.json("questions")["questions"] == []
    refused = shell("verify", "mend", code=2).stderr
    assert "already done" in refused


def test_what_a_human_sends_back_is_run_again_with_their_words(shell: Shell) -> None:
    programs(shell)
    shell("run", "--name", "mend", "--verify", "./check", "--", "./agent", code=3)
    shell("answer", "mend", "clarify", "the parser is in src/")
    (shell.folder / "good").touch()
    task = shell.json("show", "mend")["task"]["task_id"]
    shell("run", "--resume", task)
    assert "the parser is in src/" in (shell.folder / "told.4").read_text()
    assert shell.json("show", "mend")["task"]["state"] == "done"


def test_a_verification_that_hangs_is_ended_with_all_it_started_and_counts_as_failed(shell: Shell) -> None:
    programs(shell, check="#!/bin/sh\necho begun\nsleep 600 &\nsleep 600\n")
    (shell.folder / "allswell.toml").write_text('verify_timeout = "300ms"\nverify_attempts = 1\n')
    said = shell("run", "--env", "TAG", "--verify", "./check", "--", "./agent", code=3).stderr
    assert "`./check` failed (not done after 300ms), 1 of 1" in said
    assert shell.living() == []
    (receipt,) = shell.json("receipts")["receipts"]
    assert receipt["verification"]["output"] == "begun"


def test_a_verification_that_cannot_be_started_is_a_failure_or_refused_at_once(shell: Shell) -> None:
    programs(shell)
    assert "--verify" in shell("run", "--verify", "no-such-program x", "--", "./agent", code=2).stderr
    assert "only a shell knows" in shell("run", "--verify", "./check && ./check", "--", "./agent", code=2).stderr
    assert not (shell.folder / "tries").exists()
    (shell.folder / "allswell.toml").write_text("verify_attempts = 1\n")
    said = shell("run", "--verify", "./not-there-yet", "--", "./agent", code=3).stderr
    assert "`./not-there-yet` failed (it could not be started: " in said


def test_the_limit_of_the_attempt_bounds_its_verification_and_then_a_human_is_asked(shell: Shell) -> None:
    programs(shell, check="#!/bin/sh\nexec sleep 600\n")
    said = shell(
        "run", "--name", "mend", "--env", "TAG", "--timeout", "1500ms", "--verify", "./check", "--", "./agent", code=124
    )
    assert "was reached while `./check` ran" in said.stderr
    assert shell.living() == []
    (question,) = shell.json("questions")["questions"]
    assert "the limit of its attempt was reached first" in question["text"]
    shell("answer", "mend", "accept")
    assert shell.json("show", "mend")["task"]["state"] == "done"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_who_is_killed_or_stopped_while_it_verifies_has_not_let_it_count_as_done(
    shell: Shell, number: signal.Signals
) -> None:
    programs(shell, check="#!/bin/sh\ntouch begun\nexec sleep 600\n")
    running = shell.start("--name", "mend", "--verify", "./check", "--", "./agent")
    until((shell.folder / "begun").exists)
    running.send_signal(number)
    running.communicate()
    until(lambda: shell.living() == [])
    assert running.returncode == (-9 if number is signal.SIGKILL else 130)
    if number is signal.SIGKILL:
        why = shell("why", "mend").stdout
        assert "reports that it is done" in why
        assert "allswell verify t_" in why
        shell("run", "--name", "next", "--", "true")  # whoever comes next settles what was left
    shown = shell.json("show", "mend")
    assert shown["task"]["state"] == "ready"
    assert [one["outcome"] for one in shown["attempts"]] == ["released"]
    (receipt,) = [one for one in shell.json("receipts")["receipts"] if one["name"] == "mend"]
    assert receipt["status"] == ("orphaned" if number is signal.SIGKILL else "interrupted")
    (shell.folder / "check").write_text(CHECK)
    (shell.folder / "good").touch()
    shell("run", "--resume", shown["task"]["task_id"])
    assert shell.json("show", "mend")["task"]["state"] == "done"


# --- without a supervisor ---------------------------------------------------------------------------------------------


def test_done_from_a_shell_runs_it_first_and_its_holder_goes_on_where_it_fails(shell: Shell) -> None:
    programs(shell)
    shell("submit", "mend", "--verify", "./check")
    claim = shell.json("claim", "--agent", "ada")
    held = ("--task", claim["task"]["task_id"], "--token", str(claim["token"]))
    failed = shell("done", '{"pages": 3}', *held, code=1).stderr
    assert (
        "not done: `./check` failed (exit code 2), 1 of 3; you still hold it: fix it, and report done again" in failed
    )
    assert "the parser still fails" in failed
    assert shell.json("done", *held, code=1)["failed"] == 2
    (shell.folder / "good").touch()
    assert "is done" in shell("done", '{"pages": 4}', *held).stdout
    shown = shell.json("show", "mend")
    assert (shown["task"]["state"], shown["result"]) == ("done", {"pages": 4})
    assert [one["outcome"] for one in shown["attempts"]] == ["done"]


# --- under a supervisor -----------------------------------------------------------------------------------------------

SOCKET_AGENT = """\
#!/bin/sh
tries=$(($(cat tries 2>/dev/null || echo 0) + 1))
echo $tries > tries
echo "$1" > prompt.$tries
[ $tries -ge 2 ] && touch good
allswell done "{\\"tries\\": $tries}" > answer.$tries
exit 0
"""
FLEET = """\
[agents.builder]
command = ["./agent", "{prompt}"]
role = "builder"
concurrency = 2
[roles.builder]
verify = ["./check"]
"""


def test_under_up_the_same_agent_gets_it_back_and_its_own_result_counts(shell: Shell) -> None:
    programs(shell, SOCKET_AGENT)
    (shell.folder / "allswell.toml").write_text(FLEET)
    shell("submit", "mend", "--role", "builder")
    said = shell("up", "--drain").stdout
    assert "said that “mend” is done; `./check` failed (exit code 2), sent back, 1 of 3" in said
    assert "has done “mend”; `./check` passed" in said
    assert "verified when you have ended" in (shell.folder / "answer.1").read_text()
    assert "the parser still fails" in (shell.folder / "prompt.2").read_text()
    shown = shell.json("show", "mend")
    assert (shown["task"]["state"], shown["result"]) == ("done", {"tries": 2})


TREES = """\
[agents.builder]
command = ["{folder}/agent", "{{prompt}}"]
worktree = true
"""


def in_worktrees(shell: Shell, check: str) -> None:
    """A repository whose agents each work in a worktree of the task's own, and what verifies it."""
    programs(shell, f"#!/bin/sh\necho mended > mended\necho x >> {shell.folder}/began\n", check)
    (shell.folder / "allswell.toml").write_text(TREES.format(folder=shell.folder))
    (shell.folder / ".gitignore").write_text(".allswell\n")
    assert shell.sh("git add -A && git -c user.name=x -c user.email=x@y commit -qm first").returncode == 0


def test_work_that_a_human_accepts_is_put_on_its_branch(shell: Shell) -> None:
    in_worktrees(shell, "#!/bin/sh\nexit 1\n")
    task = shell("submit", "mend", "--verify", "./check").stdout.split()[0]
    shell("up", "--drain")
    said = " ".join(shell("answer", "mend", "accept").stdout.split())
    assert f"Its work is on the branch allswell/mend-{task[-4:]} → git -C" in said, said
    assert shell.sh(f"git show allswell/mend-{task[-4:]}:mended").stdout == "mended\n"
    work = shell.json("show", "mend")["work"]
    assert (work["branch"], [one["path"] for one in work["changed"]]) == (f"allswell/mend-{task[-4:]}", ["mended"])
    assert not (shell.folder / ".allswell/worktrees" / task).exists()


def test_what_was_said_to_be_done_when_its_supervisor_died_is_verified_by_the_next_one(shell: Shell) -> None:
    in_worktrees(shell, f"#!/bin/sh\ntouch {shell.folder}/begun\ntest -e {shell.folder}/go || exec sleep 600\n")
    task = shell("submit", "mend", "--verify", "./check").stdout.split()[0]
    pipe = subprocess.PIPE
    running = subprocess.Popen([*ALLSWELL, "up"], cwd=shell.folder, env=shell.env, stdout=pipe, text=True)
    until((shell.folder / "begun").exists)
    running.kill()
    running.communicate()
    (shell.folder / "go").touch()
    said = shell("up", "--drain").stdout
    assert "“mend” was reported as done; verifying: ./check" in said, said
    assert "“mend” is done; `./check` passed" in said
    assert (shell.folder / "began").read_text() == "x\n", "the agent was not begun anew"
    shown = shell.json("show", "mend")
    assert (shown["task"]["state"], len(shown["attempts"])) == ("done", 1)
    assert shell.sh(f"git show allswell/mend-{task[-4:]}:mended").stdout == "mended\n"


FUNCTIONS = """\
from pathlib import Path
import allswell

async def mend(work: allswell.Work) -> dict:
    if "still fails" in work.handover:
        Path(work.folder, "good").touch()
    return {"attempt": work.attempt}

def mend_slowly(work: allswell.SyncWork) -> dict:
    if "still fails" in work.handover:
        Path(work.folder, "good").touch()
    return {"attempt": work.attempt}
"""


@pytest.mark.parametrize("function", ["mend", "mend_slowly"])
def test_a_function_is_verified_when_it_has_returned(shell: Shell, function: str) -> None:
    programs(shell)
    (shell.folder / "menders.py").write_text(FUNCTIONS)
    (shell.folder / "allswell.toml").write_text(
        f'[agents.mender]\nfunction = "menders:{function}"\n[roles.mender]\nverify = "./check"\n'
    )
    shell("submit", "mend", "--role", "mender")
    shell("up", "--drain")
    shown = shell.json("show", "mend")
    assert (shown["task"]["state"], shown["result"]) == ("done", {"attempt": 2})
    assert [one["verification"]["passed"] for one in shell.json("receipts")["receipts"]] == [False, True]


# --- in a flow --------------------------------------------------------------------------------------------------------


def test_a_step_is_done_when_it_was_verified_and_the_next_one_waits_for_that(shell: Shell) -> None:
    programs(shell, AGENT.replace("GOOD_AT:-99", "GOOD_AT:-2"))
    (shell.folder / "made.py").write_text("from pathlib import Path\n\ndef made():\n    Path('made').touch()\n")
    (shell.folder / "flow.yaml").write_text(
        "steps:\n"
        "  - {id: mend, run: ./agent, verify: [./check]}\n"
        "  - {id: make, python: 'made:made', needs: mend, verify: 'test -e {{ run.folder }}/made'}\n"
        "  - {id: ship, run: [cp, good, shipped], needs: make}\n"
    )
    said = shell("run", "flow.yaml").stdout
    assert "mend failed" in said
    assert "`./check` failed (exit code 2)" in said
    assert (shell.folder / "shipped").exists()
    assert "sent back, 1 of 3" in (shell.folder / "told.2").read_text()
    kept = sorted(shell.folder.glob(".allswell/runs/*/flow/receipts/*.json"))
    receipts = [json.loads(path.read_text()) for path in kept]
    verdicts = [(one["step_id"], one["verification"] and one["verification"]["passed"]) for one in receipts]
    assert verdicts == [("make", True), ("mend", False), ("mend", True), ("ship", None)]


def test_a_step_that_is_never_verified_asks_and_can_be_accepted(shell: Shell) -> None:
    programs(shell)
    (shell.folder / "flow.yaml").write_text(
        "steps:\n  - {id: mend, run: ./agent, verify: ./check}\n  - {id: ship, run: [touch, shipped], needs: mend}\n"
    )
    shell("run", "flow.yaml", code=3)
    (question,) = shell.json("questions")["questions"]
    assert question["kind"] == "not_verified"
    shell("answer", question["question_id"], "accept")
    run = next(shell.folder.glob(".allswell/runs/r_*")).name
    shell("resume", run)
    assert (shell.folder / "shipped").exists()
    assert (shell.folder / "tries").read_text().strip() == "3"


def test_a_supervised_agent_cannot_verify_its_own_work_past_its_supervisor(shell: Shell) -> None:
    """Not where it likes, and not by hand: whoever runs inside an attempt has somebody to verify it."""
    elsewhere = shell.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "good").touch()
    trick = (
        f'store="--store sqlite:///{shell.folder}/.allswell/allswell.db"; cd {elsewhere}; unset ALLSWELL_SOCKET\n'
        'allswell done $store --task "$ALLSWELL_TASK" --token "$ALLSWELL_TOKEN" 2> done.txt; echo $? >> done.txt\n'
        'allswell verify "$ALLSWELL_TASK" $store 2> verify.txt; echo $? >> verify.txt\n'
    )
    programs(shell, f"#!/bin/sh\n{trick}exit 0\n", "#!/bin/sh\ntest -e good\n")
    (shell.folder / "allswell.toml").write_text("verify_attempts = 1\n")
    shell("run", "--name", "mend", "--verify", str(shell.folder / "check"), "--", "./agent", code=3)
    said = (elsewhere / "done.txt").read_text()
    assert "has passed; what you brought is kept" in said
    assert said.split()[-1] == "2"
    assert (elsewhere / "verify.txt").read_text().split()[-1] == "2"
    assert shell.json("show", "mend")["task"]["state"] == "waiting"
