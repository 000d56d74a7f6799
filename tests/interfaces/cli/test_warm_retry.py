"""`allswell run`: the next attempt goes on with the agent's own session.

The agents are stand-ins that print what the real ones have printed; tests/clients/test_real_warm.py runs the real ones.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.clients.stand_in import CAPTURED
from tests.interfaces.cli.shell import Shell
from tests.runtime.process.stage import until

CLAUDE, CODEX = "claude", "codex"
SESSIONS = {CLAUDE: "session_id", CODEX: "thread_id"}
REFUSES = {
    CLAUDE: f"cat '{CAPTURED}/claude-no-session.jsonl'; echo 'No conversation found with session ID: x' >&2",
    CODEX: "echo 'Error: thread/resume: thread/resume failed: no rollout found for thread id x (code -32600)' >&2",
}
WARM = "This goes on with your own session"


def client(folder: Path, name: str, *, then: str = "exit 1") -> str:
    """A stand-in that writes down its words, fails in a new session, and ends well in an old one unless that is `lost`.

    `then` is what it does in a new session after it has begun.
    """
    folder.mkdir(exist_ok=True)
    goes_on = {CLAUDE: '[ "$1" = --resume ]', CODEX: '[ "$3" = resume ]'}[name]
    lines = [
        "#!/bin/sh",
        f'for word; do printf "%s\\0" "$word"; done >> {folder}/words; printf "\\0" >> {folder}/words',
        f"if {goes_on} && [ -e {folder}/lost ]; then {REFUSES[name]}; exit 1; fi",
        f"if {goes_on} || [ -e {folder}/works ]; then cat '{CAPTURED}/{name}-success.jsonl'; exit 0; fi",
        f"cat '{CAPTURED}/{name}-killed.jsonl'",
        then,
    ]
    program = folder / name
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    return str(program)


def calls(folder: Path) -> list[list[str]]:
    """The words with which a stand-in was called, each time."""
    return [call.split("\0") for call in (folder / "words").read_text().split("\0\0")[:-1]]


def session(name: str) -> str:
    first = (CAPTURED / f"{name}-killed.jsonl").read_bytes().splitlines()[0]
    return str(msgspec.json.decode(first)[SESSIONS[name]])


def newest(shell: Shell) -> str:
    """The task that was submitted last: an ended one is run again as a new one."""
    return str(max(shell.json("tasks", "--all")["tasks"], key=lambda one: one["created_at"])["task_id"])


ARGUMENTS = {CLAUDE: ("-p", "mend it", "--verbose"), CODEX: ("exec", "--json", "mend it")}


@pytest.mark.parametrize("name", [CLAUDE, CODEX])
def test_a_retry_goes_on_with_the_session_and_is_told_only_what_is_new(shell: Shell, tmp_path: Path, name: str) -> None:
    program = client(tmp_path / "bin", name, then="echo half > half.txt; exit 1")
    done = shell("run", "--name", "night", "--retries", "1", "--", program, *ARGUMENTS[name])
    assert "allswell: attempt 2 goes on with the agent's own session" in done.stderr
    first, second = calls(tmp_path / "bin")
    assert first == [*ARGUMENTS[name]]
    (message,) = [word for word in second if word.startswith(WARM)]
    assert "> A half.txt" in message, "which files are already there"
    assert "mend it" not in second
    place = {CLAUDE: ["--resume", session(name), "-p", message], CODEX: ["exec", "--json", "resume", session(name)]}
    assert second[:4] == place[name]
    assert shell.kinds().count("agent_resumed") == 1, "the journal has it"


@pytest.mark.parametrize("name", [CLAUDE, CODEX])
def test_a_client_that_refuses_is_started_anew_within_the_attempt(shell: Shell, tmp_path: Path, name: str) -> None:
    program = client(folder := tmp_path / "bin", name)
    shell("run", "--name", "night", "--", program, *ARGUMENTS[name], code=1)
    (folder / "lost").touch()
    (folder / "works").touch()
    done = shell("run", "--resume", "night")
    assert (
        "begins a new session: the last one is not gone on with, its client has refused to go on with it" in done.stderr
    )
    _, refused, cold = calls(folder)
    assert session(name) in refused
    assert cold == [*ARGUMENTS[name]]
    shown = shell.json("show", newest(shell))
    assert shown["task"]["state"] == "done"
    assert [one["outcome"] for one in shown["attempts"]] == ["done"], "the refusal has cost nothing"
    assert "agent_restarted" in shell.kinds()


def test_what_a_thread_of_codex_had_taken_before_is_counted_once(shell: Shell, tmp_path: Path) -> None:
    """Its totals go on from process to process; the second attempt is killed in the middle of a turn."""
    (folder := tmp_path / "bin").mkdir()
    begun = f'{{"type":"thread.started","thread_id":"{session(CODEX)}"}}'
    ended = '{"type":"turn.completed","usage":{"input_tokens":%d,"output_tokens":7}}'
    lines = ["#!/bin/sh", f"echo x >> {folder}/calls", f"echo '{begun}'", f"case $(wc -l < {folder}/calls) in"]
    lines += [f"1) echo '{ended % 1000}'; exit 1;;", "2) exit 1;;", f"*) echo '{ended % 2500}';;", "esac"]
    (program := folder / CODEX).write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    shell("run", "--name", "night", "--retries", "2", "--", str(program), *ARGUMENTS[CODEX])
    shown = shell.json("show", "night")
    assert [one["tokens_in"] for one in shown["attempts"]] == [1000, None, 1500]
    assert shown["spent"]["tokens_in"] == 2500


def test_after_two_warm_failures_in_a_row_it_begins_anew(shell: Shell, tmp_path: Path) -> None:
    program = client(folder := tmp_path / "bin", CLAUDE)
    text = (folder / CLAUDE).read_text().replace('[ "$1" = --resume ]', "false")
    (folder / CLAUDE).write_text(text)
    done = shell("run", "--name", "night", "--retries", "3", "--", program, *ARGUMENTS[CLAUDE], code=1)
    warm = [session(CLAUDE) in call for call in calls(folder)]
    assert warm == [False, True, True, False]
    assert "2 attempts in a row that went on with it have failed" in done.stderr


def test_one_whose_supervisor_was_killed_goes_on(shell: Shell, tmp_path: Path) -> None:
    """Nobody has seen its session then: it stands in what it printed."""
    program = client(folder := tmp_path / "bin", CLAUDE, then="echo ready > ready; sleep 600")
    running = shell.start("--name", "night", "--grace", "1s", "--", program, *ARGUMENTS[CLAUDE])
    until((shell.folder / "ready").exists)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    shell("run", "--resume", "night")
    _, second = calls(folder)
    assert second[:2] == ["--resume", session(CLAUDE)]


def test_another_account_or_folder_begins_anew_and_an_agent_may_say_how_it_goes_on(
    shell: Shell, tmp_path: Path
) -> None:
    program = client(folder := tmp_path / "bin", CLAUDE)
    own = f'[agents.a]\ncommand = ["{program}", "{{prompt}}"]\naccount = "ada"\n'
    own += f'resume = ["{program}", "--resume", "{{session}}", "{{prompt}}"]\n'
    (shell.folder / "allswell.toml").write_text(own)
    shell("trust", "--yes")
    shell("run", "--name", "night", "--agent", "a", "--", program, "mend it", code=1)
    (shell.folder / "allswell.toml").write_text(own.replace("ada", "grace"))
    shell("trust", "--yes")
    done = shell("run", "--resume", "night", code=1)
    assert "the last one is not gone on with, it used another account" in done.stderr
    shell("run", "--resume", newest(shell))
    *_, last = calls(folder)
    assert last[:2] == ["--resume", session(CLAUDE)]
    assert last[2].startswith(WARM)


def test_one_that_went_round_in_a_circle_begins_anew(shell: Shell, tmp_path: Path) -> None:
    """The same call with the same answer, again and again: its conversation is what went wrong."""
    rounds = f"for n in 1 2 3 4 5 6 7 8; do tail -n 2 '{CAPTURED}/claude-killed.jsonl'; done; exec sleep 600"
    program = client(tmp_path / "bin", CLAUDE, then=rounds)
    limits = ("--idle", "2s", "--grace", "1s", "--retries", "1", "--timeout", "60s")
    done = shell("run", "--name", "night", *limits, "--", program, *ARGUMENTS[CLAUDE], code=None)
    assert "the last one is not gone on with, it repeated itself" in done.stderr
    assert not any(session(CLAUDE) in call for call in calls(tmp_path / "bin"))
