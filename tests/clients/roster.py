"""The real clients of the table in docs/agents.md: how each is set up without an account, against the fake provider.

`make clients` puts them into a folder, with the Node that they run on; $ALLSWELL_CLIENTS names it. What a scene wants
of a client is told here in its own words: its command, its settings, a call of its shell.
"""

# ruff: noqa: ANN401 - what is shown is any JSON

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allswell.testing.provider import AnyAct, CallTool, Provider, Reply, Request
from tests.clients import tap, wire
from tests.clients.test_real import CLIENTS
from tests.clients.test_refused import RealFleet, _toml
from tests.interfaces.cli.shell import Shell
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until

MODEL = "claude-sonnet-4-5"
NAMED = [f"ALLSWELL_{name}" for name in ("SOCKET", "SECRET", "TASK", "TOKEN", "AGENT", "ATTEMPT", "DEADLINE")]
"""What Codex hands on to a server, since it hands on nothing by itself (settings/first_file.py)."""
PROMPT = "Say hello."
PATIENCE = 240.0
"""Seconds: some clients take half a minute to begin on a busy machine."""


class Client(msgspec.Struct, frozen=True):
    """A real client, as an agent of a fleet."""

    name: str
    title: str
    package: str
    """Where npm has it."""
    words: Callable[[Provider], list[str]]
    """Its command, behind the name of its program."""
    env: Callable[[Provider], dict[str, str]]
    shell: tuple[str, str]
    """Its tool for commands, and the argument that has the command."""
    acp: bool = False
    program: str = ""
    """The name of its program, where that is another one."""
    files: Callable[[Provider], dict[str, str]] = lambda _: {}
    """What stands in its user's home."""
    idle: str = "12s"
    """Without progress for so long it is ended, in scenes in which it hangs: longer than it needs to begin."""

    @property
    def path(self) -> str:
        return str(CLIENTS / (self.program or self.name))

    @property
    def version(self) -> str:
        """Which version is installed."""
        about = CLIENTS.parent / self.package / "package.json"
        return str(json.loads(about.read_text())["version"]) if about.exists() else ""

    more: dict[str, Any] = {}
    """What else a call of its shell has."""
    waits: dict[str, Any] = {}
    """What else one has that is to wait for its command."""

    def types(self, command: str) -> CallTool:
        """A call of its shell."""
        tool, field = self.shell
        more = {"description": "work"} if tool in ("Bash", "bash") else {}
        return CallTool(tool, {field: command, **more, **self.more})

    def hangs(self, before: str = "") -> CallTool:
        """A call of its shell that never comes back."""
        call = self.types(f"{before}tail -f /dev/null")
        return CallTool(call.name, {**call.arguments, **self.waits})

    def asks(self, text: str) -> CallTool:
        """A call that asks a human: of our tools, where its shell forgets what our socket needs."""
        if self.files is _codex_files:
            return CallTool("ask", {"text": text}, namespace="mcp__allswell")
        return self.types(f'allswell ask "{text}"')


def _claude_env(provider: Provider) -> dict[str, str]:
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ANTHROPIC_MODEL": MODEL}
    return {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "k", **quiet}


def _claude_words(_: Provider) -> list[str]:
    protocol = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    return ["-p", "{prompt}", *protocol, "--permission-mode", "acceptEdits", "--allowedTools", "Bash"]


def _codex_files(provider: Provider) -> dict[str, str]:
    settings = [
        'model_provider = "fake"',
        'model = "gpt-5"',
        "check_for_update_on_startup = false",
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "[analytics]",
        "enabled = false",
        "[model_providers.fake]",
        'name = "fake"',
        f'base_url = "{provider.openai_url}"',
        'wire_api = "responses"',
        'env_key = "OPENAI_API_KEY"',
        "[mcp_servers.allswell]",
        f"command = {json.dumps(sys.executable)}",
        'args = ["-m", "allswell", "mcp"]',
        f"env_vars = {json.dumps(NAMED)}",
        'default_tools_approval_mode = "approve"',
        "required = true",
    ]
    return {".codex/config.toml": "\n".join(settings) + "\n"}


