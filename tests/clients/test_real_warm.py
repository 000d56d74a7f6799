"""The real Claude Code and Codex go on with their own sessions: `make clients` runs this.

What the provider is sent shows whether an attempt is warm: the old conversation, and the handover as its last message.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allswell.testing.provider import CallTool, Hang, Provider, Reply, context_overflow
from tests.clients.test_real import Clients, clients  # noqa: F401 - a fixture
from tests.clients.test_refused import RealFleet, fleet, provider  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow
CLIENTS = pytest.mark.parametrize("client", ["claude", "codex"])
PROMPT, TOOL, WARM = "Say hello.", "read-before-the-kill", "This goes on with your own session"
SESSIONS = {"claude": ".claude/projects", "codex": ".codex/sessions"}


def tool(client: str) -> CallTool:
    if client == "claude":
        return CallTool("Bash", {"command": f"echo {TOOL}"})
    return CallTool("exec_command", {"cmd": f"echo {TOOL}"})


def conversations(made: Provider) -> list[str]:
    """What the models were sent in each request: all that was said in it so far."""
    asked: list[Any] = [one.body.get("messages") or one.body.get("input") for one in made.requests]
    return [msgspec.json.encode(one).decode() for one in asked if one]


def forget(client: str) -> None:
    """The client has lost its sessions: they were cleaned up, or the home is another one."""
    shutil.rmtree(Path(os.environ["HOME"]) / SESSIONS[client])


@CLIENTS
def test_one_that_was_killed_goes_on_where_it_was(clients: Clients, client: str) -> None:  # noqa: F811
    clients.provider.script(tool(client), Hang(), Reply("Hello again."))
    clients.shell.folder.joinpath("notes.txt").write_text("kept")
    said = getattr(clients, client)("--idle", "6s", "--grace", "1s", "--retries", "1")
    assert "attempt 2 goes on with the agent's own session" in said
    *_, warm = conversations(clients.provider)
    assert PROMPT in warm, "the old conversation"
    assert warm.index(TOOL) < warm.index(WARM), "and then the handover"
    assert "it gave no sign of progress for too long" in warm
    assert warm.count(PROMPT) == 1, "the prompt is not said again"
    shown = clients.shell.json("show", "night")
    assert [one["outcome"] for one in shown["attempts"]][-1] == "done"


@CLIENTS
def test_a_client_that_refuses_begins_anew_in_the_same_attempt(clients: Clients, client: str) -> None:  # noqa: F811
    clients.provider.script(tool(client), Hang())
    getattr(clients, client)("--idle", "6s", "--grace", "1s", code=124)
    forget(client)
    before = len(conversations(clients.provider))
    clients.provider.recover()
    env = _env(clients.provider.url, client)
    said = clients.shell("run", "--resume", "night", *env).stderr
    assert "goes on with the agent's own session" in said
    assert "begins a new session: the last one is not gone on with, its client has refused to go on with it" in said
    cold = conversations(clients.provider)[before]
    assert PROMPT in cold
    assert TOOL not in cold
    shown = clients.shell.json("show", "night")
    assert len(shown["attempts"]) == 2, "the refusal is no attempt of its own"
    assert shown["attempts"][-1]["outcome"] == "done"


def _env(url: str, client: str) -> list[str]:
    if client == "codex":
        return ["-e", "OPENAI_API_KEY=k"]
    values = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
    }
    return [word for name, value in values.items() for word in ("-e", f"{name}={value}")]


@CLIENTS
def test_after_a_full_context_it_begins_anew(clients: Clients, client: str) -> None:  # noqa: F811
    full = context_overflow("anthropic" if client == "claude" else "openai")
    clients.provider.script(tool(client), *[full] * 8)
    getattr(clients, client)(code=1)
    before = len(conversations(clients.provider))
    clients.provider.recover()
    (question,) = clients.shell.json("questions")["questions"]
    clients.shell("answer", question["question_id"], "retry")
    said = clients.shell("run", "--resume", "night", *_env(clients.provider.url, client)).stderr
    assert "begins a new session: the last one is not gone on with, its context was full" in said
    assert TOOL not in conversations(clients.provider)[before]


@CLIENTS
def test_under_up_the_next_attempt_of_a_killed_agent_is_warm(
    fleet: RealFleet,  # noqa: F811
    provider: Provider,  # noqa: F811
    client: str,
) -> None:
    provider.script(tool(client), Hang(), Reply("Hello again."))
    fleet.agent("one", client, provider, idle="8s", grace="1s")
    fleet.shell("submit", "a", "--payload", '"Say hello."')
    fleet.start()
    fleet.until(lambda: fleet.tasks()["a"] == "done", 60)
    assert "one goes on with its own session at “a”" in fleet.lines
    *_, warm = conversations(provider)
    assert warm.count(PROMPT) == 1
    assert warm.index(PROMPT) < warm.index(TOOL) < warm.index(WARM)
    (event,) = fleet.events("agent_resumed")
    assert event["data"]["session"]
