"""Steps that a thread records itself, by a connection of its own for one at a time."""

from __future__ import annotations

import asyncio

from allswell.store.postgres import PostgresStore
from tests.store.postgres.scene import await_waiter, client, run
from tests.support.conformance.shortening import held_flow, recorded_step


def test_who_has_no_time_waits_for_nobody_and_the_others_take_turns(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        assert store.record_here(held, recorded_step("t_1"), 10.0)
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.lease FOR UPDATE")
            held_up = asyncio.create_task(asyncio.to_thread(store.record_here, held, recorded_step("t_2"), 10.0))
            await asyncio.to_thread(await_waiter, pg_url, 1)
            assert not store.record_here(held, recorded_step("t_3"), 0.0), "the connection is busy: go the long way"
            assert not held_up.done()
            other.commit()
        assert await held_up
        assert store.record_here(held, recorded_step("t_4"), 10.0)
        assert (await store.view_counts())["done"] == 3

    run(pg_url, test)


def test_a_broken_connection_is_made_anew(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        assert store.record_here(held, recorded_step("t_1"), 10.0)
        line = store._recorder._line
        assert line is not None
        line.cut()
        assert store.record_here(held, recorded_step("t_2"), 10.0)
        assert (await store.view_counts())["done"] == 2

    run(pg_url, test)
