"""The real Claude Code and Codex with our tools: each claims, checks in, asks, is answered and finishes over MCP.

`make clients` runs this. What the model says is the fake provider's script; all else is real: the clients from npm, a
server, its keys, and `allswell mcp`, as docs/mcp.md tells to set them up.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from allswell.interfaces.plugin.install import files_for
from allswell.testing.provider import AnyAct, CallTool, Provider, Reply
from tests.clients.test_real import CLAUDE, CLIENTS, QUIET
from tests.interfaces.cli.shell import Shell
from tests.interfaces.http.served import Served, serving
from tests.patience import SECONDS
from tests.runtime.process.stage import until

pytestmark = pytest.mark.slow
NAMED = ["ALLSWELL_STORE", "ALLSWELL_KEY", "ALLSWELL_SOCKET", "ALLSWELL_SECRET", "ALLSWELL_TASK", "ALLSWELL_TOKEN"]
"""What Codex hands on to a server on standard input and output, since it hands on nothing by itself."""


PLUGGED = "plugin_allswell_allswell"


class McpClient:
    """A real client, told by the provider which tools to call."""

    def __init__(self, name: str, folder: Path, provider: Provider) -> None:
        self.name = name
        self.folder = folder
        self.provider = provider

    def calls(self, tool: str, **arguments: object) -> CallTool:
        if self.name == "claude":
            return CallTool(f"mcp__allswell__{tool}", arguments)
        return CallTool(tool, arguments, namespace="mcp__allswell")

    def begins(self) -> list[AnyAct]:
        """Claude Code begins while its servers are still connecting, and has a tool to wait for them."""
        return [CallTool("WaitForMcpServers")] if self.name == "claude" else []

    @property
    def env(self) -> dict[str, str]:
        return {**QUIET, "ANTHROPIC_BASE_URL": self.provider.url, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}

    def command(self, server: Mapping[str, object]) -> list[str]:
        """What starts it with this server, as its own settings say it."""
        if self.name == "claude":
            (self.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"allswell": server}}))
            more = ["--mcp-config", "mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__allswell"]
            return [str(CLIENTS / "claude"), *CLAUDE[1:], *more]
        provider = f'{{name="fake",base_url="{self.provider.openai_url}",wire_api="responses",env_key="OPENAI_API_KEY"'
        limits = ",request_max_retries=0,stream_max_retries=0}"
        settings = {"model_provider": '"fake"', "model_providers.fake": provider + limits, "model": '"gpt-5"'}
        settings["mcp_servers.allswell"] = _toml({**server, "default_tools_approval_mode": "approve", "required": True})
        told = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(CLIENTS / "codex"), "exec", "--json", "--skip-git-repo-check", *told, "Work."]

    def with_plugin(self) -> list[str]:
        """Claude Code with the plugin, which brings the server and the hooks along."""
        tools = ["--allowedTools", f"mcp__{PLUGGED}", "Bash"]
        return [str(CLIENTS / "claude"), *CLAUDE[1:], "--plugin-dir", str(self.plugin), *tools]

    @property
    def plugin(self) -> Path:
        """The plugin with our tools, as `allswell init claude --tools` installs it, in a folder of this session's."""
        folder = self.folder / "plugin"
        for name, text in files_for("claude", tools=True).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    def over_http(self, served: Served) -> list[str]:
        url = f"{served.url}/mcp"
        if self.name == "claude":
            return self.command({"type": "http", "url": url, "headers": {"Authorization": "Bearer ${ALLSWELL_KEY}"}})
        return self.command({"url": url, "bearer_token_env_var": "ALLSWELL_KEY"})

    def over_stdio(self) -> list[str]:
        if self.name == "claude":
            return self.command({"command": "allswell", "args": ["mcp"]})
        return self.command({"command": "allswell", "args": ["mcp"], "env_vars": NAMED})

    def heard(self) -> str:
        """All that the model was told by tools."""
        return json.dumps([request.body for request in self.provider.requests])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


@pytest.fixture(params=["claude", "codex"])
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[McpClient]:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    with Provider() as provider:
        yield McpClient(request.param, tmp_path, provider)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as served:
        yield served


