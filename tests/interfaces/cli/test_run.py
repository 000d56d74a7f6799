"""`allswell run`: in front of any command, in real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.upkeep import at_terminal
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import peak_kb, until

STUBBORN = "echo x > new; trap '' TERM; while :; do sleep 600; done"


def test_output_and_exit_code_are_the_command_s_own(shell: Shell) -> None:
    blob = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300); sys.stderr.write('oops')"
    done = subprocess.run(
        [*ALLSWELL, "run", "--", sys.executable, "-c", blob],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, bytes(range(256)) * 300, b"oops")
    assert shell.kinds() == ["task_submitted", "task_claimed", "task_completed"]
    (task,) = shell.json("tasks", "--all")["tasks"]
    assert task["state"] == "done"
    assert shell.json("receipts") == {"receipts": []}
    assert git("status", "--porcelain", cwd=shell.folder) == ""


def test_a_bad_end_is_told_in_three_lines_and_its_work_can_be_recovered(shell: Shell) -> None:
    script = "echo new > new; echo changed >> kept; echo first >&2; echo 'no such table' >&2; exit 7"
    done = shell("run", "--name", "night", "--", "sh", "-c", script, code=7)
    assert done.stdout == ""
    _, _, cause, said, more = done.stderr.splitlines()
    assert cause.startswith("allswell: night failed after ")
    assert "exit code 7; no retries asked for; 2 files changed, kept in refs/allswell/t_" in cause
    assert said == "  it said: no such table"
    assert "no such table" in shell(*more.removeprefix("  more: allswell ").split()).stdout
    quiet = shell("run", "--name", "quiet", "--", "sh", "-c", "exit 7", code=7).stderr
    assert quiet.endswith(": exit code 7; no retries asked for; it changed no file\n")
    assert len(quiet.splitlines()) == 1, "a failure that changed nothing says so in one line"
    shown = [shell(*words).stdout for words in (("show", "night"), ("why", "night"), ("events",), ("tasks", "--all"))]
    assert not [text for text in shown if "transient" in text], "names of ours are for programs"
    (receipt, _) = shell.json("receipts")["receipts"]
    assert shell.json("show", receipt["receipt_id"])["receipt"]["exit_code"] == 7
    assert shell.json("show", receipt["path"])["receipt"]["receipt_id"] == receipt["receipt_id"]
    assert "night failed after" in shell("show", receipt["receipt_id"]).stdout
    assert f"allswell show {receipt['receipt_id']}" in shell("show", "night").stdout
    assert shell.json("show", "night")["receipt_ids"] == [receipt["receipt_id"]]
    assert "receipt_written" in shell.kinds()
    shell("recover", "night", "--into", "../back")
    assert (shell.folder.parent / "back" / "kept").read_text() == "as it was\nchanged\n"
    git("checkout", "-q", "kept", cwd=shell.folder)
    (shell.folder / "new").write_text("somebody else's")
    told = shell.json("recover", receipt["task_id"], "--apply")["recovery"]
    assert told["replaced"] == ["kept"]
    assert told["conflicts"] == [{"path": "new", "recovered": "new.recovered"}]
    assert (shell.folder / "new").read_text() == "somebody else's"


def test_recover_says_what_there_is_before_it_does_anything(shell: Shell) -> None:
    shell("run", "--name", "night", "--", "sh", "-c", "echo new > new; exit 7", code=7)
    (shell.folder / "new").unlink()
    told = shell("recover", "night").stdout
    assert "--into DIR" in told
    assert not (shell.folder / "new").exists()
    shell("recover", "night", "--into", "x", "--apply", code=2)
    assert "did you mean 'night'" in shell("recover", "nihgt", code=2).stderr
    assert "attempt 2" in shell("recover", "night", "--attempt", "2", code=2).stderr
    assert "no receipt" in shell("show", "rc_nothing.1", code=2).stderr


@pytest.mark.row("O4", "F9")
def test_a_limit_is_124_and_the_task_goes_back_to_the_pool(shell: Shell) -> None:
    words = ("--timeout", "1s", "--grace", "100ms", "--env", "TAG", "--", "sh", "-c", "echo x > new; exec sleep 600")
    ran = shell.run_json(*words, code=124)
    assert (ran["end"], ran["exit"], ran["exit_code"], ran["state"]) == ("timeout", 124, None, "open")
    (task,) = shell.json("tasks")["tasks"]
    assert task["state"] == "ready"
    kinds = shell.kinds()
    assert kinds.index("agent_timeout") < kinds.index("receipt_written")
    shell("claim", "--agent", "ada", code=5)  # it runs where it was started: not for whoever takes anything
    (need,) = shell.json(code=3)["needs"]
    assert (need["kind"], need["command"]) == ("stopped", f"allswell run --resume {ran['task_id']}")
    again = shell("run", "--resume", ran["task_id"], code=124)
    assert "was stopped after" in again.stderr
    assert [one["attempt"] for one in shell.json("receipts")["receipts"]] == [1, 2]


@pytest.mark.realtime
def test_idle_counts_evidence_and_is_judged_by_the_store_like_a_timeout(shell: Shell) -> None:
    spinner = "while :; do printf '\\r|'; sleep 0.05; printf '\\r/'; sleep 0.05; done"
    ran = shell.run_json("--idle", "1500ms", "--timeout", "1m", "--grace", "100ms", "--", "sh", "-c", spinner, code=124)
    assert ran["end"] == "idle"
    assert "agent_idle" in shell.kinds()
    (task,) = shell.json("tasks")["tasks"]
    assert task["state"] == "ready"


@pytest.mark.realtime
def test_what_we_write_ourselves_is_no_progress_of_a_spinner(shell: Shell) -> None:
    spinner = "while :; do printf '\\r|'; sleep 0.05; printf '\\r/'; sleep 0.05; done"
    allswell = f"{sys.executable} -m allswell run --idle 1s --timeout 20s --grace 100ms"
    done = shell.sh(f'{allswell} -- sh -c "{spinner}" > out.log 2> err.log')
    assert done.returncode == 124, done
    assert "nothing showed progress for 1s" in (shell.folder / "err.log").read_text()
    assert "|" in (shell.folder / "out.log").read_text()


def test_a_good_exit_code_is_not_done_where_the_agent_s_last_line_says_so(shell: Shell) -> None:
    line = '{"type": "result", "subtype": "success", "session_id": "s-1", "terminal_reason": "hook_stopped"}'
    (shell.folder / "last.jsonl").write_text(f"{line}\n")
    done = shell("run", "--name", "night", "--", "cat", "last.jsonl", code=3)
    assert done.stdout == f"{line}\n"
    assert "exit code 0, but it was not done: a hook stopped it" in done.stderr
    assert "answer: allswell questions" in done.stderr
    (question,) = shell.json("questions")["questions"]
    assert "a hook stopped it" in question["text"]
    (shell.folder / "last.jsonl").write_text('{"type": "turn.failed", "error": {"message": "stream disconnected"}}')
    ran = shell.run_json("--", "cat", "last.jsonl", code=1)
    assert (ran["end"], ran["exit_code"], ran["state"]) == ("failed", 0, "failed")
    assert "stream disconnected" in ran["reason"]


def test_with_json_what_it_printed_is_in_files(shell: Shell) -> None:
    ran = shell.run_json("--", "sh", "-c", "echo out; echo oops >&2")
    assert (Path(ran["stdout"]).read_text(), Path(ran["stderr"]).read_text()) == ("out\n", "oops\n")
    assert shell.run_json("--", "true")["stdout"] is None


def test_a_store_that_goes_away_costs_no_exit_code_and_is_told_by_the_next_command(shell: Shell) -> None:
    (shell.folder / "allswell.toml").write_text("[pace]\nstore_patience = '300ms'\n")
    script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo new > new; exit 9"
    running = shell.start("--name", "night", "--", "sh", "-c", script)
    until((shell.folder / "ready").exists)
    notes = shell.folder / ".allswell" / "attempts"
    with contextlib.closing(sqlite3.connect(shell.folder / ".allswell" / "allswell.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        (shell.folder / "go").touch()
        until(lambda: any(b'"command":"Fail"' in note.read_bytes() for note in notes.glob("*.json")))
        running.send_signal(signal.SIGINT)  # else it waits for the store, as long as its lease lasts
        _, said = running.communicate(timeout=100)
        other.rollback()
    assert running.returncode == 9
    assert "the store does not know yet how it ended" in said
    assert "kept in refs/allswell/" in said
    assert [one["exit_code"] for one in shell.json("receipts")["receipts"]] == [9]
    assert [one["state"] for one in shell.json("tasks", "--all")["tasks"]] == ["held"]
    next_one = shell("run", "--", "true")
    assert "the store knows now how" in next_one.stderr
    assert sorted(one["state"] for one in shell.json("tasks", "--all")["tasks"]) == ["done", "failed"]
    assert not list(notes.glob("*.json"))


@pytest.mark.realtime
def test_a_store_in_the_folder_is_neither_work_nor_kept(shell: Shell) -> None:
    beside = ("--store", "sqlite:///watch.db")
    script = "while :; do allswell checkin >/dev/null 2>&1; sleep 600; done"
    ran = shell.run_json(*beside, "--idle", "1s", "--timeout", "1m", "--", "sh", "-c", script, code=124)
    assert ran["end"] == "idle"
    told = shell.json("show", ran["receipt_id"], *beside)["receipt"]
    assert told["changed"] == []
    assert told["snapshot"]["left_out"][0]["detail"] == "Allswell itself has it open"
    assert (shell.folder / ".allswell" / "receipts").is_dir()
    assert ".gitignore" not in {path.name for path in shell.folder.iterdir()}


def test_retries_are_attempts_of_one_task(shell: Shell) -> None:
    script = "echo x >> tries; [ $(wc -l < tries) -ge 3 ]"
    (shell.folder / "allswell.toml").write_text("[retry]\nbackoff = '10ms'\n")
    ran = shell.run_json("--retries", "2", "--", "sh", "-c", script)
    assert (ran["attempts"], ran["state"], ran["end"]) == (3, "done", "done")
    assert shell.kinds().count("task_retried") == 2
    assert len(shell.json("receipts")["receipts"]) == 2
    failed = shell.run_json("--retries", "1", "--", "false", code=1)
    assert (failed["attempts"], failed["state"]) == (2, "failed")


def test_a_limit_is_retried_too(shell: Shell) -> None:
    script = "[ -e again ] || { touch again; exec sleep 600; }"
    ran = shell.run_json("--retries", "1", "--timeout", "1s", "--grace", "100ms", "--", "sh", "-c", script)
    assert (ran["attempts"], ran["end"], ran["state"]) == (2, "done", "done")


@pytest.mark.row("F13")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_receipt_and_gives_the_task_back(shell: Shell, number: int) -> None:
    running = shell.start("--grace", "200ms", "--", "sh", "-c", STUBBORN)
    until((shell.folder / "new").exists)
    running.send_signal(number)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert "was interrupted after" in said
    (receipt,) = shell.json("receipts")["receipts"]
    assert (receipt["status"], receipt["partial"]) == ("interrupted", False)
    assert [one["path"] for one in receipt["changed"]] == ["new"]
    assert shell.living() == []
    (task,) = shell.json("tasks")["tasks"]
    assert task["state"] == "ready"
    assert "task_returned" in shell.kinds()


def test_a_second_signal_lets_go_of_the_grace(shell: Shell) -> None:
    running = shell.start("--grace", "10m", "--", "sh", "-c", STUBBORN)
    until((shell.folder / "new").exists)
    running.send_signal(signal.SIGINT)
    until(lambda: list((shell.folder / ".allswell" / "receipts").glob("*.json")))
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130


@pytest.mark.parametrize(
    "words, text",
    [
        (("--", "no-such-command-at-all"), "there is no program 'no-such-command-at-all'"),
        (("--", "./kept"), "is not executable"),
        (("--timeout", "banana", "--", "true"), "--timeout 'banana' is not a duration"),
        (("--idle", "2h", "--timeout", "1h", "--", "true"), "--idle (2h) is longer"),
        (("--retries", "-1", "--", "true"), "retries"),
        (("true",), "put -- before the command"),
        (("echo", "hi"), "put -- before the command: `allswell run -- echo hi`"),
        (("--idle", "5s", "ls", "-la"), "put -- before the command: `allswell run --idle 5s -- ls -la`"),
        (("--timeout", "1h1h", "--", "true"), "names a unit twice"),
        (("-it", "--", "true"), "--interactive needs a terminal"),
        ((), "which command?"),
        (("--",), "which command?"),
        (("--resume", "t_nothing"), "there is no task"),
        (("--resume", "x", "--", "true"), "give no other one"),
        (("--bogus", "--", "true"), "no such option"),
    ],
)
def test_mistakes_are_told_before_anything_runs(shell: Shell, words: tuple[str, ...], text: str) -> None:
    done = shell("run", *words, code=2)
    assert text in done.stderr.lower().replace("allswell: ", "") or text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert shell.json("tasks")["tasks"] == []


def test_a_working_directory_that_is_gone(shell: Shell) -> None:
    gone = shell.folder / "gone"
    script = f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {sys.executable} -m allswell run -- true"
    done = shell.sh(script)
    assert done.returncode == 2
    assert "the current folder cannot be found" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_for_the_receipt_is_a_warning(shell: Shell) -> None:
    shell("run", "--", "true")
    (shell.folder / ".allswell" / "receipts").write_text("in the way")
    done = shell("run", "--", "sh", "-c", "echo new > new; exit 7", code=7)
    assert "the receipt could not be written" in done.stderr
    assert "1 file changed, kept in refs/allswell/" in done.stderr


def test_an_agent_needs_nothing_but_its_socket(shell: Shell) -> None:
    script = """
        unset ALLSWELL_TASK ALLSWELL_TOKEN ALLSWELL_AGENT
        allswell checkin 'half of it' --progress 0.5 --json && allswell checkin
        allswell ask 'which one?' --hold
        allswell checkin --task t_other; echo "other: $?"
        allswell done '{"pages": 12}'
        allswell checkin; echo "after: $?"
    """
    done = shell("run", "--name", "agent", "--", "sh", "-c", script)
    lines = done.stdout.splitlines()
    assert msgspec.json.decode(lines[0])["asked"] is False
    assert lines[1].startswith("Check-in recorded. ")
    assert lines[2].startswith("q_")
    assert lines[3:] == ["other: 2", "recorded: the task is done; end now", "after: 4"]
    shown = shell.json("show", "agent")
    assert shown["result"] == {"pages": 12}
    assert "task_checked_in" in shell.kinds()


def test_the_environment_is_inherited_unless_it_is_to_be_clean(shell: Shell) -> None:
    env = {**shell.env, "OPENAI_API_KEY": "agents need this", "OTHER_KEY": "x", "ALLSWELL_STORE": "sqlite:///other.db"}
    script = "echo ${OPENAI_API_KEY:-none}, ${OTHER_KEY:-none}, ${ALLSWELL_STORE:-none}, ${MORE:-none}"
    for given, said in (
        ((), "x, none, none"),
        (("-e", "MORE=y"), "x, none, y"),
        (("--clean-env",), "none, none, none"),
        (("--clean-env", "-e", "OTHER_*", "-e", "MORE=y"), "x, none, y"),
    ):
        words = [*ALLSWELL, "run", *given, "--", "sh", "-c", script]
        done = subprocess.run(words, cwd=shell.folder, env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"agents need this, {said}\n"


def test_a_worktree_of_its_own(shell: Shell) -> None:
    ran = shell.run_json("--worktree", "--", "sh", "-c", "pwd; echo changed >> kept")
    tree = Path(ran["worktree"])
    assert (tree / "kept").read_text() == "as it was\nchanged\n"
    assert (shell.folder / "kept").read_text() == "as it was\n"
    assert f"allswell/sh-c-pwd-echo-changed-kept-{ran['task_id'][-4:]}" in git("branch", cwd=shell.folder)
    assert git("status", "--porcelain", cwd=shell.folder) == ""
    unused = shell.run_json("--worktree", "--", "true")
    assert unused["worktree"] is None
    assert unused["task_id"] not in git("branch", cwd=shell.folder)


def test_a_worktree_is_worked_in_whatever_repository_the_environment_names(shell: Shell) -> None:
    """A hook or an alias of git's names the user's: the agent's commit was made there, and their index written over."""
    (shell.folder / "kept").write_text("staged\n")
    git("add", "kept", cwd=shell.folder)
    staged = (shell.folder / ".git" / "index").read_bytes()
    own = shell.folder / ".git"
    shell.variables |= {"GIT_DIR": str(own), "GIT_INDEX_FILE": str(own / "index"), "GIT_WORK_TREE": str(shell.folder)}
    script = "echo new >new; git add new; git -c user.name=x -c user.email=x@example.com commit -qm by-the-agent"
    ran = shell.run_json("--worktree", "--", "sh", "-c", script)
    assert (own / "index").read_bytes() == staged
    assert "by-the-agent" not in git("log", "--format=%s", cwd=shell.folder)
    assert git("log", "-1", "--format=%s", cwd=Path(ran["worktree"])) == "by-the-agent\n"


