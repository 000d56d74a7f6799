"""The plugins that `allswell init claude` and `allswell init codex` install, in the real programs.

`make clients` runs this. That a lost lease stops a session of Claude Code stands in test_real_mcp.py: a supervisor ends
its command at once. The user's folder is one of the test's own; what the model does is the fake provider's script.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path

import pytest

from allswell.testing.provider import CallTool, Fail, Reply
from tests.clients.stand_in import CAPTURED
from tests.clients.test_real import CLIENTS, QUIET, Clients, clients
from tests.interfaces.cli.shell import Shell
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
    """Under `-p` Claude Code (2.1.328) does not wait for this hook: on a busy machine it may not have begun."""
    plugged.clients.provider.always(Fail(400, message="no such thing"))
    for _ in range(8):
        plugged.run(code=1)
        if "agent_turn_failed" in plugged.shell.kinds():
            return
    pytest.fail("it never was")


_ASKED_OF_TERMINALS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;c"}
"""Where the cursor is, and what it can do."""


class Terminal:
    """A human at a session of a coding agent in a terminal."""

    def __init__(self, shell: Shell, command: Sequence[str], **env: str) -> None:
        self.terminal, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=shell.folder,
            env={**shell.env, **QUIET, "TERM": "xterm-256color", **env},
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
                for asked, answer in _ASKED_OF_TERMINALS.items():
                    if asked in piece:
                        os.write(self.terminal, answer)
        except OSError:
            pass  # it has ended

    def shows(self, text: str) -> bool:
        """Whether it has shown a text, however it has moved to each word of it."""
        plain = re.sub(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\s", b"", self.shown)
        return "".join(text.split()).encode() in plain

    def presses(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def types(self, text: str) -> None:
        self.presses(text)
        time.sleep(0.5)  # what comes together with a line's end is pasted text to it
        self.presses("\r")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the program that was started may have started another one
        self.process.wait()
        self.reader.join(SECONDS)
        os.close(self.terminal)


def claude_at_terminal(plugged: Plugged) -> Terminal:
    key, shell = "k" * 24, plugged.shell
    own = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []},
        "projects": {str(shell.folder): {"hasTrustDialogAccepted": True}},
    }
    (Path(os.environ["HOME"]) / ".claude.json").write_text(json.dumps(own))
    url = plugged.clients.provider.url
    return Terminal(shell, [str(CLIENTS / "claude")], ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY=key)


def test_a_session_of_a_human_is_listed_told_once_when_it_waits_and_ends_when_it_ends(plugged: Plugged) -> None:
    shell = plugged.shell
    shell("submit", "anything")
    plugged.clients.provider.script(bash("touch made"), Reply("all done"))
    terminal = claude_at_terminal(plugged)

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


# --- Codex ------------------------------------------------------------------------------------------------------------


KEEPS = """def keep_it(path):
    text = sys.stdin.buffer.read(EVENT_MOST)
    with open(path, "ab") as file:
        file.write(text.rstrip() + b"\\n")
    return text


