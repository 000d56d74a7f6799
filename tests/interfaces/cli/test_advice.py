"""`why` never gives advice that does not work: every situation it can tell of is made, and every advice is typed.

Each advice is typed in a copy of the situation. What only shows something must show it; what acts must change what
`why` says. That no advice is left out is read off the source: each `SuggestedAction` of the explanations has to be met.
"""

from __future__ import annotations

import ast
import asyncio
import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import allswell.engine.status
from allswell import ErrorClass, Failure, Policy
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.status import Survivor, Survivors, word_of
from allswell.engine.watch import Watch
from allswell.errors import Refused
from allswell.testing.sim.process import engine_of
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.flow_scene import write
from tests.interfaces.cli.test_services import failing
from tests.interfaces.cli.upkeep import HOUR, MINUTE, change, environment, watch_at
from tests.runtime.process.stage import until

Play = Callable[[Watch], Awaitable[Any]]
SHOWS = ("why", "logs", "doctor", "agents", "events")
"""Commands that change nothing."""
FLOW = 'name: release\nsteps:\n  - id: build\n    run: [sh, -c, "[ -e mended ] || { touch %s; %s; }"]\n'


def play(cli: Console, ago: int, scene: Play) -> Any:  # noqa: ANN401 - whatever the scene gives
    async def night() -> Any:  # noqa: ANN401
        async with watch_at(cli.folder, ago) as watch:
            return await scene(watch)

    return asyncio.run(night())


async def take(watch: Watch, **how: Any) -> Any:  # noqa: ANN401 - a lease
    lease = await watch.claim(agent="ada", **how)
    assert lease is not None
    return lease


def stopped(cli: Console, *words: str) -> None:
    """Begin a command in a process of its own, and stop it once it has begun."""
    began = cli.folder.with_name(f"{cli.folder.name}-began")
    command = [sys.executable, "-m", "allswell", "run", *(word.replace("BEGAN", str(began)) for word in words)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=cli.folder, env=environment(), stdout=quiet, stderr=quiet) as process:
        until(began.exists)
        process.send_signal(signal.SIGTERM)
    (cli.folder / "mended").touch()


# --- the situations: each makes one, and says what is asked about -----------------------------------------------------


def held(cli: Console) -> str:
    return str(play(cli, 0, _held))


async def _held(watch: Watch, **how: Any) -> str:  # noqa: ANN401
    await watch.submit("held", **how)
    return str((await take(watch)).task)