def test_a_worktree_where_there_is_no_repository_is_refused_and_leaves_no_task(shell: Shell) -> None:
    (shell.folder / ".git").rename(shell.folder.parent / "git")
    assert "is in no git repository" in shell("run", "--worktree", "--", "true", code=2).stderr
    assert shell.json("tasks", "--all")["tasks"] == []
    assert list((shell.folder / ".allswell" / "attempts").glob("*")) == []


def test_a_command_in_the_payload_of_another_task_is_not_run_by_resuming_it(shell: Shell) -> None:
    """A payload is the words of whoever handed the task over, or asked for it: an agent may."""
    shell("run", "--name", "pattern", "--", "touch", "made")
    payload = msgspec.json.encode(shell.json("show", "pattern")["payload"]).decode()
    (shell.folder / "made").unlink()
    shell("submit", "night", "--role", "build", "--payload", payload)
    refused = shell("run", "--resume", "night", code=2)
    assert "was not made by `allswell run`" in refused.stderr
    ask = ["sh", "-c", f"allswell request run night '{payload}' --timeout 1s; echo $? > asked"]
    shell("run", "--name", "asks", "--", *ask)
    assert (shell.folder / "asked").read_text() != "0\n"
    assert [task["name"] for task in shell.json("tasks", "--all")["tasks"] if task["role"] == "run"] == [
        "pattern",
        "asks",
    ]
    assert not (shell.folder / "made").exists()


