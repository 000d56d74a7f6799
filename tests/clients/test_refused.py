"""The real Claude Code and Codex under `allswell up`, with a provider that refuses them: `make clients` runs this.

Each scene asks for the state and the sentences while the client itself tries again, so how long it lasts is the
client's: 401 and 429 are retried within seconds at first. `make test` replays what was printed here (captured/).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from allswell.testing.provider import Provider, Reply, rate_limited, subscription_limit, unauthorized, usage_limit
from tests.clients.test_real import CLAUDE, CLIENTS
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.patience import SECONDS
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until

pytestmark = pytest.mark.slow


class RealFleet:
    """A fleet of real agents, each with an account and a provider of its own."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.said = ""
        self._settings = ['[retry]\nretry_after_default = "5s"\n']
        self._up: subprocess.Popen[str] | None = None

    def agent(self, name: str, client: str, provider: Provider, **fields: str) -> None:
        """One agent; `fields` are those of its settings."""
        if client == "claude":
            command = [str(CLIENTS / "claude"), "-p", "{prompt}", *CLAUDE[3:]]
            env = {"ANTHROPIC_BASE_URL": provider.url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
            # With a subscription its client reports limits in events of their own.
            login = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-k"} if fields.pop("login", "") else {}
            env |= login or {"ANTHROPIC_API_KEY": "k"}
        else:
            told = f'{{name="fake",base_url="{provider.openai_url}",wire_api="responses",env_key="OPENAI_API_KEY"}}'
            chosen = ("-c", 'model_provider="fake"', "-c", f"model_providers.fake={told}", "-c", 'model="gpt-5"')
            command = [str(CLIENTS / "codex"), "exec", "--json", *chosen, "{prompt}"]
            env = {"OPENAI_API_KEY": "k"}
        lines = [f"[agents.{name}]", f"command = {_toml(command)}", f"env = {_toml(env)}"]
        self._settings += ["\n".join([*lines, *(f'{key} = "{value}"' for key, value in fields.items())]) + "\n"]

    def start(self) -> None:
        """`allswell up`, until the test is over."""
        (self.shell.folder / "allswell.toml").write_text("\n".join(self._settings))
        self.shell("trust", "--yes")
        self._log = (self.shell.folder / "up.log").open("w")
        self._up = subprocess.Popen(
            [*ALLSWELL, "up"],
            cwd=self.shell.folder,
            env=self.shell.env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stop(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            self._up.send_signal(signal.SIGINT)
            self._up.wait(SECONDS)
            self._log.close()

    @property
    def lines(self) -> str:
        """What `up` has said so far, in one line."""
        return " ".join((self.shell.folder / "up.log").read_text().split())

    def agents(self) -> dict[str, Mapping[str, Any]]:
        return {one["agent_id"]: one for one in self.shell.json("agents")["agents"]}

    def tasks(self) -> dict[str, str]:
        return {one["name"]: one["state"] for one in self.shell.json("tasks", "--all")["tasks"]}

    def until(self, look: Callable[[], object], seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not look():
            assert time.monotonic() < end, self.lines
            assert self._up is not None
            assert self._up.poll() is None, self.lines
            time.sleep(0.2)

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        import msgspec

        lines = self.shell("events", "--json", "--limit", "1000").stdout.splitlines()
        return [one for line in lines if (one := msgspec.json.decode(line))["kind"] == kind]


def _toml(value: object) -> str:
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {json.dumps(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def seconds_of(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealFleet]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=folder)
    made = RealFleet(Shell(folder, os.urandom(8).hex()))
    yield made
    made.stop()
    until(lambda: made.shell.living() == [])


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as made:
        yield made


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_refused_login_is_one_question_for_all_tasks_of_its_account(
    fleet: RealFleet, provider: Provider, client: str
) -> None:
    provider.always(unauthorized())
    for name in ("one", "two"):
        fleet.agent(name, client, provider, account="acme")
    names = ["a", "b", "c"]
    for name in names:
        fleet.shell("submit", name)
    fleet.start()
    fleet.until(lambda: fleet.shell.json("questions")["questions"])
    fleet.until(lambda: set(fleet.tasks().values()) == {"ready"})
    (question,) = fleet.shell.json("questions")["questions"]
    assert question["text"].startswith("Account acme: the login is refused (")
    assert "401" in question["text"]
    assert "Its agents get no tasks before you answer, and no attempt is used up." in question["text"]
    fleet.until(lambda: all("waits for your answer" in str(one["waits"]) for one in fleet.agents().values()))
    asked = len(provider.requests)
    why = " ".join(fleet.shell("why", "a").stdout.split())
    assert "every agent that could take it is paused: one uses “acme”" in why
    assert f"which is refused by its provider ({question['question_id']}); its agents wait for your answer" in why
    assert len(provider.requests) == asked, "no task is started"
    assert "Account acme: the login is refused" in fleet.shell(code=3).stdout
    provider.recover()
    fleet.shell("answer", question["question_id"], "mended")
    fleet.until(lambda: set(fleet.tasks().values()) == {"done"})
    for name in names:
        assert not [one for one in fleet.shell.json("show", name)["attempts"] if one["outcome"].startswith("failed")]


@pytest.mark.parametrize(
    "client, acts, words",
    [
        ("claude", [rate_limited()] * 6, "429, try 6 of 10"),
        ("codex", [rate_limited("15")], "429, try 1 of 5"),
    ],
)
def test_a_rate_limit_is_waited_out_by_the_client_and_shown_meanwhile(
    fleet: RealFleet, provider: Provider, client: str, acts: list[Any], words: str
) -> None:
    provider.script(*acts, Reply("Hello."))
    for name in ("one", "two"):
        fleet.agent(name, client, provider, account="acme", role=name)
    fleet.shell("submit", "a", "--role", "one", "--retries", "0")
    fleet.start()
    fleet.until(lambda: fleet.agents()["one"]["evidence"] == words)
    assert fleet.agents()["one"]["health"] == "waiting for the provider"
    assert f"waiting for the provider: {words}" in " ".join(fleet.shell("agents").stdout.split())
    assert f"one is waiting for the provider: {words}." in " ".join(fleet.shell("why", "a").stdout.split())
    fleet.shell("submit", "b", "--role", "two")
    fleet.until(lambda: fleet.agents()["two"]["waits"] == "acme is parked" or fleet.tasks()["a"] == "done")
    assert "one is waiting for the provider: 429, try" in fleet.lines
    fleet.until(lambda: set(fleet.tasks().values()) == {"done"})
    (attempt,) = fleet.shell.json("show", "a")["attempts"]
    assert attempt["outcome"] == "done", "its own client has waited it out"


@pytest.mark.row("F5")
@pytest.mark.timeout(1_200)
def test_a_rate_limit_of_ten_minutes_ends_neither_the_agent_nor_its_task(fleet: RealFleet, provider: Provider) -> None:
    """The clock of idleness stands while the provider refuses; the limit of the run does not."""
    provider.script(*[rate_limited("60")] * 10, Reply("Hello."))
    fleet.agent("one", "claude", provider, account="acme", idle="2m")
    fleet.shell("submit", "a", "--retries", "0")
    began = time.monotonic()
    fleet.start()
    fleet.until(lambda: fleet.agents()["one"]["evidence"] == "429, try 9 of 10", 900)
    assert fleet.agents()["one"]["health"] == "waiting for the provider"
    assert "“acme” asked to wait. It is paused for another" in " ".join(fleet.shell().stdout.split())
    fleet.until(lambda: fleet.tasks()["a"] == "done", 300)
    assert time.monotonic() - began > 590
    (attempt,) = fleet.shell.json("show", "a")["attempts"]
    assert attempt["outcome"] == "done"


def test_a_usage_limit_that_names_a_minute_ends_with_that_minute(fleet: RealFleet, provider: Provider) -> None:
    """Codex cuts the reset to the minute. It is waited for until that minute is over, and not until tomorrow."""
    resets = int(time.time()) + 2
    provider.always(usage_limit(resets))
    fleet.agent("one", "codex", provider, account="acme")
    fleet.shell("submit", "a", "--retries", "0")
    fleet.start()
    fleet.until(lambda: fleet.events("usage_limit"))
    (limit,) = fleet.events("usage_limit")
    provider.recover()
    end = (resets // 60 + 1) * 60
    until_at = seconds_of(limit["data"]["until_at"])
    # The minute that Codex named is over then; where it was over before Codex was refused, it is tried in a minute.
    assert until_at == pytest.approx(end, abs=1) or until_at == pytest.approx(seconds_of(limit["at"]) + 60, abs=5)
    shown = time.strftime("%H:%M", time.localtime(round(until_at)))
    fleet.until(lambda: "acme" in fleet.shell().stdout or fleet.tasks()["a"] == "done")
    fleet.until(lambda: re.search(rf"account acme is parked until (\w+ )?{shown}, ", fleet.lines))
    fleet.until(lambda: fleet.tasks()["a"] == "done")
    assert len(fleet.events("usage_limit")) == 1, "once was enough"


def test_with_two_subscriptions_the_other_one_takes_over(fleet: RealFleet, provider: Provider) -> None:
    resets = int(time.time()) + 7_200
    with Provider() as limited:
        limited.always(subscription_limit(resets))
        fleet.agent("first", "claude", limited, account="ada", role="coder", login="oauth")
        fleet.shell("submit", "a", "--role", "coder", "--retries", "0")
        fleet.start()
        fleet.until(lambda: fleet.events("usage_limit"))
        (limit,) = fleet.events("usage_limit")
        assert limit["data"]["account"] == "ada"
        assert seconds_of(limit["data"]["until_at"]) == pytest.approx(resets, abs=1)
        fleet.until(lambda: fleet.agents()["first"]["waits"] == "ada is parked")
        shown = " ".join(fleet.shell().stdout.split())
        clock = time.strftime("%H:%M", time.localtime(resets))
        assert f"{clock}); 1 task waits for it; no attempt is used up" in shown, shown
        assert re.search(rf"account ada is parked until (\w+ )?{clock}, 1 task waits", fleet.lines)
        # The other subscription joins; nothing is said to anybody about the task.
        fleet.stop()
        fleet.agent("second", "claude", provider, account="grace", role="coder", login="oauth")
        fleet.start()
        fleet.until(lambda: fleet.tasks()["a"] == "done")
        attempts = fleet.shell.json("show", "a")["attempts"]
        assert [(one["agent_id"], one["outcome"]) for one in attempts][-1] == ("second", "done")
        fleet.shell("submit", "b", "--role", "coder")
        fleet.until(lambda: fleet.tasks()["b"] == "done")
