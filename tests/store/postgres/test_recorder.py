"""Steps that a loop records itself: it sends the statement, and is not kept by an answer that does not come at once."""

from __future__ import annotations

import asyncio
import threading

from allswell.store.postgres import PostgresStore
from allswell.testing.conformance.shortening import held_flow, recorded_step
from tests.store.postgres.scene import await_waiter, client, run


def test_a_loop_turns_while_the_answer_takes_its_time(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        assert await store.record(held, recorded_step("t_1"))
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.lease FOR UPDATE")
            recording = asyncio.create_task(store.record(held, recorded_step("t_2")))
            await asyncio.to_thread(await_waiter, pg_url, 1)
            assert not recording.done()
            assert not await store.record(held, recorded_step("t_3")), "the connection is busy: go the long way"
            other.commit()
        assert await recording
        assert await store.record(held, recorded_step("t_4"))
        assert (await store.view_counts())["done"] == 3

    run(pg_url, test)


def test_one_who_leaves_while_the_answer_takes_its_time_keeps_nobody_out(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        assert await store.record(held, recorded_step("t_1"))
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.lease FOR UPDATE")
            recording = asyncio.create_task(store.record(held, recorded_step("t_2")))
            await asyncio.to_thread(await_waiter, pg_url, 1)
            recording.cancel()
            await asyncio.wait((recording,))
            assert recording.cancelled()
            other.commit()
        assert await asyncio.to_thread(store.record_here, held, recorded_step("t_3"), 10.0), "once it is answered"
        assert await store.record(held, recorded_step("t_4"))
        assert (await store.view_counts())["done"] == 4, "what was sent was recorded"

    run(pg_url, test)


def test_a_broken_connection_is_made_anew_by_a_thread(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        assert await store.record(held, recorded_step("t_1"))
        line = store._recorder._line
        assert line is not None
        line.cut()
        made: list[int] = []
        connect = store._recorder._connect

        def noting() -> object:
            made.append(threading.get_ident())
            return connect()

        store._recorder._connect = noting  # type: ignore[assignment]
        assert await store.record(held, recorded_step("t_2"))
        assert made
        assert made != [threading.get_ident()], "a loop makes no connections"

    run(pg_url, test)