def ran(client: McpClient, server: Served, command: list[str]) -> subprocess.CompletedProcess[str]:
    """The client, run to its end with an agent's key."""
    shell = Shell(client.folder, os.urandom(8).hex())
    done = subprocess.run(
        command,
        cwd=client.folder,
        env={**shell.env, **client.env, "ALLSWELL_KEY": server.keys["ada"], "ALLSWELL_STORE": server.url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done
    return done


def answered(served: Served, question: str) -> threading.Thread:
    """A human, who answers as soon as there is a question."""

    def answer() -> None:
        until(lambda: served.call("GET", f"/questions/{question}").status == 200)
        served.ok(
            "POST", f"/questions/{question}/answer", {"option": "reply", "text": "the second one"}, key="operator"
        )

    human = threading.Thread(target=answer)
    human.start()
    return human


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_a_real_client_works_through_a_whole_task(client: McpClient, server: Served, way: str) -> None:
    """Over `/mcp` with an agent's key, and by `allswell mcp`, which passes it on."""
    name = f"{client.name} over {way}"
    (id_,) = server.ok("POST", "/tasks", {"tasks": [{"name": name, "role": "test"}]})["task_ids"]
    lease: dict[str, Any] = {"task": id_, "token": 1}
    question = f"q_{id_[2:]}.1"
    client.provider.script(
        *client.begins(),
        client.calls("claim", role="test", task=id_, wait_s=5),
        client.calls("checkin", **lease, note="half of it", progress=0.5),
        client.calls("ask", **lease, text="Which one?", hold=True),
        client.calls("answers", ids=[question], wait_s=45),
        client.calls("checkin", **lease, note="it is the second"),
        client.calls("done", **lease, result={"by": name}),
        client.calls("checkin", **lease, note="too late"),
        Reply("All done."),
    )
    human = answered(server, question)
    done = ran(client, server, client.over_http(server) if way == "http" else client.over_stdio())
    human.join(SECONDS)
    shown = server.ok("GET", f"/tasks/{id_}")
    assert (shown["task"]["state"], shown["result"]) == ("done", {"by": name}), done.stdout
    (asked,) = shown["questions"]
    assert (asked["asked_by"], asked["answer"]) == ("ada", "the second one")
    assert "the second one" in client.heard()
    assert f"Stop working on {id_} now" in client.heard()


def test_under_a_supervisor_a_real_client_speaks_for_its_own_attempt(client: McpClient) -> None:
    """`allswell run -- claude …` with `allswell mcp` among its servers: no key, no task to be named."""
    client.provider.script(
        *client.begins(),
        client.calls("checkin", note="half of it", progress=0.5),
        client.calls("checkin", task="t_other", token=1, note="for another"),
        client.calls("done", result="by itself"),
        Reply("All done."),
    )
    shell = Shell(client.folder, os.urandom(8).hex())
    handed = [word for name, value in client.env.items() for word in ("-e", f"{name}={value}")]
    shell("run", "--name", "night", *handed, "--", *client.over_stdio())
    shown = shell.json("show", "night")
    assert (shown["task"]["state"], shown["result"]) == ("done", "by itself")
    assert "and no other" in client.heard()
    until(lambda: shell.living() == [])


@pytest.mark.parametrize("client", ["claude"], indirect=True)
def test_with_the_plugin_a_session_goes_on_until_it_has_let_go(client: McpClient, server: Served) -> None:
    """Every tool that it uses is a check-in, and one that would stop is told that it still holds a task."""
    validated = [str(CLIENTS / "claude"), "plugin", "validate", "--strict", str(client.plugin)]
    assert subprocess.run(validated, capture_output=True, timeout=SECONDS, check=False).returncode == 0
    (id_,) = server.ok("POST", "/tasks", {"tasks": [{"name": "plugged", "role": "test"}]})["task_ids"]
    client.provider.script(
        *client.begins(),
        CallTool(f"mcp__{PLUGGED}__claim", {"role": "test", "task": id_}),
        CallTool("Bash", {"command": "echo working", "description": "work"}),
        Reply("I stop here."),
        CallTool(f"mcp__{PLUGGED}__done", {"task": id_, "token": 1, "result": "plugged"}),
        Reply("All done."),
    )
    done = ran(client, server, client.with_plugin())
    shown = server.ok("GET", f"/tasks/{id_}")
    assert (shown["task"]["state"], shown["result"]) == ("done", "plugged"), done.stdout
    assert f"You still hold {id_}" in client.heard()


@pytest.mark.parametrize("client", ["claude"], indirect=True)
def test_with_the_plugin_a_session_that_lost_its_lease_is_stopped(client: McpClient, server: Served) -> None:
    (id_,) = server.ok("POST", "/tasks", {"tasks": [{"name": "cancelled", "role": "test"}]})["task_ids"]
    client.provider.script(
        *client.begins(),
        CallTool(f"mcp__{PLUGGED}__claim", {"role": "test", "task": id_}),
        CallTool("Bash", {"command": "until [ -e gone ]; do sleep 0.1; done", "description": "work"}),
        Reply("I have gone on."),
    )

    def call_off() -> None:
        until(lambda: server.ok("GET", f"/tasks/{id_}")["task"]["state"] == "held")
        server.ok("POST", f"/tasks/{id_}/cancel", {})
        (client.folder / "gone").touch()

    human = threading.Thread(target=call_off)
    human.start()
    done = ran(client, server, client.with_plugin())
    human.join(SECONDS)
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["terminal_reason"] == "hook_stopped", last
    assert "I have gone on" not in done.stdout
