"""A night that is interrupted: what there is in a kept store, made as a program, an agent or a person would."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

import allswell
from allswell.app import store_for
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.status import PRESENCE_PREFIX as SUPERVISORS
from allswell.domain.agents.status import SURVIVORS_PREFIX as SURVIVORS
from allswell.domain.agents.status import AgentSlot, Presence, Survivor, Survivors
from allswell.domain.ids import Millis
from allswell.domain.notify.delivery import Delivery
from allswell.domain.question import RETRY, SKIP, SPLIT
from allswell.domain.rules.event import Entry, Position
from allswell.engine.access.keys import Keyring, LoginService, make_link
from tests.patience import SECONDS

HOUR = 3_600_000
STATES = {
    "ready": "ready",
    "late": "ready",
    "answered": "ready",
    "needs the parked": "ready",
    "part": "ready",
    "request": "ready",
    "of a run": "ready",
    "of a run that ends": "ready",
    "held": "held",
    "leased": "held",
    "watched": "held",
    "asks in passing": "held",
    "waiting": "waiting",
    "asks": "waiting",
    "delayed": "delayed",
    "tried again": "delayed",
    "parked by": "ready",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "too big": "split",
    "of a run that ended": "cancelled",
}
"""Where each task of the scene stands when it is left, by its name."""
SINCE_THE_SECOND = {
    "asks others": "waiting",
    "write me a haiku": "done",
    "is it up?": "ready",
    "costs": "held",
    "costs too much": "ready",
    "to be verified": "ready",
    "dismissed": "failed",
}
"""The same of what the scene of the first night did not have."""
NIGHTS = {"2026-11-17": STATES, "2026-11-18": {**STATES, **SINCE_THE_SECOND}}
"""The tasks of every night that is kept."""
FLOW = """\
name: chain
timeouts: {flow: 40m}
steps:
- {id: first, run: [sh, -c, echo first | tee -a ran.txt first.txt], outputs: {text: first.txt}}
- {id: slow, needs: first, run: [sh, slow.sh], timeout_override: 1500, retry: 1}
- {id: cut, needs: slow, run: [sh, cut.sh, "{{ steps.first.stdout }}"]}
- {id: last, needs: cut, run: [sh, -c, echo last >> ran.txt]}
"""
SCRIPTS = {
    "flow.yaml": FLOW,
    # Out of time at the first try.
    "slow.sh": "echo slow >> ran.txt; if [ ! -e once ]; then touch once; echo half > half.txt; exec sleep 60; fi\n",
    # Its runner is killed at the first try.
    "cut.sh": 'echo "cut $1" >> ran.txt; if [ -e runner.pid ]; then kill -9 "$(cat runner.pid)"; exec sleep 60; fi\n',
}
RAN_BEFORE = ["first", "slow", "slow", "cut first"]
"""What the steps of the flow have said when it is cut off."""


async def fill(url: str) -> None:
    """Tasks in every state, leases, questions, runs, services, events, and how far a follower has read."""
    async with allswell.open(url) as watch:
        heard = asyncio.Event()

        async def hear(_: Sequence[Entry]) -> None:
            heard.set()

        watch.follow("kept", hear)
        await _ends(watch)
        await _services(watch)
        await _asking(watch)
        await _holding(watch)
        await _runs(watch)
        await _asking_each_other(watch)
        await _money(watch)
        await _verified(watch)
        await _people(watch)
        await _going_out(watch)
        await heard.wait()
        async with asyncio.timeout(SECONDS):
            while not await watch.agents():
                await asyncio.sleep(0.01)


async def end_last_run(url: str) -> None:
    """End a run while nobody sweeps: what follows from it for its task is left undone."""
    async with allswell.make_watch(store_for(url), sweeping=False) as watch:
        (ends,) = [row.id for row in await watch.runs() if row.name == "ends"]
        await watch.end_run(ends, "called off")


async def _hold(watch: allswell.Watch, name: str, agent: str, lease: str | None = None) -> allswell.Lease:
    (row,) = [row for row in await watch.tasks() if row.task.name == name]
    held = await watch.claim(agent=agent, task=row.task.id, lease=lease)
    assert held is not None, name
    return held


async def _ends(watch: allswell.Watch) -> None:
    await watch.submit("done", payload={"pages": 3}, services=["printer"])
    await (await _hold(watch, "done", "ada")).complete({"pages": [1, 2, 3]})
    failed = await watch.submit("failed")
    await watch.submit("skipped", needs=[failed])
    await (await _hold(watch, "failed", "ada")).fail("no such table", error_class="validation")
    await watch.cancel(await watch.submit("cancelled"), "not wanted any more")
    await watch.submit("too big")
    question = await (await _hold(watch, "too big", "ada")).ask("This is too much for one.", [SPLIT, SKIP])
    await watch.answer(question, "split", subtasks=[{"name": "part", "payload": 1}], by="cleo")


async def _services(watch: allswell.Watch) -> None:
    await watch.submit("needs the parked", services=["parked"])
    await watch.submit("parked by", services=["parked"])
    limited = await _hold(watch, "parked by", "ada")
    await limited.fail("429", error_class="rate_limit", retry_after=2 * HOUR, services=["parked"])
    broken = allswell.guard("broken", retries=0, watch=watch)
    for _ in range(5):
        with suppress(allswell.AllswellError, ConnectionError):
            await broken.call(_refuses)
    with suppress(PermissionError):
        await allswell.guard("locked", retries=0, watch=watch).call(_locked)


async def _refuses() -> None:
    raise ConnectionError("it refuses")


async def _locked() -> None:
    raise PermissionError("401")


async def _asking(watch: allswell.Watch) -> None:
    run = await watch.open_run("stands", timeout=f"{3 * HOUR}ms")
    await watch.submit("asks", run=run)
    await (await _hold(watch, "asks", "ben")).ask("Which table?", [RETRY, SKIP])
    await watch.submit("answered")
    question = await (await _hold(watch, "answered", "ben")).ask("And this one?", [RETRY, SKIP])
    await watch.answer(question, "retry", "the second", by="cleo")
    await watch.submit("asks in passing", timeout=f"{8 * HOUR}ms")
    await (await _hold(watch, "asks in passing", "ben")).ask("By the way?", [RETRY, SKIP], hold=True)


async def _holding(watch: allswell.Watch) -> None:
    await watch.submit("ready", role="writer", priority=3, barred=["cato"], payload={"file": "notes.md"}, key="kept")
    held = await watch.submit("held", timeout=f"{8 * HOUR}ms", idle=f"{7 * HOUR}ms")
    await watch.submit("waiting", needs=[held], critical=True)
    ada = await _hold(watch, "held", "ada")
    await ada.checkin("half of it", progress=0.5)
    await ada.keep("rc_kept.1", "partial", "receipts/kept.json")
    await ada.delegate("expert", "request", payload="look at this", timeout=f"{5 * HOUR}ms")
    await watch.submit("leased", timeout=f"{8 * HOUR}ms")
    await _hold(watch, "leased", "bob", lease="60s")
    strict = allswell.Policy(
        timeout=8 * HOUR, checkpoint_interval=100, checkpoint_timeout=20, stall_threshold=1, recovery_grace=7 * HOUR
    )
    await watch.submit("watched", policy=strict)
    await _hold(watch, "watched", "eve")
    await watch.submit("delayed", not_before=_now() + 4 * HOUR)
    await watch.submit("tried again", retries=3)
    await (await _hold(watch, "tried again", "ada")).fail("503", error_class="overload", retry_after=6 * HOUR)
    await watch.submit("late")
    await (await _hold(watch, "late", "ada")).release("not now")


async def _runs(watch: allswell.Watch) -> None:
    await watch.submit("of a run", run=await watch.open_run("night", timeout=f"{6 * HOUR}ms"))
    ended = await watch.open_run("over")
    over = await watch.submit("of a run that ended", run=ended)
    await watch.end_run(ended, "enough")
    async with asyncio.timeout(SECONDS):
        while (row := await watch.task(over)) is None or row.task.state == "open":
            await asyncio.sleep(0.01)
    await watch.submit("of a run that ends", run=await watch.open_run("ends"))


async def _asking_each_other(watch: allswell.Watch) -> None:
    """A request that was answered, and one that has blocked the task of whoever asked."""
    await watch.submit("asks others", timeout=f"{8 * HOUR}ms")
    asks = await _hold(watch, "asks others", "ben")
    answered = await asks.send_request("ada", "status_check", "write me a haiku", timeout=f"{HOUR}ms")
    await watch.respond(answered, {"lines": 3}, agent="ada")
    sent = await asks.send_request("bob", "status_check", "is it up?", timeout="1ms", retries=0, kept=f"{9 * HOUR}ms")
    blocked = await asks.wait_for(sent, claims=False)
    assert blocked.state == "blocked", blocked


async def _money(watch: allswell.Watch) -> None:
    run = await watch.open_run("budget", max_cost_usd=40.0)
    await watch.submit("costs", run=run, role="writer", timeout=f"{8 * HOUR}ms", max_cost_usd=3.0)
    await (await _hold(watch, "costs", "ada")).spend(Expense(2_500_000, 90_000, 4_000))
    await watch.submit("costs too much", max_cost_usd=1.0)
    costly = await _hold(watch, "costs too much", "ada")
    assert await costly.spend(Expense(1_200_000, None, 70))
    await costly.end_costly()
    (question,) = [one.id for one in await watch.questions() if one.task == costly.task]
    await watch.answer(question, "increase_cost", by="cleo", max_cost_usd=9.0)


async def _verified(watch: allswell.Watch) -> None:
    """Work that was said to be done, and was not."""
    await watch.submit("to be verified", verify=["make", "test"])
    checked = await _hold(watch, "to be verified", "ada")
    await checked.verified(passed=False, why="exit code 2", said="2 failed", elapsed=700, result="all of it")


async def _people(watch: allswell.Watch) -> None:
    """Keys, a browser, what people have put aside, and what supervisors say of themselves."""
    keys = Keyring(watch)
    await keys.create("ada", ["agent"], roles=["writer"], agents=["ada"], by="cleo")
    await keys.create("op", ["operator"], lasts=300 * HOUR)
    await keys.create("gone", ["viewer"])
    await keys.revoke("gone", by="cleo")
    await LoginService(watch).enter(await make_link(watch, "op", by="cleo"))
    failed = await watch.submit("dismissed")
    await (await _hold(watch, "dismissed", "ada")).release("not now")
    await (await _hold(watch, "dismissed", "ada")).fail("no such file", error_class="validation")
    await watch.dismiss(failed, by="cleo")
    at = Millis(_now())
    slots = (AgentSlot("ada", "ada", "claude", "writer", name="costs", token=1, condition="working", proof_at=at),)
    fleet = Presence("night", "m", "elsewhere", 1, "b", "n", 1, at, at, 3_600_000, posts=slots, stopping=True)
    assert await watch.swap(SUPERVISORS + "night", None, msgspec.json.encode(fleet).decode())
    left = Survivors("ada", failed, "dismissed", 1, "elsewhere", "b", "n", (Survivor(7, 1, "sleep 9"),), folder="x")
    assert await watch.swap(SURVIVORS + "ada", None, msgspec.json.encode(left).decode())


async def _going_out(watch: allswell.Watch) -> None:
    """What a sink has still to deliver, and what it has given up."""
    at = Millis(_now())
    start = Position()
    made = [
        Delivery("ops", "msg_ops_1", "https://example.org/a", (1, 1, 0), at, '{"text": "hello"}'),
        Delivery("ops", "msg_ops_2", "https://example.org/b", (1, 2, 0), at, "{}", 4, at, at, True, "410 Gone"),
    ]
    assert await watch.outbox.enlist("sink.ops", start, Position(1, 2), made, "remembered")


def _now() -> int:
    return time.time_ns() // 1_000_000


PROGRAM = """
import asyncio, os, sys, allswell