def test_a_resumed_task_takes_what_is_asked_for_now(shell: Shell) -> None:
    ran = shell.run_json("--timeout", "700ms", "--grace", "100ms", "--", "sh", "-c", "exec sleep 600", code=124)
    refused = shell("run", "--resume", ran["task_id"], "--timeout", "1s", code=2)
    assert "keeps its limit of 700ms while it is open" in refused.stderr
    again = shell.run_json("--resume", ran["task_id"], "--retries", "1", code=124)
    assert again["attempts"] == 2
    shell("answer", ran["task_id"], "skip", "--yes")
    (shell.folder / "sleep").write_text("#!/bin/sh\n")
    anew = shell.run_json("--resume", ran["task_id"], "--timeout", "800ms", code=124)
    assert anew["task_id"] != ran["task_id"]
    assert "its limit of 800ms" in anew["reason"]


@pytest.mark.parametrize("columns", [80, 200])
def test_at_a_terminal_a_line_says_how_it_stands(shell: Shell, columns: int) -> None:
    script = "echo first; sleep 2.5; echo last"
    said = at_terminal("run", "--", "sh", "-c", script, cwd=shell.folder, columns=columns)
    assert said.code == 0
    assert said.out.startswith("first\n")
    # On a busy machine there may be such a line after the last one, too, until the end has been noticed.
    assert re.sub("\x1b\\[2m⏱.*?\x1b\\[0m", "", said.out).replace("\r\x1b[K", "").endswith("last\n")
    lines = [part for part in said.out.split("\r\x1b[K\x1b[2m") if "no limit" in part]
    assert lines
    shown = lines[0].partition("\x1b[0m")[0]
    assert "ago: “first”" in shown
    assert len(shown) < columns