def main() -> None:"""
"""Has the hook write down what it is sent."""
UNREVIEWED = "--dangerously-bypass-hook-trust"
"""What lets Codex run hooks that its user has not looked at."""


def types(command: str, **more: object) -> CallTool:
    return CallTool("exec_command", {"cmd": command, **more})


def calls(tool: str, **arguments: object) -> CallTool:
    return CallTool(tool, arguments, namespace="mcp__allswell")


CLAIMS = (types("sleep 6"), calls("claim", agent="ada"))
"""Codex begins while its servers are still starting: what they bring is there a little later."""


class CodexUser:
    """A user of Codex who installs the plugin."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.provider = clients.provider
        self.shell = clients.shell
        self.shell.variables |= {"PATH": f"{CLIENTS}:{self.shell.env['PATH']}", "OPENAI_API_KEY": "k"}
        named = f'name = "fake"\nbase_url = "{self.provider.openai_url}"\nwire_api = "responses"'
        (self.home / ".codex").mkdir()
        self.settings = self.home / ".codex" / "config.toml"
        self.settings.write_text(
            'model_provider = "fake"\nmodel = "gpt-5"\nsandbox_mode = "workspace-write"\n'
            f'[projects."{self.shell.folder}"]\ntrust_level = "trusted"\n'
            f'[model_providers.fake]\n{named}\nenv_key = "OPENAI_API_KEY"\n'
        )

    @property
    def home(self) -> Path:
        return Path(os.environ["HOME"])

    def codex(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CLIENTS / "codex"), *words],
            cwd=self.shell.folder,
            env=self.shell.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def works(self, *options: str) -> str:
        """A session that a program has started, outside of any attempt."""
        done = self.codex("exec", "--json", *options, "Work.")
        assert done.returncode == 0, done
        return done.stdout

    def runs(self, *limits: str, code: int = 0) -> None:
        """An attempt that prints nothing."""
        command = f"{CLIENTS / 'codex'} exec {UNREVIEWED} 'Say hello.' > /dev/null 2>&1 < /dev/null"
        env = ["-e", "OPENAI_API_KEY=k"]
        self.shell("run", "--name", "night", *env, *limits, "--", "sh", "-c", command, code=code)

    def heard(self) -> str:
        """All that the model was told."""
        return str([request.body for request in self.provider.requests])


@pytest.fixture
def user(clients: Clients) -> CodexUser:
    return CodexUser(clients)


def test_codex_takes_the_plugin_in_and_lets_go_of_it_again(user: CodexUser) -> None:
    before = user.settings.read_text()
    for _ in range(2):
        user.shell("init", "codex", "--tools")
    assert "allswell@allswell  installed, enabled" in user.codex("plugin", "list").stdout
    assert "ALLSWELL_SECRET" in user.codex("mcp", "get", "allswell").stdout
    user.shell("init", "codex", "--undo")
    assert "allswell" not in user.codex("plugin", "list").stdout
    assert user.settings.read_text().strip() == before.strip()
    assert not (user.home / ".codex" / "allswell").exists()


def test_in_codex_calls_are_evidence_of_progress_where_nothing_is_printed(user: CodexUser) -> None:
    user.shell("init", "codex")
    user.provider.script(*[types(f"sleep 2; echo {number}") for number in range(4)], Reply("Hello."))
    user.runs("--idle", "5s", "--grace", "1s")
    assert user.shell.json("show", "night")["task"]["state"] == "done"


def test_in_codex_the_same_call_again_and_again_is_no_progress(user: CodexUser) -> None:
    user.shell("init", "codex")
    user.provider.script(*[types("sleep 1; echo same")] * 30, Reply("Hello."))
    user.runs("--idle", "5s", "--grace", "1s", code=124)
    (receipt,) = user.shell.json("receipts")["receipts"]
    assert "called Bash sleep 1; echo same" in receipt["reason"]


def test_a_session_of_codex_is_told_what_came_for_it_and_goes_on_until_it_has_let_go(user: CodexUser) -> None:
    shell = user.shell
    shell("init", "codex", "--tools")
    id_ = shell("submit", "write it").stdout.strip()
    user.provider.script(
        *CLAIMS,
        calls("ask", task=id_, token=1, text="Which table?", hold=True),
        types("until [ -e answered ]; do sleep 0.1; done"),
        Reply("I stop here."),
        calls("done", task=id_, token=1, result="written"),
        Reply("All done."),
    )

    def answer() -> None:
        until(lambda: len(shell.json("questions", code=None)["questions"]) == 1)
        (question,) = shell.json("questions")["questions"]
        shell("answer", question["question_id"], "the public one")
        (shell.folder / "answered").touch()

    human = threading.Thread(target=answer)
    human.start()
    said = user.works(UNREVIEWED)
    human.join(SECONDS)
    shown = shell.json("show", id_)
    assert (shown["task"]["state"], shown["result"]) == ("done", "written"), said
    assert "was answered: reply the public one" in user.heard()
    assert f"You still hold {id_}" in user.heard()
    assert [one for one in shell.json("agents")["agents"] if one["kind"] == "human"] == []