@allswell.step("fetch")
async def fetch(page):
    print("fetch", page, flush=True)
    return page.upper()

@allswell.step("publish")
async def publish(words):
    print("publish", words, flush=True)
    if sys.argv[1:] == ["dies"]:
        os._exit(9)
    return len(words)

async def main():
    async with allswell.flow("digest", run_id="kept"):
        print(await publish([await fetch("a"), await fetch("b")]), flush=True)

asyncio.run(main())
"""
"""A Python flow of three steps; told to, it dies in the last."""


def program(folder: Path, url: str, *words: str) -> tuple[int, list[str]]:
    """Run the Python flow: its exit code, and what its steps have said."""
    environment = {**os.environ, "ALLSWELL_STORE": url}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, check=False
    )
    return done.returncode, done.stdout.decode().splitlines()


def interrupt_flow(folder: Path, url: str) -> None:
    """Run the flow of `FLOW` in a folder until its runner is killed."""
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    run = 'echo $$ > runner.pid; exec "$0" -m allswell run flow.yaml'
    environment = {**os.environ, "ALLSWELL_STORE": url}
    done = subprocess.run(["sh", "-c", run, sys.executable], cwd=folder, env=environment, check=False)
    assert done.returncode == -9, done.returncode
    (folder / "runner.pid").unlink()
    assert (folder / "ran.txt").read_text().splitlines() == RAN_BEFORE
