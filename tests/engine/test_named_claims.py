"""Claims that name their tasks: those and no others, by the same rules as any claim."""

import asyncio
from pathlib import Path

import pytest

from allswell import Refused, make_watch
from allswell.app import store_for
from allswell.domain.command import Park
from allswell.errors import LeaseLost
from tests.engine.stage import Stage, play


def test_only_what_is_named_and_ready_is_given() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        a, b, waits, other = await watch.submit_many(
            [{"name": "a"}, {"name": "b"}, {"name": "c", "needs": ["a"]}, {"name": "d", "priority": 9}]
        )
        got = await watch.claim_many(1, agent="flow", tasks=[b, waits, a, "t_gone", b])
        assert sorted(lease.task for lease in got) == sorted([a, b])
        assert await watch.claim_many(1, agent="flow", tasks=[a, b]) == []
        (left,) = await watch.claim_many(9, agent="bob")
        assert left.task == other
        for lease in got:
            await lease.complete()
        await watch.engine.sweeper.sweep()
        (follower,) = await watch.claim_many(1, agent="flow", tasks=[waits], lease="1m")
        assert (follower.task, follower.length) == (waits, 60_000)

    play(scene)


def test_roles_bars_and_parked_services_hold_for_named_claims_too() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        barred = await watch.submit("judge", barred=["bob"])
        parked = await watch.submit("call", services=["api"])
        role = await watch.submit("code", role="builder")
        await watch.engine.do(Park(watch.new_command(), "api", 60_000))
        assert await watch.claim_many(1, agent="bob", tasks=[barred, parked]) == []
        assert await watch.claim_many(1, agent="bob", tasks=[role], roles=["auditor"]) == []
        assert len(await watch.claim_many(1, agent="ann", tasks=[barred, parked, role])) == 2

    play(scene)


def test_of_two_who_name_the_same_task_one_gets_it() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        async with stage.another(seed=2) as second:
            got = await asyncio.gather(
                *(watch.claim_many(1, agent="x", tasks=[task]) for watch in (stage.watch, second) for _ in range(5))
            )
            (lease,) = [lease for leases in got for lease in leases]
        assert lease.token == 1

    play(scene)


def test_a_stale_holder_stays_fenced_off() -> None:
    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a", timeout="1m")
        (old,) = await stage.watch.claim_many(1, agent="x", tasks=[task])
        await asyncio.sleep(61)
        (new,) = await stage.watch.claim_many(1, agent="x", tasks=[task])
        with pytest.raises(LeaseLost):
            await old.complete("late")
        await new.complete("now")
        assert await stage.watch.result(task) == "now"

    play(scene)


def test_too_many_names_are_refused() -> None:
    async def scene(stage: Stage) -> None:
        with pytest.raises(Refused, match="names at most"):
            await stage.watch.claim_many(1, agent="x", tasks=[f"t_{number}" for number in range(10_001)])

    play(scene)


def test_sqlite_gives_what_is_named(tmp_path: Path) -> None:
    asyncio.run(_on_a_real_store(f"sqlite:///{tmp_path}/a.db"))


def test_postgres_gives_what_is_named(pg_url: str) -> None:
    asyncio.run(_on_a_real_store(pg_url))


async def _on_a_real_store(url: str) -> None:
    async with make_watch(store_for(url)) as watch:
        tasks = await watch.submit_many([{"name": str(number), "payload": number} for number in range(100)])
        got = await watch.claim_many(1, agent="x", tasks=tasks[10:60])
        assert sorted(lease.payload for lease in got) == list(range(10, 60))
        assert await watch.complete_many([(lease, None) for lease in got]) == [None] * 50
        assert len(await watch.claim_many(100, agent="y")) == 50
