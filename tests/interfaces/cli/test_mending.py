"""Every command that the verdict names is typed as it was printed, and mends what it was named for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from allswell.domain.ids import Millis
from allswell.domain.rules.event import Position
from allswell.engine.status.verdict import LocalFacts, VerdictItem, look
from allswell.engine.watch import Watch
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import write
from tests.interfaces.cli.test_sinks import SECRET, leave, set_up
from tests.interfaces.cli.upkeep import HOUR, MINUTE, Shifted, change, environment, run_with, watch_at
from tests.runtime.process.stage import until
from tests.support.fakes import WebhookReceiver

ROOMY = ("ALLSWELL_DOCTOR_DISK_FREE", "1kB")


def concerns(cli: Console) -> dict[str, Any]:
    """What the verdict is made of, by kind."""
    seen = cli("--json").json
    return {one["kind"]: one for one in (*seen["needs"], *seen["waiting"])}


def type_it(cli: Console, command: str, **words: str) -> None:
    """Type a command as it was printed, with a word for each that is left open."""
    for name, word in words.items():
        assert name in command.split(), command
        command = command.replace(name, word)
    given = shlex.split(command)
    assert given[0] == "allswell"
    assert cli(*given[1:]).code == 0, (command, cli(*given[1:]))


@contextlib.contextmanager
def staying(cli: Console, command: str) -> Iterator[None]:
    """A command that stays until it is stopped, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=cli.folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def past(cli: Console, ago: int, play: Callable[[Watch], Any]) -> None:
    async def night() -> None:
        async with watch_at(cli.folder, ago) as watch:
            await play(watch)

    asyncio.run(night())


@pytest.fixture(autouse=True)
def roomy(cli: Console) -> None:
    cli.patch.setenv(*ROOMY)


def test_a_question_is_answered(cli: Console) -> None:
    cli.submit("migrate")
    cli.claim()
    cli("ask", "Which of the two?", "--wait", "0s")
    command = concerns(cli)["question"]["command"]
    type_it(cli, command, OPTION="'the second'")
    assert "question" not in concerns(cli)
    assert "The note" not in cli.ok("questions").out


def test_a_failure_is_retried_with_those_that_were_skipped_for_it(cli: Console) -> None:
    first = cli.submit("first", "--retries", "0")
    cli.submit("second", "--needs", first)
    cli.claim()
    cli("fail", "no such table", "--class", "validation")
    cli.ok("tasks")
    command = concerns(cli)["failed"]["command"]
    assert command == f"allswell retry {first} --with-dependents"
    type_it(cli, command)
    assert "failed" not in concerns(cli)
    assert sorted(one["name"] for one in cli.ok("tasks", "--json").json["tasks"]) == ["first", "second"]


def test_a_failure_is_retried_alone_or_dismissed(cli: Console) -> None:
    task = cli.submit("alone", "--retries", "0")
    cli.claim()
    cli("fail", "no such table", "--class", "validation")
    assert concerns(cli)["failed"]["command"] == f"allswell retry {task}"
    assert f"allswell dismiss {task}" in cli.ok("why", task).out
    type_it(cli, f"allswell dismiss {task}")
    assert "failed" not in concerns(cli)
    type_it(cli, f"allswell retry {task}")
    assert cli.ok("tasks", "--json").json["tasks"][0]["retry_of_id"] == task


def test_a_command_that_failed_or_was_stopped_is_run_again(cli: Console) -> None:
    script = "[ -e mended ] || exit 7"
    assert cli("run", "--no-tty", "--", "sh", "-c", script).code == 7
    command = concerns(cli)["failed"]["command"]
    assert command.startswith("allswell run --resume t_")
    (cli.folder / "mended").touch()
    type_it(cli, command)
    assert "failed" not in concerns(cli), "the one that failed went on in the new one"


