"""Misses are counted per agent, however many processes sweep (O3)."""

import asyncio
import random

import pytest

from allswell import Policy, make_watch
from allswell.domain.ids import AgentId
from allswell.engine import sweeper
from allswell.engine.unit_of_work import commit
from allswell.store.clock import DueTimer
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.testing.loop import VirtualClock, run

BOB = AgentId("bob")
ASKED_EVERY_MINUTE = Policy(checkpoint_interval=60_000, checkpoint_timeout=1_000, stall_threshold=100)


@pytest.mark.row("O3")
@pytest.mark.parametrize("seed", range(20))
def test_no_first_miss_is_lost(seed: int) -> None:
    """Three processes judge one agent's leases at once; those that find no record of it must not all begin at one."""

    async def judge(store: Store, task: str) -> None:
        await commit(store, lambda tx: sweeper.tick(tx, [DueTimer(task, BOB)]))

    async def scene() -> None:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        stores = [store, store.another(), store.another()]
        async with make_watch(store, clock=clock, chance=random.Random(seed), sweeping=False) as watch:
            for number in range(len(stores)):
                await watch.submit(f"n{number}", policy=ASKED_EVERY_MINUTE)
            for other in stores[1:]:
                await other.open()
            leases = await watch.claim_many(len(stores), agent=BOB)
            await asyncio.sleep(62)
            await asyncio.gather(*(judge(one, lease.task) for one, lease in zip(stores, leases, strict=True)))
            (agent,) = await watch.agents()
            assert agent.misses == len(stores)

    run(scene(), seed=seed)