def said_to_be_done(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        task = await watch.submit("verified", policy=Policy(verify=("true",)))
        lease = await take(watch)
        with pytest.raises(Refused):
            await lease.complete({})
        return str(task)

    return str(play(cli, 0, scene))


def lease_ran_out(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        task = await watch.submit("ran out")
        await take(watch, lease="20s")
        return str(task)

    return str(play(cli, 4 * MINUTE, scene))


def ready(cli: Console) -> str:
    return cli.submit("ready", "--role", "critic")


def deadline_passed(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        run = await watch.open_run("night", timeout="1m")
        return str(await watch.submit("late", run=run))

    return str(play(cli, 4 * MINUTE, scene))


def service_parked(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        await watch.park("anthropic", HOUR)
        return str(await watch.submit("translate", services=["anthropic"]))

    return str(play(cli, 0, scene))


def service_failing(cli: Console) -> str:
    failing(cli, 5, ago=5 * HOUR)
    return cli.submit("summarise", "--service", "anthropic")


def money_spent(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        run = await watch.open_run("night", max_cost_usd=1)
        await watch.submit("paint", run=run)
        lease = await take(watch)
        await lease.spend(Expense(2_000_000, 1, 1))
        return str(await watch.submit("paint more", run=run))

    return str(play(cli, 0, scene))


def everybody_waits(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        now = await watch.now()
        word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
        word |= {"pid_start": 1, "started_at": now, "beaten_at": now + 3_000}
        post = {"agent": "claude", "holder": "claude", "kind": "command", "waits": "its session is almost used up"}
        assert await watch.swap("supervisor.main", None, json.dumps(word | {"posts": [post], "pace": 600_000}))
        return str(await watch.submit("kept back"))

    return str(play(cli, 0, scene))


def its_account_is_parked(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        now = await watch.now()
        word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
        word |= {"pid_start": 1, "started_at": now, "beaten_at": now + 3_000}
        post = {"agent": "claude", "holder": "claude", "kind": "command", "waits": "acme is parked", "account": "acme"}
        assert await watch.swap("supervisor.main", None, json.dumps(word | {"posts": [post], "pace": 600_000}))
        await watch.park("acme", HOUR)
        return str(await watch.submit("parked"))

    return str(play(cli, 0, scene))


def its_supervisor_died(cli: Console) -> str:
    (cli.folder / "allswell.toml").write_text('[agents.shell]\ncommand = ["true", "{prompt}"]\n')

    async def scene(watch: Watch) -> str:
        word = {"name": "main", "marker": "m", "host": "ship", "pid": 1, "boot_id": "b", "pid_namespace": "n"}
        word |= {"pid_start": 1, "started_at": 1, "beaten_at": 1}
        post = {"agent": "shell", "holder": "shell", "kind": "command"}
        assert await watch.swap("supervisor.main", None, json.dumps(word | {"posts": [post]}))
        return str(await watch.submit("waits for agents"))

    return str(play(cli, 0, scene))


def a_question_pauses_all(cli: Console) -> str:
    (cli.folder / "allswell.toml").write_text('pause_on_question = "all"\n')

    async def scene(watch: Watch) -> str:
        await watch.submit("asks")
        await (await take(watch)).ask("Which one?")
        return str(await watch.submit("waits for the answer, too"))

    return str(play(cli, 0, scene))


def command_stopped(cli: Console) -> str:
    stopped(cli, "--no-tty", "--", "sh", "-c", "[ -e mended ] || { touch BEGAN; sleep 60; }")
    return str(cli.ok("tasks", "--json").json["tasks"][0]["task_id"])


def flow_stopped(cli: Console) -> str:
    began = cli.folder.with_name(f"{cli.folder.name}-began")
    stopped(cli, write(cli.folder, FLOW % (began, "sleep 60")))
    return str(cli.ok("tasks", "--role", "step", "--json").json["tasks"][0]["task_id"])


def delayed(cli: Console) -> str:
    return str(play(cli, 0, lambda watch: _delayed(watch, HOUR)))


async def _delayed(watch: Watch, by: int) -> str:
    return await watch.submit("later", not_before=await watch.now() + by)


def delay_is_over(cli: Console) -> str:
    return str(play(cli, HOUR, lambda watch: _delayed(watch, MINUTE)))


def nowhere(cli: Console) -> str:
    task = cli.submit("lost")
    change(cli.folder, "DELETE FROM ready")
    return task


def asked_after_a_timeout(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        policy = Policy(timeout=60_000, timeout_escalation=1)
        task = await watch.submit("too long", policy=policy)
        await take(watch)
        return str(task)

    task = play(cli, 4 * MINUTE, scene)
    play(cli, 0, lambda watch: engine_of(watch).sweeper.sweep())
    return f"q_{task.removeprefix('t_')}.1"


def not_verified(cli: Console) -> str:
    verified = Policy(verify=("test", "-e", "mended"), verify_attempts=1)
    task = play(cli, 0, lambda watch: watch.submit("verified", policy=verified))
    cli.claim()
    assert cli("done").code == 3
    (cli.folder / "mended").touch()
    return f"q_{task.removeprefix('t_')}.1"


def needs_another(cli: Console) -> str:
    return cli.submit("second", "--needs", cli.submit("first"))


def not_told(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        first = await watch.submit("first")
        second = await watch.submit("second", needs=[first])
        await (await take(watch)).complete({})
        return str(second)

    return str(play(cli, 4 * MINUTE, scene))


def need_is_gone(cli: Console) -> str:
    first = cli.submit("first")
    second = cli.submit("second", "--needs", first)
    change(cli.folder, "DELETE FROM ready")
    change(cli.folder, "DELETE FROM task WHERE id = ?", first)
    return second


def circle(cli: Console) -> str:
    first = cli.submit("first")
    second = cli.submit("second", "--needs", first)
    change(cli.folder, "DELETE FROM ready")
    change(cli.folder, "INSERT INTO wait (task, target, kind) VALUES (?, ?, 'need')", first, second)
    return second


def failed(cli: Console) -> str:
    task = cli.submit("breaks", "--retries", "0")
    play(cli, 0, _fail)
    return task


async def _fail(watch: Watch) -> None:
    await (await take(watch)).fail(Failure(ErrorClass.VALIDATION, "no such table"))


def skipped(cli: Console) -> str:
    first = cli.submit("first", "--retries", "0")
    second = cli.submit("second", "--needs", first)
    play(cli, 0, _fail)
    play(cli, 0, lambda watch: watch.sweep_once())
    return second


def failed_with_dependents(cli: Console) -> str:
    skipped(cli)
    return "first"


def command_failed(cli: Console) -> str:
    assert cli("run", "--no-tty", "--", "sh", "-c", "echo it begins; [ -e mended ] || exit 7").code == 7
    (cli.folder / "mended").touch()
    return str(cli.ok("tasks", "--all", "--json").json["tasks"][0]["task_id"])


def step_failed(cli: Console) -> str:
    assert cli("run", write(cli.folder, FLOW % ("/dev/null", "echo no; exit 7"))).code == 1
    (cli.folder / "mended").touch()
    return str(cli.ok("tasks", "--state", "failed", "--json").json["tasks"][0]["task_id"])


def cancelled(cli: Console) -> str:
    task = cli.submit("cancelled")
    cli.ok("cancel", task)
    return task


def retried(cli: Console) -> str:
    task = failed(cli)
    cli.ok("retry", task)
    return task


def run_failed(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        run = await watch.open_run("night")
        await watch.submit("breaks", run=run)
        await _fail(watch)
        return str(run)

    return str(play(cli, 0, scene))


def clock_stands(cli: Console) -> str:
    return str(play(cli, -HOUR, lambda watch: watch.submit("held up")))


def a_process_survived(cli: Console) -> str:
    async def scene(watch: Watch) -> str:
        task = await watch.submit("tests")
        kept = Survivors("ada", task, "tests", 1, "ship", "boot", "ns", (Survivor(7, 7, "sleep 900"),), "/src")
        assert await watch.swap(word_of("ada"), None, msgspec.json.encode(kept).decode())
        return str(task)

    return str(play(cli, 0, scene))


SITUATIONS = (
    *(held, said_to_be_done, lease_ran_out, ready, deadline_passed, service_parked, service_failing, money_spent),
    *(
        everybody_waits,
        its_account_is_parked,
        a_question_pauses_all,
        command_stopped,
        flow_stopped,
        delayed,
        delay_is_over,
        nowhere,
    ),
    *(asked_after_a_timeout, not_verified, needs_another, not_told, need_is_gone, circle, failed, skipped),
    *(failed_with_dependents, command_failed, step_failed, cancelled, retried, run_failed, clock_stands),
    *(a_process_survived, its_supervisor_died),
)


# --- typing ---------------------------------------------------------------------------------------------------------


def explained(cli: Console, about: str) -> Any:  # noqa: ANN401 - JSON
    return cli.ok("why", about, "--json").json


def told(said: Any) -> list[object]:  # noqa: ANN401 - JSON
    """What an explanation comes to, without the seconds in it."""
    state = [said["state"], [one["command"] for one in said["todo"]]]
    return [*state, [(link["id"] if "id" in link else link.get("task_id"), link["state"]) for link in said["chain"]]]


def type_it(cli: Console, advice: str, has_changed: Callable[[], bool]) -> None:
    """Type an advice. `watch` sweeps for while it is open, so it stays open until the situation has changed."""
    words = shlex.split(advice.replace("NAME", "bea").replace("FILE", "parts.json"))
    (Path("parts.json")).write_text('[{"name": "half"}, {"name": "other half"}]')
    if words[1] == "up":
        words.append("--drain")  # it stays otherwise
    if words[1] == "watch":
        command = [sys.executable, "-m", *words]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=quiet) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline(), "it says what runs, and what needs you"
                until(has_changed)
            finally:
                process.send_signal(signal.SIGINT)
        return
    done = cli(*words[1:])
    if "add --yes" in done.err:  # where there is no terminal to ask at, it says what to add
        done = cli(*words[1:], "--yes")
    fine = (0, 1, 3) if words[1] == "doctor" else (0,)
    assert done.code in fine, (advice, done)


@pytest.fixture
def copies(cli: Console) -> Iterator[Callable[[], None]]:
    """Goes on in a copy of the folder."""
    count = 0

    def another() -> None:
        nonlocal count
        count += 1
        copy = cli.folder.with_name(f"{cli.folder.name}-{count}")
        shutil.copytree(cli.folder, copy)
        cli.patch.chdir(copy)

    yield another
    cli.patch.chdir(cli.folder)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_every_advice_works(cli: Console, copies: Callable[[], None], situation: Callable[[Console], str]) -> None:
    about = situation(cli)
    for name in ("TASK", "TOKEN", "AGENT"):
        cli.patch.delenv(f"ALLSWELL_{name}", raising=False)
    before = explained(cli, about)
    assert before["todo"], "there is something to do about each of these"
    for one in before["todo"]:
        copies()

        def has_changed() -> bool:
            return told(explained(cli, about)) != told(before)

        type_it(cli, one["command"], has_changed)
        if shlex.split(one["command"])[1] not in SHOWS:
            until(has_changed)


def _openings() -> dict[str, str]:
    """The first words of every advice in the source, and where it stands."""
    found: dict[str, str] = {}
    for path in sorted(Path(allswell.engine.status.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SuggestedAction":
                words = ast.get_source_segment(path.read_text(), node.args[0]) or ""
                found[words] = f"{path.name}:{node.lineno}"
    return found


def test_no_advice_is_left_out() -> None:
    """Whoever adds an advice adds a situation: their number is held here, by hand."""
    assert len(_openings()) == 26, _openings()