def test_a_run_that_was_ended_with_words_of_a_continuation_hides_no_failure(cli: Console) -> None:
    cli.submit("another", "--run", "later", "--role", "other")
    task = cli.submit("fails", "--run", "night", "--retries", "0", "--role", "writer")
    runs = {run["name"]: run["run_id"] for run in cli.ok("runs", "--json").json["runs"]}
    cli.claim("ada", "--role", "writer")
    cli("fail", "no such table", "--class", "validation")
    for name in ("ALLSWELL_TASK", "ALLSWELL_TOKEN", "ALLSWELL_AGENT"):
        cli.patch.delenv(name)
    cli.ok("cancel", runs["night"], f"went on in {runs['later']}")
    assert "failed" in concerns(cli)
    shown = cli.ok("show", runs["night"], "--json").json["run"]
    assert (shown["reason"], shown["next_run_id"]) == (f"went on in {runs['later']}", None)
    assert "Its run went on" not in cli.ok("why", task).out


def test_a_stopped_command_is_resumed(cli: Console) -> None:
    words = [sys.executable, "-m", "allswell", "run", "--no-tty", "--", "sh", "-c"]
    words.append("[ -e began ] && exit 0; touch began; sleep 60")
    with subprocess.Popen(words, cwd=cli.folder, env=environment(), stderr=subprocess.DEVNULL) as process:
        until((cli.folder / "began").exists)
        process.send_signal(signal.SIGTERM)
    stopped = concerns(cli)["stopped"]
    assert stopped["command"] == f"allswell run --resume {stopped['task_id']}"
    type_it(cli, stopped["command"])
    assert concerns(cli) == {}


FLOW = 'name: release\nsteps:\n  - id: build\n    run: [sh, -c, "[ -e mended ] || { touch %s; %s; }"]\n'


def test_a_failed_flow_is_resumed(cli: Console) -> None:
    assert cli("run", write(cli.folder, FLOW % ("/dev/null", "exit 7"))).code == 1
    command = concerns(cli)["failed"]["command"]
    assert command.startswith("allswell resume r_")
    (cli.folder / "mended").touch()
    type_it(cli, command)
    assert concerns(cli) == {}


