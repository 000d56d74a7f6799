"""Steps that a loop records itself: it sends the statement, and is not kept by an answer that does not come at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from allswell.domain.lease import Lease
from allswell.store.postgres import PostgresStore
from allswell.testing.conformance.shortening import held_flow, recorded_step
from tests.store.postgres.scene import await_waiter, client, run


@asynccontextmanager
async def held_up(store: PostgresStore, held: Lease, url: str) -> AsyncIterator[asyncio.Task[bool]]:
    """One step is recorded; the next is, and waits for a lock until this is over."""
    assert await store.record(held, recorded_step("t_1"))
    with client(url) as other:
        other.execute("SELECT FROM allswell.lease FOR UPDATE")
        recording = asyncio.create_task(store.record(held, recorded_step("t_2")))
        await asyncio.to_thread(await_waiter, url, 1)
        yield recording
        other.commit()


def test_a_loop_turns_while_the_answer_takes_its_time(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        async with held_up(store, held, pg_url) as recording:
            assert not recording.done()
            assert not await store.record(held, recorded_step("t_3")), "the connection is busy: go the long way"
        assert await recording
        assert await store.record(held, recorded_step("t_4"))
        assert (await store.view_counts())["done"] == 3

    run(pg_url, test)


def test_one_who_leaves_while_the_answer_takes_its_time_keeps_nobody_out(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        held = await held_flow(store)
        async with held_up(store, held, pg_url) as recording:
            recording.cancel()
            await asyncio.wait((recording,))
            assert recording.cancelled()
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
