"""What `allswell init` writes, with the real Claude Code and Codex: each works, asks a human, goes on, and finishes.

`make clients` runs this. The settings are as they were written; what the model says is the fake provider's script.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allswell.testing.provider import AnyAct, CallTool, Provider, Reply
from tests.clients.test_real import CLIENTS, QUIET
from tests.interfaces.cli.shell import ALLSWELL, Shell
from tests.interfaces.cli.upkeep import at_terminal
from tests.patience import SECONDS
from tests.runtime.attempt.stage import git
from tests.runtime.process.stage import until

pytestmark = pytest.mark.slow
COMMIT = "git -c user.name=x -c user.email=x@example.org commit -qam work"


class Project:
    """A repository with tests and settings that `allswell init` has written, and a fleet at work in it."""

    def __init__(self, client: str, folder: Path, provider: Provider) -> None:
        self.client = client
        self.provider = provider
        folder.mkdir()
        (folder / "Makefile").write_text("test:\n\tgrep -q made made.txt\n")
        (folder / "made.txt").write_text("not yet\n")
        git("init", "-q", "-b", "main", cwd=folder)
        git("add", "-A", cwd=folder)
        git("commit", "-q", "-m", "first", cwd=folder)
        login = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", **QUIET}
        self.shell = Shell(folder, os.urandom(8).hex(), login)
        self.shell.variables["PATH"] = f"{CLIENTS}:{self.shell.env['PATH']}"
        self.shell("init", "--agent", client)
        self.log = folder.parent / "up.log"
        self.start()

    def start(self) -> None:
        command = [*ALLSWELL, "up"]
        with self.log.open("a") as log:
            self.up = subprocess.Popen(
                command, cwd=self.shell.folder, env=self.shell.env, stdout=log, stderr=subprocess.STDOUT, text=True
            )

    def calls(self, tool: str, **arguments: object) -> CallTool:
        if self.client == "claude":
            return CallTool(f"mcp__allswell__{tool}", arguments)
        return CallTool(tool, arguments, namespace="mcp__allswell")

    def types(self, command: str) -> CallTool:
        if self.client == "claude":
            return CallTool("Bash", {"command": command, "description": "work"})
        return CallTool("exec_command", {"cmd": command})

    def begins(self) -> list[AnyAct]:
        return [CallTool("WaitForMcpServers")] if self.client == "claude" else []

    def task(self, id_: str) -> Any:  # noqa: ANN401 - whatever it shows
        return self.shell.json("show", id_)

    def ended(self, id_: str) -> Any:  # noqa: ANN401 - whatever it shows
        until(lambda: self.task(id_)["task"]["state"] in ("done", "failed"))
        return self.task(id_)

    def asked(self, id_: str) -> Any:  # noqa: ANN401 - whatever it shows
        def found() -> list[Any]:
            assert self.up.poll() is None, self.log.read_text()
            return [one for one in self.shell.json("questions")["questions"] if one["task_id"] == id_]

        until(lambda: bool(found()))
        return found()[0]

    def stop(self) -> None:
        self.up.send_signal(signal.SIGINT)
        self.up.wait(SECONDS)
        until(lambda: self.shell.living() == [])


@pytest.fixture(params=["claude", "codex"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    with Provider() as provider:
        (home / ".codex").mkdir()
        named = f'name = "fake"\nbase_url = "{provider.openai_url}"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"'
        (home / ".codex" / "config.toml").write_text(
            f'model_provider = "fake"\nmodel = "gpt-5"\n[model_providers.fake]\n{named}\n'
        )
        made = Project(request.param, tmp_path / "project", provider)
        try:
            yield made
        finally:
            made.stop()


def test_with_what_init_writes_a_real_client_runs_tests_asks_goes_on_and_finishes(project: Project) -> None:
    first = [project.types("echo made > made.txt; make test && echo the tests pass")]
    first += [project.types(f"{COMMIT} && echo it is committed")] if project.client == "claude" else []
    project.provider.script(
        *project.begins(),
        *first,
        project.calls("checkin", note="half of it", progress=0.5),
        project.calls("ask", text="Which one?"),
        Reply("I wait for that."),
        *project.begins(),
        project.calls("checkin", note="the rest"),
        Reply("All of it is made."),
    )
    id_ = project.shell("submit", "make it").stdout.strip()
    question = project.asked(id_)
    assert question["text"] == "Which one?"
    project.shell("answer", question["question_id"], "the second one")
    shown = project.ended(id_)
    heard = " ".join(str(request.body) for request in project.provider.requests)
    assert "the tests pass" in heard
    assert "the second one" in heard
    assert shown["task"]["state"] == "done", project.log.read_text()
    assert shown["result"]["message"] == "All of it is made."
    assert [one["outcome"] for one in shown["attempts"]] == ["asked", "done"]
    assert [one["path"] for one in shown["work"]["changed"]] == ["made.txt"]
    text = project.shell("show", id_).stdout
    assert "All of it is made." in text
    assert "has done “make it”" in project.log.read_text()


def test_a_question_at_the_end_is_asked_and_what_was_not_changed_is_said(project: Project) -> None:
    project.provider.script(*project.begins(), project.types("ls"), Reply("I found two ways. Which one do you want?"))
    id_ = project.shell("submit", "look").stdout.strip()
    question = project.asked(id_)
    assert question["text"] == "I found two ways. Which one do you want?"
    assert [one["key"] for one in question["options"]] == ["reply", "accept", "skip"]
    project.provider.script(*project.begins(), Reply("The first one it is."))
    project.shell("answer", question["question_id"], "the first one")
    shown = project.ended(id_)
    assert shown["result"]["message"] == "The first one it is."
    assert (shown["result"]["changed"], len(shown["result"]["session"])) == (0, 36)
    assert any("the first one" in str(request.body) for request in project.provider.requests)
    logs = project.shell("logs", id_).stdout
    assert "The first one it is." in logs


README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("project", ["claude"], indirect=True)
def test_the_first_line_of_the_readme_ends_well_when_it_is_typed(project: Project) -> None:
    text = README.read_text().partition("\nallswell run ")[2].partition("\n```")[0].replace("\\\n", " ")
    project.provider.script(
        project.types("echo made > made.txt; make test && echo the tests pass"),
        project.types(f"{COMMIT} && echo it is committed"),
        Reply("The tests are fixed."),
    )
    typed = ["run", "--name", "first", *shlex.split(text)]
    shell = project.shell
    said = at_terminal(*typed, cwd=shell.folder, columns=100, NO_COLOR="1", **shell.env)
    assert said.code == 0, said.out
    assert "The tests are fixed." in said.out
    assert '{"type"' not in said.out
    heard = " ".join(str(request.body) for request in project.provider.requests)
    assert "the tests pass" in heard
    assert "it is committed" in heard
    result = project.task("first")["result"]
    assert (result["message"], result["changed"]) == ("The tests are fixed.", 1)
    assert "The tests are fixed." in shell("logs", "first").stdout


@pytest.mark.parametrize("project", ["claude", "codex"], indirect=True)
def test_a_call_that_hangs_is_named_wherever_it_is_said_how_the_attempt_ended(project: Project) -> None:
    project.provider.script(*project.begins(), project.types("tail -f /dev/null"))
    settings = project.shell.folder / "allswell.toml"
    project.stop()
    settings.write_text(settings.read_text().replace('idle = "10m"', 'idle = "6s"'))
    project.shell("trust", "--yes")
    project.start()
    id_ = project.shell("submit", "hang").stdout.strip()

    def idle() -> list[Any]:
        receipts = project.shell.json("receipts")["receipts"]
        return [one for one in receipts if one["status"] == "idle" and not one["partial"]]

    until(lambda: bool(idle()))
    project.shell("cancel", id_)
    (receipt,) = idle()
    assert receipt["open_call"].startswith("running: tail -f /dev/null, ")
    assert "; running: tail -f /dev/null, " in receipt["reason"]
    assert "checkin" not in [one["sign"] for one in receipt["evidence"]]
    shown = project.shell("show", receipt["receipt_id"]).stdout
    assert "running: tail -f /dev/null, " in shown
    assert "Reading additional input" not in shown
    assert '{"type"' not in shown