def test_a_stopped_flow_is_resumed(cli: Console) -> None:
    began = cli.folder.with_name(f"{cli.folder.name}-began")  # outside: it has changed nothing that a human must judge
    words = [sys.executable, "-m", "allswell", "run", write(cli.folder, FLOW % (began, "sleep 60"))]
    with subprocess.Popen(
        words, cwd=cli.folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until(began.exists)
        process.send_signal(signal.SIGTERM)
    command = concerns(cli)["stopped"]["command"]
    assert command.startswith("allswell resume r_")
    (cli.folder / "mended").touch()
    type_it(cli, command)
    assert concerns(cli) == {}


def test_work_that_no_agent_takes_is_claimed(cli: Console) -> None:
    past(cli, HOUR, lambda watch: watch.submit("look", role="critic"))
    found = concerns(cli)["unclaimed"]
    assert (found["level"], found["about"]) == ("broken", "critic")
    assert found["command"] == "allswell claim --agent NAME --role critic"
    type_it(cli, found["command"], NAME="ada")
    assert "unclaimed" not in concerns(cli)


def test_work_that_no_agent_takes_is_taken_by_the_agents_of_the_settings(cli: Console) -> None:
    past(cli, HOUR, lambda watch: watch.submit("look", role="critic"))
    (cli.folder / "allswell.toml").write_text(
        '[agents.shell]\ncommand = ["sh", "-c", "exit 0", "{name}{prompt}"]\nrole = "critic"\n'
    )
    command = concerns(cli)["unclaimed"]["command"]
    assert command == "allswell up"
    with staying(cli, command):
        until(lambda: concerns(cli) == {} and cli("--json").json["counts"].get("done") == 1)


def test_what_is_overdue_is_carried_out_by_an_open_watch(cli: Console) -> None:
    async def play(watch: Watch) -> None:
        await watch.submit("fetch")
        assert await watch.claim(agent="ada", lease="20s") is not None

    past(cli, 4 * MINUTE, play)
    command = concerns(cli)["overdue"]["command"]
    assert command == "allswell watch"
    with staying(cli, command):
        until(lambda: "overdue" not in concerns(cli))


def test_a_clock_that_stands_goes_on_with_an_open_watch(cli: Console) -> None:
    past(cli, -HOUR, lambda watch: watch.submit("fetch"))
    command = concerns(cli)["clock"]["command"]
    with staying(cli, command):
        until(lambda: "clock" not in concerns(cli))


def test_a_task_that_nothing_will_ever_move_is_to_be_reported(cli: Console) -> None:
    """Nothing mends a bug of ours at a user's: what is named prints what a report needs."""
    task = cli.submit("lost")
    change(cli.folder, "DELETE FROM ready")
    found = concerns(cli)["unaccounted"]
    assert found["command"] == f"allswell events --task {task} --json"
    type_it(cli, found["command"])
    assert "allswell cancel" not in cli.ok("why", task).out


@pytest.mark.row("F5")
def test_what_is_parked_is_unparked(cli: Console) -> None:
    async def play(watch: Watch) -> None:
        await watch.submit("translate", services=["anthropic"])
        await watch.park("anthropic", 9 * HOUR)

    past(cli, 0, play)
    found = concerns(cli)["parked"]
    assert (found["level"], found["command"]) == ("broken", "allswell unpark anthropic")
    assert cli("claim", "--agent", "ada").code == 5
    listed = cli.ok("tasks").out
    assert "parked" in listed
    assert "ready" not in listed
    assert "allswell unpark anthropic" in cli.ok("why", "translate").out
    type_it(cli, found["command"])
    assert "parked" not in concerns(cli)
    until(lambda: cli("claim", "--agent", "ada").code == 0)
    again = cli("unpark", "anthropic")
    assert (again.code, "is not parked" in again.err) == (2, True)
    assert "anthropic is used again by" in " ".join(cli.ok("events").out.split())


def test_an_account_that_is_parked_for_a_usual_time_only_waits(cli: Console) -> None:
    past(cli, 0, lambda watch: watch.park("anthropic", 2 * HOUR))
    found = concerns(cli)["parked"]
    assert (found["level"], found["then"]) == ("waiting", "it is used again")
    said = cli.ok().out
    assert said.startswith("All's well.")
    assert "paused for another" in said
    assert "(until " in said


def test_a_follower_that_never_comes_back_is_forgotten(cli: Console) -> None:
    async def play(watch: Watch) -> None:
        await watch.submit("one")
        await watch.cancel(await watch.submit("two"))
        store = watch._engine.store
        entries = await store.journal(Position(), 100)
        await store.advance("chat", entries[0].position)

    past(cli, HOUR, play)
    found = concerns(cli)["follower"]
    assert found["command"] == "allswell sinks forget chat"
    type_it(cli, found["command"])
    assert "follower" not in concerns(cli)


def silent_supervisor(cli: Console, beaten_at: int = 1) -> None:
    """A supervisor by the name of night, on another machine, which does not speak any more."""

    async def play(watch: Watch) -> None:
        word = {"name": "night", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
        word |= {"pid_start": 1, "started_at": Millis(1), "beaten_at": beaten_at or await watch.now()}
        assert await watch.swap("supervisor.night", None, json.dumps(word))

    past(cli, 0, play)


def test_a_supervisor_whose_machine_is_gone_is_dismissed(cli: Console) -> None:
    silent_supervisor(cli)
    (advice,) = concerns(cli)["supervisor"]["evidence"]
    assert advice == "if its machine is gone: allswell dismiss supervisor.night"
    type_it(cli, advice.partition(": ")[2])
    assert concerns(cli) == {}
    type_it(cli, "allswell dismiss supervisor.night")  # once more changes nothing


def test_a_supervisor_that_runs_is_not_dismissed(cli: Console) -> None:
    silent_supervisor(cli, beaten_at=0)
    refused, unknown = cli("dismiss", "supervisor.night"), cli("dismiss", "supervisor.day")
    assert (refused.code, unknown.code) == (2, 2)
    assert "process 1 on ship spoke" in refused.err
    assert "there is no supervisor 'day'" in unknown.err


def test_a_supervisor_by_another_name_is_started_by_that_name(cli: Console) -> None:
    silent_supervisor(cli)
    (cli.folder / "allswell.toml").write_text('[agents.shell]\ncommand = ["sh", "-c", "exit 0", "{name}{prompt}"]\n')
    command = concerns(cli)["supervisor"]["command"]
    assert command == "allswell up --name night"
    with staying(cli, command):
        until(lambda: concerns(cli) == {})
    assert concerns(cli) == {}, "it has said that it stops"


SPEC = "name: shop\ncomponents:\n  - name: db\n"


def test_a_build_without_a_coordinator_is_coordinated_again_as_it_was_started(cli: Console) -> None:
    (cli.folder / "spec.yaml").write_text(SPEC)
    words = ("coordinate", "spec.yaml", "--stdio", "--human", "ada", "--limit", "3h")
    first = run_with(environment(), *words, cwd=cli.folder, given="a: CLAIM db\n")
    assert first.code == 1, first
    found = concerns(cli)["stopped"]
    assert found["command"] == "allswell coordinate spec.yaml --stdio --human ada --limit 3h"
    rest = "a: READY db https://x/1\nb: AUDIT db PASS\n"
    again = run_with(environment(), *shlex.split(found["command"])[1:], cwd=cli.folder, given=rest)
    assert again.code == 0, again
    assert "stopped" not in concerns(cli)


def test_a_sink_that_is_behind_is_told_and_what_it_gave_up_is_tried_again(cli: Console) -> None:
    with WebhookReceiver(SECRET) as receiver:
        set_up(cli, receiver)
        leave(cli, tries=4, given_up=True, reason="answered 410")
        past(cli, HOUR, lambda watch: watch.submit("one"))
        past(cli, HOUR, lambda watch: watch.submit("two"))
        found = concerns(cli)
        assert found["follower"]["command"] == "allswell sinks run"
        assert found["delivery"]["command"] == "allswell deliveries retry --sink hook"
        type_it(cli, found["delivery"]["command"])
        assert "delivery" not in concerns(cli)
        with staying(cli, found["follower"]["command"]):
            until(lambda: "follower" not in concerns(cli))
            until(lambda: len(receiver.taken) >= 1)


def test_clocks_that_disagree_are_looked_at_with_what_this_machine_has(cli: Console) -> None:
    """A file's clock is that of the machine that reads it, so only a server's can differ."""

    async def looked_at(skew: int) -> VerdictItem | None:
        async with watch_at(cli.folder) as watch:
            verdict = await look(watch.views, LocalFacts(clock=Shifted(-skew)))
        return next((one for one in verdict.concerns if one.kind == "skew"), None)

    cli.submit("one")
    assert asyncio.run(looked_at(0)) is None
    cli.patch.setenv("PATH", str(cli.folder), prepend=os.pathsep)
    for program in ("timedatectl", "date"):
        (cli.folder / program).write_text("#!/bin/sh\nexit 0\n")
        (cli.folder / program).chmod(0o755)
    found = asyncio.run(looked_at(5 * MINUTE))
    assert found is not None
    assert found.what.startswith("the store's clock is 5m ahead of this machine's; correct the one that is wrong")
    assert found.command == "timedatectl"
    assert subprocess.run(shlex.split(found.command), check=False).returncode == 0
    cli.patch.setenv("PATH", str(cli.folder))
    (cli.folder / "timedatectl").unlink()
    found = asyncio.run(looked_at(-5 * MINUTE))
    assert found is not None
    assert (found.command, "behind this machine's" in found.what) == ("date -u", True)