def test_piped_output_has_nothing_of_ours(shell: Shell) -> None:
    done = shell("run", "--", "sh", "-c", "sleep 1.5; echo out")
    assert (done.stdout, done.stderr) == ("out\n", "")


def test_a_reader_that_goes_away_ends_the_command_as_a_pipe_does(shell: Shell) -> None:
    script = f"{sys.executable} -m allswell run --env TAG -- yes | head -n 1"
    done = shell.sh(script)
    assert done.stdout == "y\n"
    assert "Traceback" not in done.stderr


def test_a_reader_that_takes_nothing_cannot_keep_us_from_stopping(shell: Shell) -> None:
    writer = "import os; os.write(1, b'x' * 300_000); open('printed', 'w').close()"
    running = shell.start("--", sys.executable, "-c", writer)
    until((shell.folder / "printed").exists)
    time.sleep(0.2)  # it has ended, and its output stands in our pipe
    assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0, "the command had ended well"
    assert running.stdout is not None
    running.communicate()


@pytest.mark.realtime
def test_kill_9_at_any_moment_ends_the_tree_and_the_next_start_settles_it(shell: Shell) -> None:
    """The moments are spread from before the store is opened to well into the command."""
    script = "echo x > new; trap '' TERM; sleep 600 & while :; do sleep 600; done"
    for number in range(int(os.environ.get("ALLSWELL_RUN_KILLS", "6"))):
        running = shell.start("--grace", "300ms", "--", "sh", "-c", script)
        if number % 2:
            until((shell.folder / "new").exists)
        else:
            time.sleep(0.05 * (number % 16 + 1))
        running.kill()
        running.communicate(timeout=30)
        took = until(lambda: shell.living() == [])
        assert took < 0.3 + 1.0 + 1.0, "the grace, a second, and what a busy machine may take"
        (shell.folder / "new").unlink(missing_ok=True)
    shell("run", "--", "true")
    kept = shell.json("receipts")["receipts"]
    tasks = {task["task_id"]: task["state"] for task in shell.json("tasks", "--all")["tasks"]}
    begun = [one for one in kept if one["status"] == "orphaned"]
    assert len(begun) >= 3
    assert not list((shell.folder / ".allswell" / "attempts").iterdir())
    assert {tasks[one["task_id"]] for one in begun} == {"ready"}
    held = [state for state in tasks.values() if state == "held"]
    assert held == []


