"""The plugin that `allswell init claude` installs, in the real Claude Code: evidence, what came for it, what failed.

`make clients` runs this. That a lost lease stops a session stands in test_real_mcp.py: a supervisor ends its command
at once. The user's folder is one of the test's own; what the model does is the fake provider's script.
"""

from __future__ import annotations

import json
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from allswell.testing.provider import CallTool, Fail, Reply
from tests.clients.test_real import CLIENTS, QUIET, Clients, clients
from tests.patience import SECONDS
from tests.runtime.process.stage import until

pytestmark = pytest.mark.slow
__all__ = ["clients"]
PLAIN = ("claude", "-p", "Say hello.", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,Read")
"""Claude Code with plain text, which it prints at its end alone."""


def bash(command: str) -> CallTool:
    return CallTool("Bash", {"command": command, "description": "Run it"})


class Plugged:
    """Somebody who has installed the plugin."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.shell = clients.shell
        self.shell("init", "claude")

    @property
    def folder(self) -> Path:
        return Path(os.environ["HOME"]) / ".claude" / "skills" / "allswell"

    def run(self, *options: str, code: int = 0) -> str:
        env = {**QUIET, "ANTHROPIC_BASE_URL": self.clients.provider.url, "ANTHROPIC_API_KEY": "k"}
        return self.clients._run(env, options, PLAIN, code)


@pytest.fixture
def plugged(clients: Clients) -> Plugged:
    return Plugged(clients)


def test_claude_code_finds_nothing_wrong_with_it_and_loads_it(plugged: Plugged) -> None:
    program = str(CLIENTS / "claude")
    validated = [program, "plugin", "validate", "--strict", str(plugged.folder)]
    assert subprocess.run(validated, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    listed = subprocess.run([program, "plugin", "list"], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "allswell@skills-dir" in listed.stdout


def test_calls_are_evidence_of_progress_where_nothing_is_printed(plugged: Plugged) -> None:
    """Each step takes less than the idle limit, all of them together more; they change nothing, and compute nothing."""
    plugged.clients.provider.script(*[bash(f"sleep 2; echo {number}") for number in range(4)], Reply("Hello."))
    plugged.run("--idle", "5s", "--grace", "1s")
    assert plugged.shell.json("show", "night")["task"]["state"] == "done"


def test_the_same_call_again_and_again_is_no_progress(plugged: Plugged) -> None:
    plugged.clients.provider.script(*[bash("sleep 1; echo same")] * 30, Reply("Hello."))
    plugged.run("--idle", "5s", "--grace", "1s", code=124)
    (receipt,) = plugged.shell.json("receipts")["receipts"]
    assert "called Bash sleep 1; echo same" in receipt["reason"]


def test_an_answer_to_a_question_reaches_it_at_its_next_tool(plugged: Plugged) -> None:
    ask = "allswell ask --hold 'Which table?'; until [ -e answered ]; do sleep 0.1; done"
    plugged.clients.provider.script(bash(ask), bash("echo next"), Reply("Done."))

    def answer() -> None:
        until(lambda: len(plugged.shell.json("questions", code=None)["questions"]) == 1)
        (question,) = plugged.shell.json("questions")["questions"]
        plugged.shell("answer", question["question_id"], "the public one")
        (plugged.shell.folder / "answered").touch()

    human = threading.Thread(target=answer)
    human.start()
    plugged.run()
    human.join(SECONDS)
    heard = str([request.body for request in plugged.clients.provider.requests])
    assert "was answered: reply: the public one" in heard


def test_a_turn_that_fails_is_in_the_journal(plugged: Plugged) -> None:
    plugged.clients.provider.always(Fail(400, message="no such thing"))
    plugged.run(code=1)
    assert "agent_turn_failed" in plugged.shell.kinds()


class Terminal:
    """A human at a session of Claude Code in a terminal."""

    def __init__(self, plugged: Plugged) -> None:
        key, folder = "k" * 24, plugged.shell.folder
        own = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
            "projects": {str(folder): {"hasTrustDialogAccepted": True}},
        }
        (Path(os.environ["HOME"]) / ".claude.json").write_text(json.dumps(own))
        url = plugged.clients.provider.url
        more = {**QUIET, "TERM": "xterm-256color", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}
        self.terminal, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self.process = subprocess.Popen(
            [str(CLIENTS / "claude")],
            cwd=folder,
            env={**plugged.shell.env, **more},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self.terminal, 65_536):
                self.shown += piece
        except OSError:
            pass  # it has ended

    def types(self, text: str) -> None:
        os.write(self.terminal, text.encode())
        time.sleep(0.5)  # what comes together with a line's end is pasted text to it
        os.write(self.terminal, b"\r")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join(SECONDS)
        os.close(self.terminal)


def test_a_session_of_a_human_is_listed_told_once_when_it_waits_and_ends_when_it_ends(plugged: Plugged) -> None:
    shell = plugged.shell
    shell("submit", "anything")
    plugged.clients.provider.script(bash("touch made"), Reply("all done"))
    terminal = Terminal(plugged)

    def health() -> str:
        return "".join(one["health"] for one in shell.json("agents")["agents"] if one["kind"] == "human")

    try:
        until(lambda: health() == "working")
        until(lambda: "❯".encode() in terminal.shown)
        terminal.types("please do")
        until(lambda: health() == "waiting for a human")
        terminal.types("1")
        until((shell.folder / "made").exists)
        until(lambda: health() == "working")
        terminal.types("/exit")
        until(lambda: terminal.process.poll() is not None)
        until(lambda: health() == "")
        until(lambda: "human_session_ended" in shell.kinds())
    finally:
        terminal.close()
    kinds = [kind for kind in shell.kinds() if kind.startswith(("human_", "agent_"))]
    assert kinds == ["human_session_began", "agent_waits", "human_session_ended"]


def test_without_a_watch_a_session_goes_on_as_ever(plugged: Plugged, tmp_path: Path) -> None:
    plugged.clients.provider.script(bash("echo hi"), Reply("Hello."))
    env = {
        **os.environ,
        **QUIET,
        "ANTHROPIC_BASE_URL": plugged.clients.provider.url,
        "ANTHROPIC_API_KEY": "k",
    }
    done = subprocess.run(
        [str(CLIENTS / PLAIN[0]), *PLAIN[1:]],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert done.stdout.strip() == "Hello."
    assert done.stderr == ""