def _opencode_env(provider: Provider) -> dict[str, str]:
    chosen = f"anthropic/{MODEL}"
    options = {"baseURL": f"{provider.url}/v1", "apiKey": "k"}
    settings = {
        "model": chosen,
        "small_model": chosen,
        "autoupdate": False,
        "share": "disabled",
        "provider": {"anthropic": {"options": options}},
        "permission": {"*": "allow"},
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def _gemini_files(_: Provider) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    return {".gemini/settings.json": json.dumps(settings)}


def _gemini_env(provider: Provider) -> dict[str, str]:
    return {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": provider.url, "GEMINI_TELEMETRY_ENABLED": "false"}


def _gemini_words(_: Provider) -> list[str]:
    how = ["--skip-trust", "--output-format", "stream-json", "--approval-mode", "yolo", "-m", "gemini-2.5-flash"]
    return [*how, "-p", "{prompt}"]


LONG = {"timeout": 600_000}
"""Else the tools of some end a command after two minutes, which on a busy machine comes before our limit."""
ROSTER = (
    Client(
        "claude",
        "Claude Code",
        "@anthropic-ai/claude-code",
        _claude_words,
        _claude_env,
        ("Bash", "command"),
        waits=LONG,
    ),
    Client(
        "codex",
        "Codex",
        "@openai/codex",
        lambda _: ["exec", "--json", "{prompt}"],
        lambda _: {"OPENAI_API_KEY": "k"},
        ("exec_command", "cmd"),
        files=_codex_files,
        waits={"yield_time_ms": 30_000},
    ),
    Client(
        "claude-agent-acp",
        "claude-agent-acp",
        "@agentclientprotocol/claude-agent-acp",
        lambda _: [],
        _claude_env,
        ("Bash", "command"),
        acp=True,
        waits=LONG,
        files=lambda _: {".claude/settings.json": json.dumps({"permissions": {"allow": ["Bash"]}})},
    ),
    Client(
        "codex-acp",
        "codex-acp",
        "@agentclientprotocol/codex-acp",
        lambda _: [],
        lambda _: {"OPENAI_API_KEY": "k"},
        ("exec_command", "cmd"),
        acp=True,
        files=_codex_files,
        waits={"yield_time_ms": 30_000},
    ),
    Client(
        "opencode",
        "opencode",
        "opencode-ai",
        lambda _: ["run", "--format", "json", "{prompt}"],
        _opencode_env,
        ("bash", "command"),
        waits=LONG,
        idle="25s",
    ),
    Client(
        "gemini",
        "Gemini",
        "@google/gemini-cli",
        _gemini_words,
        _gemini_env,
        ("run_shell_command", "command"),
        files=_gemini_files,
    ),
)


def _strict_opencode(provider: Provider) -> dict[str, str]:
    env = _opencode_env(provider)
    settings = {**json.loads(env["OPENCODE_CONFIG_CONTENT"]), "permission": {"*": "allow", "bash": "ask"}}
    return {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


def _strict_codex(provider: Provider) -> dict[str, str]:
    return {name: text.replace('"danger-full-access"', '"read-only"') for name, text in _codex_files(provider).items()}


STRICT: dict[str, dict[str, Any]] = {
    "claude": {"words": lambda provider: _claude_words(provider)[:-2]},
    "codex": {"files": _strict_codex},
    "claude-agent-acp": {"files": lambda _: {}},
    "codex-acp": {
        "env": lambda _: {"OPENAI_API_KEY": "k", "INITIAL_AGENT_MODE": "read-only"},
        "more": {"sandbox_permissions": "require_escalated", "justification": "May I?"},
    },
    "opencode": {"env": _strict_opencode},
    "gemini": {"words": lambda provider: [word.replace("yolo", "default") for word in _gemini_words(provider)]},
}
"""How each is set up where its own settings do not let it run commands."""
BY_NAME = {client.name: client for client in ROSTER}


class SceneProvider(Provider):
    """A provider whose acts are for the work alone: what a client asks beside it (a title, say) is answered well."""

    def own_act(self, request: Request) -> AnyAct | None:
        own = super().own_act(request)
        if own is not None or request.body.get("tools"):
            return own
        return Reply("A title")


class ClientFleet(RealFleet):
    """One real client as an agent of a fleet, a task for it, and what came of it."""

    def __init__(self, shell: Shell, client: Client, home: Path) -> None:
        super().__init__(shell)
        self.client = client
        self.home = home
        self._settings = []
        self.shell.variables["PATH"] = f"{CLIENTS}:{self.shell.env['PATH']}"

    def works(
        self, provider: Provider, *options: str, top: str = "", client: Client | None = None, **fields: Any
    ) -> None:
        """The client works on the task `night`; `top` stands above its settings, `options` are those of `submit`."""
        client = client or self.client
        for name, text in client.files(provider).items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(text)
        command = [client.path, *client.words(provider)]
        self.wire = self.shell.folder.parent / "wire.jsonl"
        if client.acp:
            command = [sys.executable, str(tap.__file__), str(self.wire), "--", *command]
        lines = [top, "[agents.one]", f"{'acp' if client.acp else 'command'} = {json.dumps(command)}"]
        lines += [f"env = {_toml(client.env(provider))}"]
        lines += [f"{field} = {json.dumps(value)}" for field, value in {"grace": "3s", **fields}.items()]
        self._settings.append("\n".join(lines) + "\n")
        self.provider = provider
        (self.shell.folder / "allswell.toml").write_text("\n".join(self._settings))
        self.shell("trust", "--yes")  # what holds for a task is what the settings say when it is submitted
        self.shell("submit", "night", "--payload", json.dumps(PROMPT), *options)
        self.start()

    @contextlib.contextmanager
    def stands_still(self) -> Iterator[None]:
        """Its supervisor is stopped for as long as this lasts, and so renews no lease."""
        assert self._up is not None
        self._up.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._up.send_signal(signal.SIGCONT)

    # --- what came of it ----------------------------------------------------------------------------------------------

    def until(self, look: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Look every second or two: each look is a process, and clients need the machine for themselves."""
        end = time.monotonic() + seconds
        while not look():
            assert time.monotonic() < end, self.lines
            assert self._up is not None
            assert self._up.poll() is None, self.lines
            time.sleep(1.5)

    def shown(self) -> Any:
        return self.shell.json("show", "night")

    def state(self) -> str:
        return str(self.shown()["task"]["state"])

    def question(self, seconds: float = PATIENCE) -> Any:
        """The question that is asked about the task, once it is."""
        self.until(lambda: self.questions() or self.state() in ENDED, seconds)
        assert self.questions(), self.told()
        return self.questions()[0]

    def questions(self) -> list[Any]:
        return list(self.shell.json("questions")["questions"])

    def ends(self, seconds: float = PATIENCE) -> Any:
        """What is shown of the task once it has ended."""
        self.until(lambda: self.state() in ENDED or self.questions(), seconds)
        return self.shown()

    def receipts(self) -> list[Any]:
        """What is known of the attempts that are over, the oldest first."""
        known = self.shell.json("receipts")["receipts"]
        return sorted((one for one in known if not one["partial"]), key=lambda one: one["attempt"])

    def receipt(self, seconds: float = PATIENCE) -> Any:
        """The receipt of the first attempt, once that is over."""
        self.until(self.receipts, seconds)
        return self.receipts()[0]

    def heard(self) -> list[str]:
        """What the models were sent in each request of the work: all that was said so far."""
        told = [request.body for request in self.provider.requests if request.body.get("tools")]
        asked = [body.get("messages") or body.get("input") or body.get("contents") for body in told]
        return [msgspec.json.encode(one).decode() for one in asked if one]

    def told(self) -> str:
        """All that there is to read, for a scene that went otherwise."""
        logs = self.shell("logs", "night", code=None).stdout[-3_000:]
        known = [self.shown(), self.questions(), self.shell.json("receipts")]
        heard = self.heard()[-1:]
        return f"{self.lines}\n{json.dumps(known, indent=1)}\n{logs}\n{heard}"

    def cell(self, scene: str, text: str) -> None:
        """What Allswell did, for the table."""
        written = {"client": self.client.name, "version": self.client.version, "scene": scene, "text": text}
        CELLS.mkdir(exist_ok=True)
        if self.client.acp and scene in RECORDED and os.environ.get("ALLSWELL_RECORD"):
            wire.keep(
                self.wire, self.shell.folder, f"acp-{self.client.name.partition('-')[0]}-{scene.replace(' ', '-')}"
            )
        (CELLS / f"{self.client.name}.{scene}.json").write_text(json.dumps(written))


ENDED = ("done", "failed", "cancelled", "skipped")
RECORDED = ("finishes", "denied", "asks", "hangs in model", "repeats itself", "warm", "401", "429", "usage limit")
"""Scenes of which `ALLSWELL_RECORD=1` keeps what passes between our client and an agent that speaks ACP."""
CELLS = CLIENTS.parent.parent / "cells"
"""Where the scenes leave what the table is made of."""


def took(attempt: Any) -> str:
    """How long an attempt has lasted, in words."""
    length = datetime.fromisoformat(attempt["ended_at"]) - datetime.fromisoformat(attempt["granted_at"])
    return f"{length.total_seconds():.0f} s"


@pytest.fixture(params=[client.name for client in ROSTER])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientFleet]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "lexer.py").write_text("x = 1\n")
    git("init", "-q", "-b", "main", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    made = ClientFleet(Shell(folder, os.urandom(8).hex()), BY_NAME[request.param], home)
    try:
        yield made
    finally:
        CELLS.mkdir(exist_ok=True)
        (CELLS / f"{request.node.name}.log").write_text(made.told())
        made.stop()
    until(lambda: made.shell.living() == [])


@pytest.fixture
def provider() -> Iterator[SceneProvider]:
    with SceneProvider() as made:
        yield made
