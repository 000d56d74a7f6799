"""The real Claude Code and Codex under `allswell run`, against the fake provider: `make clients` runs this.

They are found in $ALLSWELL_CLIENTS. They are slow, so no part of `make test`, whose stand-ins print what these print.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allswell.testing.provider import Hang, Provider, Reply, rate_limited, unauthorized
from tests.interfaces.cli.shell import Shell
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until

pytestmark = pytest.mark.slow
CLIENTS = Path(os.environ.get("ALLSWELL_CLIENTS", "the folder that `make clients` makes")).absolute()
CLAUDE = ("claude", "-p", "Say hello.", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5")
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}


class Clients:
    """Somebody who runs real agents."""

    def __init__(self, shell: Shell, provider: Provider) -> None:
        self.shell = shell
        self.provider = provider

    def claude(self, *options: str, code: int = 0) -> str:
        env = {**QUIET, "ANTHROPIC_BASE_URL": self.provider.url, "ANTHROPIC_API_KEY": "k"}
        return self._run(env, options, CLAUDE, code)

    def codex(self, *options: str, code: int = 0) -> str:
        told = f'{{name="fake",base_url="{self.provider.openai_url}",wire_api="responses",env_key="OPENAI_API_KEY"'
        limits = ",request_max_retries=0,stream_max_retries=0}"
        model = ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={told}{limits}", "-c", 'model="gpt-5"')
        return self._run({"OPENAI_API_KEY": "k"}, options, ("codex", "exec", "--json", *model, "Say hello."), code)

    def _run(self, env: dict[str, str], options: tuple[str, ...], command: tuple[str, ...], code: int) -> str:
        program = str(CLIENTS / command[0])
        handed = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        done = self.shell("run", "--name", "night", *handed, *options, "--", program, *command[1:], code=code)
        return done.stdout + done.stderr

    def logs(self) -> list[dict[str, object]]:
        lines = self.shell("logs", "night", "--json").stdout.splitlines()
        return [msgspec.json.decode(line) for line in lines]


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=folder)
    shell = Shell(folder, os.urandom(8).hex())
    with Provider() as provider:
        yield Clients(shell, provider)
    until(lambda: shell.living() == [])


def test_what_claude_says_it_cost_is_kept_and_shown(clients: Clients) -> None:
    clients.claude()
    shown = clients.shell.json("show", "night")
    assert shown["task"]["state"] == "done"
    assert shown["spent"]["cost_usd"] > 0
    assert shown["spent"]["tokens_in"] == 1
    assert "$0.0000" in clients.shell("show", "night").stdout


def test_what_codex_says_is_tokens_and_its_cost_is_unknown(clients: Clients) -> None:
    clients.codex()
    spent = clients.shell.json("show", "night")["spent"]
    assert (spent["cost_usd"], spent["tokens_in"], spent["tokens_out"]) == (None, 1, 1)
    assert "unknown, 2 tokens" in clients.shell("show", "night").stdout


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_one_that_hangs_is_ended_and_its_work_kept(clients: Clients, client: str) -> None:
    clients.provider.always(Hang())
    said = getattr(clients, client)("--idle", "3s", "--grace", "1s", code=124)
    assert "night" in said
    (receipt,) = clients.shell.json("receipts")["receipts"]
    assert receipt["status"] == "idle"


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_limit_of_the_provider_is_a_failure_of_that_kind(clients: Clients, client: str) -> None:
    clients.provider.always(rate_limited())
    getattr(clients, client)(code=1)
    assert any("429" in str(entry["text"]) and entry["kind"] == "error" for entry in clients.logs())
    (attempt,) = clients.shell.json("show", "night")["attempts"]
    assert attempt["outcome"] in ("failed:rate_limit", "parked"), attempt


def test_that_the_provider_refuses_is_said_in_one_line_and_waited_out_by_the_client(clients: Clients) -> None:
    clients.provider.script(*[rate_limited()] * 3, Reply("Hello."))
    said = clients.claude("-e", "CLAUDE_CODE_MAX_RETRIES=10")
    assert said.count("allswell: waiting for the provider: 429, try ") == 1
    assert clients.shell.json("show", "night")["task"]["state"] == "done"


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_refused_login_is_one_sentence_and_a_question(clients: Clients, client: str) -> None:
    clients.provider.always(unauthorized())
    said = getattr(clients, client)(code=1)
    assert "allswell: night failed after " in said
    assert said.endswith("  answer: allswell questions\n")
    (question,) = clients.shell.json("questions")["questions"]
    assert question["text"].startswith("Task night cannot go on by itself: a refused login is not retried. It said: ")


def test_a_task_that_has_cost_what_it_may_waits_for_a_human(clients: Clients) -> None:
    (clients.shell.folder / "allswell.toml").write_text("max_cost_usd = 0.00001\n")
    clients.shell("trust", "--yes")
    program = f"{CLIENTS / CLAUDE[0]} -p hello --output-format stream-json --verbose --model claude-sonnet-4-5; exit 1"
    env = {**QUIET, "ANTHROPIC_BASE_URL": clients.provider.url, "ANTHROPIC_API_KEY": "k"}
    handed = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
    clients.shell("run", "--name", "night", *handed, "--", "sh", "-c", program, code=1)
    (question,) = clients.shell.json("questions")["questions"]
    assert question["kind"] == "cost_limit"
