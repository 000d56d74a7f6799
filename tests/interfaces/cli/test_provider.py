"""`allswell run` in front of an agent whose provider refuses: it is said while it lasts, and at the end.

The agents are stand-ins that print what the real ones have printed; tests/clients/test_refused.py runs the real ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import patience
from tests.clients.stand_in import CAPTURED, install
from tests.interfaces.cli.shell import Shell
from tests.interfaces.cli.sitting import Sitting
from tests.runtime.process.stage import until


def refused_until_told(folder: Path, stream: str, tries: int) -> str:
    """An agent that its provider refuses so often, and answers once there is a file `go`; its program."""
    retries = (CAPTURED / f"{stream}-429-retry.jsonl").read_text().splitlines(keepends=True)
    *before, last = retries[: tries + (1 if stream == "claude" else 3)]
    (folder / "before.jsonl").write_text("".join(before))
    (folder / "last.jsonl").write_text(last)
    # Lines that come at once are not looked at one by one.
    printed = f"cat '{folder}/before.jsonl'; sleep 0.3; cat '{folder}/last.jsonl'"
    wait = f"{printed}; : > begun; while ! test -e go; do sleep 0.05; done"
    return str(install(folder, f"{stream}-success", before=wait))


@pytest.mark.parametrize("client, tries, words", [("claude", 6, "429, try 6 of 10"), ("codex", 1, "429, try 1 of 5")])
def test_while_the_provider_refuses_one_line_and_every_screen_say_so(
    shell: Shell, tmp_path: Path, client: str, tries: int, words: str
) -> None:
    (folder := tmp_path / "bin").mkdir()
    running = shell.start("--name", "night", "--", refused_until_told(folder, client, tries))
    until((shell.folder / "begun").exists)
    until(lambda: any(one["evidence"] == words for one in shell.json("agents")["agents"]))
    (agent,) = shell.json("agents")["agents"]
    assert (agent["health"], agent["name"]) == ("waiting for the provider", "night")
    assert f"waiting for the provider: {words}" in " ".join(shell("agents").stdout.split())
    assert f"is waiting for the provider: {words}." in " ".join(shell("why", "night").stdout.split())
    assert "waiting for the prov" in shell("watch", "--once").stdout
    (shell.folder / "go").touch()
    _, said = running.communicate(timeout=patience.SECONDS)
    assert re.fullmatch(r"allswell: waiting for the provider: 429, try \d of \d+; it tries again by itself\.\n", said)
    assert (running.returncode, shell.json("show", "night")["task"]["state"]) == (0, "done")
    assert "agent_state" in shell.kinds()


def test_a_client_that_tells_of_its_tries_in_plain_text_is_heard_too(shell: Shell, tmp_path: Path) -> None:
    """Gemini's command line prints a whole error behind such a line, and goes on in plain text, too."""
    (folder := tmp_path / "bin").mkdir()
    tries = "Attempt 2 failed with status 429. Retrying with backoff... _ApiError: {\n  status: 429,\n}"
    printed = f"printf '{tries}\n' >&2; : > begun; while ! test -e go; do sleep 0.05; done"
    (program := folder / "gemini").write_text(f"#!/bin/sh\n{printed}\n")
    program.chmod(0o755)
    running = shell.start("--name", "night", "--", str(program), "-p", "mend it")
    until((shell.folder / "begun").exists)
    until(lambda: any(one["evidence"] == "429, try 2" for one in shell.json("agents")["agents"]))
    assert "is waiting for the provider: 429, try 2." in " ".join(shell("why", "night").stdout.split())
    (shell.folder / "go").touch()
    _, said = running.communicate(timeout=patience.SECONDS)
    assert "allswell: waiting for the provider: 429, try 2; it tries again by itself.\n" in said


def test_into_a_command_that_has_the_terminal_nothing_is_said(shell: Shell, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "claude-429-retry", after="sleep 1; exit 1")
    command = ("run", "--name", "night", "--", "sh", "-c", f"{program} || exit 1")
    sitting = Sitting(shell, *command, columns=300)
    try:
        sitting.sees("it changed no file")
        seen = sitting.ends(1)
    finally:
        sitting.close()
    assert "it tries again by itself" not in seen
    assert "exit code 1 while it was waiting for the provider: 429, try 7 of 10" in seen


@pytest.mark.parametrize(
    "stream, words",
    [
        ("claude-429-retry", "429, try 7 of 10"),
        ("codex-429-retry", "429, try 1 of 5"),
        ("claude-login-retry", "401, try "),
    ],
)
def test_an_agent_that_ended_while_it_was_refused_is_said_to_have_waited(
    shell: Shell, tmp_path: Path, stream: str, words: str
) -> None:
    program = install(tmp_path / "bin", stream, after="exit 1")
    said = shell("run", "--name", "night", "--", str(program), code=1).stderr
    assert f": exit code 1 while it was waiting for the provider: {words}" in said.splitlines()[-1]


@pytest.mark.parametrize("stream", ["claude-login", "codex-login", "codex-minutes"])
def test_a_refused_account_is_one_sentence_and_a_question(shell: Shell, tmp_path: Path, stream: str) -> None:
    program = install(tmp_path / "bin", stream, after="exit 1")
    said = shell("run", "--name", "night", "--", str(program), code=1).stderr
    # On a busy machine its tries are seen before its end is.
    cause, *rest = [line for line in said.splitlines() if "; it tries again by itself" not in line]
    assert cause.startswith("allswell: night failed after ")
    assert rest == ["  answer: allswell questions"], "what it said stands in the cause already"
    (question,) = shell.json("questions")["questions"]
    assert question["text"].startswith("Task night cannot go on by itself: ")


def test_the_account_of_the_agent_that_it_is_started_as_is_parked_and_that_is_said(
    shell: Shell, tmp_path: Path
) -> None:
    (folder := tmp_path / "bin").mkdir()
    program = refused_until_told(folder, "claude", 6)
    (shell.folder / "allswell.toml").write_text(
        f'[agents.claude]\ncommand = ["{program}", "{{prompt}}"]\naccount = "acme"\n'
    )
    running = shell.start("--name", "night", "--agent", "claude", "--", program)
    until((shell.folder / "begun").exists)
    until(lambda: "service_parked" in shell.kinds())
    (shell.folder / "go").touch()
    running.communicate(timeout=patience.SECONDS)
    said = shell("run", "--agent", "claude", "--", program).stderr
    assert re.search(r"account acme asked to wait\. It is paused for another .+; this command is tried", said)