@pytest.mark.realtime
def test_a_start_that_is_killed_while_it_settles_leaves_the_rest_to_the_next(shell: Shell) -> None:
    running = shell.start("--grace", "300ms", "--", "sh", "-c", STUBBORN)
    until((shell.folder / "new").exists)
    running.kill()
    running.communicate(timeout=30)
    settling = (
        "import os, signal; from allswell.runtime.attempt import StateDir, settle\n"
        "assert settle(StateDir('.allswell')); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", settling], cwd=shell.folder, env=shell.env, check=False)
    assert killed.returncode == -signal.SIGKILL
    shell("run", "--", "true")
    (receipt,) = shell.json("receipts")["receipts"]
    assert shell.json("show", receipt["task_id"])["task"]["state"] == "ready"
    assert not list((shell.folder / ".allswell" / "attempts").iterdir())


def test_a_lot_of_output_passes_and_costs_no_memory(shell: Shell) -> None:
    megabytes = int(os.environ.get("ALLSWELL_OUTPUT_MB", "60"))
    pieces = megabytes * 1_000_000 // 64_000
    writer = f"import os\npiece = (b'x' * 79 + b'\\n') * 800\nfor _ in range({pieces}): os.write(1, piece)"
    words = [*ALLSWELL, "run", "--", sys.executable, "-c", writer]
    with subprocess.Popen(words, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        total, early, late = 0, 0, 0
        while piece := os.read(running.stdout.fileno(), 1 << 20):
            total += len(piece)
            late = peak_kb(running.pid)
            early = early or (late if total > 5_000_000 else 0)
    assert running.returncode == 0
    assert total == pieces * 64_000
    assert late - early < 8_000, "kilobytes that came with the bytes"


def test_diff_shows_what_an_attempt_changed_whatever_its_end(shell: Shell) -> None:
    (shell.folder / "kept").write_text("as it was\nmine, not committed\n")
    (shell.folder / "note").write_text("of mine\n")
    (shell.folder / "rid").write_text("untracked\n")
    task = ""
    for end, code in (("exit 0", 0), ("exit 3", 3), ("exec sleep 600", 124)):
        script = f"echo {code} >>kept; echo new >new{code}; rm -f rid; {end}"
        flags = ("--timeout", "1500ms", "--grace", "100ms") if code == 124 else ()
        task = shell.run_json(*flags, "--", "sh", "-c", script, code=code)["task_id"]
        (shell.folder / "kept").write_text((shell.folder / "kept").read_text() + "by somebody later\n")
        told = shell.json("diff", task)
        expected = [("M", "kept"), ("A", f"new{code}"), *([("D", "rid")] if code == 0 else [])]
        assert [(one["how"], one["path"]) for one in told["changed"]] == expected
        assert (told["attempt"], told["since"], told["until"]) == (1, "its beginning", "its end")
        assert f"+{code}\n" in told["diff"]
        assert not {"+mine, not committed", "+by somebody later"} & set(told["diff"].splitlines())
        applied = shell.sh(f"allswell diff {task} | git apply --numstat --unsafe-paths")
        assert len(applied.stdout.splitlines()) == len(expected), applied
    assert "attempt 7 at" in shell("diff", task, "--attempt", "7", code=2).stderr
    assert "there is no task" in shell("diff", "nothing", code=2).stderr