def test_a_session_of_codex_that_has_lost_its_lease_is_refused_every_further_call(user: CodexUser) -> None:
    shell = user.shell
    shell("init", "codex", "--tools")
    id_ = shell("submit", "write it").stdout.strip()
    user.provider.script(
        *CLAIMS,
        types("touch up; until [ -e gone ]; do sleep 0.1; done"),
        types("touch more"),
        Reply("I stop."),
        types("touch again"),
        Reply("I have gone on."),
    )

    def call_off() -> None:
        until((shell.folder / "up").exists)
        shell("cancel", id_)
        (shell.folder / "gone").touch()

    human = threading.Thread(target=call_off)
    human.start()
    said = user.works(UNREVIEWED)
    human.join(SECONDS)
    assert f"The lease on {id_} is lost" in user.heard()
    assert "Allswell: this session was told to stop" in user.heard()
    assert not (shell.folder / "more").exists()
    session = json.loads(said.splitlines()[0])["thread_id"]
    user.codex("exec", "resume", session, UNREVIEWED, "Do it all the same.")
    assert (shell.folder / "again").exists(), "its next prompt is another matter"


def test_codex_runs_no_hook_before_a_human_trusts_it_and_a_session_of_theirs_is_listed_and_told_of(
    user: CodexUser,
) -> None:
    """Trusted once at Codex's own question, it holds without a terminal as well; all that it sends is as recorded."""
    shell = user.shell
    assert "Trust all and continue" in shell("init", "codex").stdout
    hook = user.home / ".codex" / "allswell" / "plugin" / "hooks" / "hook.py"
    sent = user.home / "sent"
    hook.write_text(hook.read_text().replace("hear(sys.stdin.buffer.read(EVENT_MOST)", f"hear(keep_it({str(sent)!r})"))
    hook.write_text(hook.read_text().replace("def main() -> None:", KEEPS))
    user.codex("plugin", "add", "allswell@allswell")
    shell("submit", "anything")
    user.provider.script(types("true"), Reply("Hello."))
    user.works()
    assert not sent.exists()

    user.provider.script(
        types("touch made", sandbox_permissions="require_escalated", justification="Need it"),
        Reply("all done"),
        Reply("and again"),  # it asks for more than is shown
    )
    # Its server in the background would have the session go on without its terminal.
    terminal = Terminal(shell, [str(CLIENTS / "codex"), "--no-daemon", "--ask-for-approval", "on-request"])

    def health() -> str:
        return "".join(one["health"] for one in shell.json("agents")["agents"] if one["kind"] == "human")

    try:
        until(lambda: terminal.shows("Trust all and continue"))
        time.sleep(1)  # it takes no keys at once
        terminal.presses("\x1b[B\r")
        until(lambda: "trusted_hash" in user.settings.read_text())
        until(lambda: terminal.shows("gpt-5 default"))
        terminal.types("please do")
        until(lambda: health() == "waiting for a human")
        until(lambda: terminal.shows("Yes, proceed"))
        terminal.presses("y")
        until((shell.folder / "made").exists)
        until(lambda: shell.kinds().count("agent_waits") == 2)
        assert health() == "waiting for a human"
        terminal.types("/quit")
        until(lambda: terminal.process.poll() is not None)
        until(lambda: "human_session_ended" in shell.kinds())
        assert health() == ""
    finally:
        terminal.close()
    kinds = [kind for kind in shell.kinds() if kind.startswith(("human_", "agent_"))]
    assert kinds == ["human_session_began", "agent_waits", "agent_waits", "human_session_ended"]
    events = [json.loads(line) for line in sent.read_text().splitlines()]
    recorded = [json.loads(line) for line in (CAPTURED / "codex-hooks.jsonl").read_text().splitlines()]
    assert [event["hook_event_name"] for event in events] == [event["hook_event_name"] for event in recorded]
    for event, known in zip(events, recorded, strict=True):
        assert {name: type(value) for name, value in event.items()} == {
            name: type(value) for name, value in known.items()
        }

    sent.unlink()
    user.provider.script(types("true"), Reply("Hello."))
    user.works()
    assert '"PostToolUse"' in sent.read_text(), "what is trusted is run by `exec`"
    assert health() == "", "a program has started that one"
