"""One attempt in its slot, on virtual time: with the thresholds that are shipped, however long they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import allswell
from allswell import Watch
from allswell.domain.agents.fleet import AgentSpec, Fleet
from allswell.domain.ids import AgentId
from allswell.domain.receipts.receipt import End
from allswell.runtime.agents.function import Work
from allswell.runtime.attempt import SharedSampler
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor import SupervisorPlan
from allswell.runtime.supervisor.attempt import AttemptSupervisor, SharedServices
from allswell.runtime.supervisor.console import ConsoleReporter
from allswell.runtime.supervisor.dispatch import Slot
from allswell.runtime.supervisor.usage import Accounts
from tests.engine.stage import Stage, play

NUDGED: list[str] = []


async def checks_in_once(work: Work) -> None:
    """Silent for a hundred seconds, then a word, then silent for good."""
    work.on_asked(NUDGED.append)
    await asyncio.sleep(100)
    await work.checkin("here I am")
    await asyncio.sleep(10_000)


@pytest.mark.row("O3")
def test_who_is_quiet_is_nudged_once_for_each_silence(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        NUDGED.clear()
        watch, task = stage.watch, await stage.watch.submit("quiet", timeout="10m")
        lease = await watch.claim(agent="ada")
        assert lease is not None
        spec = AgentSpec(name="ada", function=f"{__name__}:checks_in_once", cwd=str(tmp_path), grace=0, idle=400_000)
        plan = SupervisorPlan(Fleet({"ada": spec}), StateDir(tmp_path / ".allswell"), clock=stage.clock)
        shared = SharedServices(
            SharedSampler(),
            asyncio.Semaphore(1),
            lambda _who, _usage: None,
            ConsoleReporter(lambda _said: None),
            Accounts(watch, plan),
        )
        attended = AttemptSupervisor(watch, plan, Slot(spec, AgentId("ada")), lease, shared)
        attending = asyncio.ensure_future(attended.attend())

        async def look_until(second: int) -> None:
            while stage.seconds < second:
                await asyncio.sleep(1)
                attended.look(await watch.task(task), None)

        await look_until(29)
        assert NUDGED == [], "it is being started"
        now = await watch.now()
        assert attended.post(now).idle_at == now + 371_000, "whoever looks sees when it would be ended"
        await look_until(99)
        (nudge,) = NUDGED
        assert "no progress" in nudge
        await look_until(159)
        assert len(NUDGED) == 1
        await look_until(290)
        assert len(NUDGED) == 2, "it had spoken in between"
        states = [event.data["state"] for event in await stage.told("agent_state")]
        assert states == ["quiet", "working", "quiet"]
        evidence = [event.data["evidence"] for event in await stage.told("agent_nudged")]
        assert evidence == ["no sign of progress in 30s", "checkin 1m ago: “here I am”"]
        row = await watch.task(task)
        assert row is not None
        assert row.lease is not None, "and nobody is ended for being quiet"
        attending.cancel()
        await asyncio.wait([attending])

    play(scene)


@pytest.mark.row("F9")
def test_an_attempt_that_never_began_leaves_a_receipt_too(tmp_path: Path) -> None:
    """Its lease ended while it waited for its turn; or its agent cannot be started at all."""

    async def scene(watch: Watch) -> None:
        home, said = StateDir(tmp_path / ".allswell"), list[str]()
        home.make()

        async def attended(function: str, turn: asyncio.Semaphore) -> AttemptSupervisor:
            await watch.submit(function)
            lease = await watch.claim(agent="ada")
            assert lease is not None
            spec = AgentSpec(name="ada", function=f"{__name__}:{function}", cwd=str(tmp_path), grace=0)
            plan = SupervisorPlan(Fleet({"ada": spec}), home, tell=said.append)
            shared = SharedServices(
                SharedSampler(), turn, lambda _who, _usage: None, ConsoleReporter(said.append), Accounts(watch, plan)
            )
            return AttemptSupervisor(watch, plan, Slot(spec, AgentId("ada")), lease, shared)

        turn = asyncio.Semaphore(0)
        called_off = await attended("checks_in_once", turn)
        attending = asyncio.ensure_future(called_off.attend())
        await watch.cancel(called_off.lease.task, "not needed")
        called_off.look(await watch.task(called_off.lease.task), None)
        turn.release()
        await attending
        missing = await attended("no_such_function", turn)
        await missing.attend()
        kept = {receipt.task: receipt for receipt in (found.receipt for found in home.receipts.all())}
        first, second = kept[called_off.lease.task], kept[missing.lease.task]
        assert (first.status, second.status) == (End.LEASE_LOST, End.NOT_STARTED)
        assert "no_such_function" in second.reason
        assert not first.changed
        assert any("had to let go of “checks_in_once”" in line for line in said), said
        assert len([one async for one in watch.events() if one.event.kind == "receipt_written"]) == 2

    async def main() -> None:
        async with allswell.open("memory:") as watch:
            await scene(watch)

    asyncio.run(main())
