"""Locks between processes: order, freshness of what is read after a wait, and bounds on every wait."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from msgspec.structs import replace

from allswell.domain.ids import Millis, TaskId
from allswell.errors import Bug, Unavailable
from allswell.store.port import LockKind, RowChanges, RowConflict, RowRequest, Rows, Transaction
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.transaction import ServerClock
from tests.store.postgres.scene import await_waiter, client, lease, names, opened, put, put_tasks, run, task

A = TaskId("t_a")


def test_what_is_read_after_a_wait_for_the_lock_is_fresh(pg_url: str) -> None:
    """A join in the locking statement returns the old lease after the wait: a zombie would be accepted."""

    async def read(tx: Transaction) -> Rows:
        await tx.lock(LockKind.TASK, [A])
        return await tx.read(RowRequest(tasks=[A], leases=[A]))

    def joined(answer: list[int]) -> None:
        with client(pg_url) as naive:
            row = naive.execute(
                "SELECT l.token FROM allswell.task t JOIN allswell.lease l ON l.task = t.id "
                "WHERE t.id = 't_a' FOR UPDATE OF t"
            ).fetchone()
            assert row is not None
            answer.append(row[0])

    async def test(store: PostgresStore) -> None:
        await put(store, RowChanges(new_tasks=[(task(A), "null")], new_leases=[lease(A, 1)]))
        stale: list[int] = []
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task WHERE id = 't_a' FOR UPDATE")
            other.execute("UPDATE allswell.lease SET token = 2")
            naive = threading.Thread(target=joined, args=(stale,))
            naive.start()
            reading = asyncio.create_task(store.transact(read))
            await asyncio.to_thread(await_waiter, pg_url, 2)
            other.commit()
        assert (await reading).leases[A].token == 2
        await asyncio.to_thread(naive.join)
        assert stale == [1], "the server's rule changed: a join is fresh now"

    run(pg_url, test)


def test_200_batches_on_the_same_rows_in_any_order_never_deadlock(pg_url: str) -> None:
    ids = names(40)
    draw = random.Random(7)

    async def batch(store: PostgresStore, some: list[TaskId]) -> None:
        async def work(tx: Transaction) -> None:
            assert await tx.lock(LockKind.TASK, some) == sorted(some)
            rows = await tx.read(RowRequest(tasks=some))
            more = [
                replace(row, record=replace(row.record, timeouts=row.record.timeouts + 1))
                for row in rows.tasks.values()
            ]
            await tx.write(RowChanges(tasks=[(row, None) for row in more]))

        await store.transact(work)

    async def main() -> None:
        async with opened(pg_url) as one, opened(pg_url) as two, opened(pg_url) as three:
            await put_tasks(one, ids)
            batches = [draw.sample(ids, 20) for _ in range(200)]
            stores = [(one, two, three)[number % 3] for number in range(200)]
            await asyncio.gather(*map(batch, stores, batches))

            async def counts(tx: Transaction) -> list[int]:
                await tx.lock(LockKind.TASK, ids)
                rows = await tx.read(RowRequest(tasks=ids))
                return [rows.tasks[id_].record.timeouts for id_ in ids]

            assert await one.transact(counts) == [sum(id_ in some for some in batches) for id_ in ids]

    asyncio.run(main())


def test_now_is_fresh_after_a_wait_for_a_lock(pg_url: str) -> None:
    async def wait(tx: Transaction) -> Millis:
        await tx.now()
        await tx.lock(LockKind.TASK, [A])
        return await tx.now()

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, [A])
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task FOR UPDATE")
            waiting = asyncio.create_task(store.transact(wait))
            await asyncio.to_thread(await_waiter, pg_url)
            row = other.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
            other.commit()
        assert row is not None
        assert await waiting >= row[0]

    run(pg_url, test)


def test_now_never_goes_back_when_the_servers_clock_does() -> None:
    clock = ServerClock()
    assert [clock.see(moment) for moment in (5, 9, 3, 10)] == [5, 9, 9, 10]


def test_skip_takes_only_what_is_free(pg_url: str) -> None:
    async def take(tx: Transaction) -> list[str]:
        return list(await tx.lock(LockKind.TASK, ["t_c", "t_gone", "t_b", "t_a"], skip=True))

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, ["t_a", "t_b", "t_c"])
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task WHERE id = 't_b' FOR UPDATE")
            assert await store.transact(take) == ["t_a", "t_c"]

    run(pg_url, test)


def test_shared_locks_do_not_wait_for_each_other_and_keep_writers_out(pg_url: str) -> None:
    async def share(tx: Transaction) -> list[str]:
        return list(await tx.lock(LockKind.TASK, [A], shared=True))

    async def own(tx: Transaction) -> list[str]:
        return list(await tx.lock(LockKind.TASK, [A]))

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, [A])
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task FOR SHARE")
            assert await store.transact(share) == [A]
            owning = asyncio.create_task(store.transact(own))
            await asyncio.to_thread(await_waiter, pg_url)
            other.commit()
            assert await owning == [A]

    run(pg_url, test)


@pytest.mark.realtime
def test_a_row_held_for_too_long_is_told_and_the_store_works_on(pg_url: str) -> None:
    async def own(tx: Transaction) -> list[str]:
        return list(await tx.lock(LockKind.TASK, [A]))

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, [A])
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task FOR UPDATE")
            with pytest.raises(Unavailable, match="lock_timeout"):
                await store.transact(own)
        assert await store.transact(own) == [A]

    run(pg_url, test, lock_timeout=0.2)


@pytest.mark.realtime
def test_a_process_that_stops_inside_a_transaction_does_not_keep_its_locks(pg_url: str) -> None:
    gone_on = threading.Event()

    async def stop(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, [A])
        gone_on.wait(20)  # as if stopped by SIGSTOP
        await tx.write(RowChanges(tasks=[(task(A), '"too late"')]))

    async def own(tx: Transaction) -> list[str]:
        return list(await tx.lock(LockKind.TASK, [A]))

    async def main() -> None:
        async with opened(pg_url, idle_timeout=0.3) as first, opened(pg_url) as second:
            await put_tasks(first, [A])
            stopped = asyncio.create_task(first.transact(stop))
            await asyncio.sleep(0.1)
            assert await second.transact(own) == [A]
            gone_on.set()
            with pytest.raises(Unavailable):
                await stopped
            assert await first.transact(own) == [A]

    asyncio.run(main())


def test_a_write_with_an_old_token_is_a_bug_and_changes_nothing(pg_url: str) -> None:
    async def stale(tx: Transaction) -> None:
        await tx.lock(LockKind.LEASE, [A])
        await tx.write(RowChanges(leases=[lease(A, 1)], events=[]))

    async def dropped(tx: Transaction) -> None:
        await tx.write(RowChanges(drop_leases=[(A, lease(A, 1).token)]))

    async def test(store: PostgresStore) -> None:
        await put(store, RowChanges(new_tasks=[(task(A), "null")], new_leases=[lease(A, 2)]))
        for work in (stale, dropped):
            with pytest.raises(Bug, match="0 of 1"):
                await store.transact(work)
        row = await store.view_task(A)
        assert row is not None
        assert row.lease == lease(A, 2)

    run(pg_url, test)


def test_the_second_of_two_that_make_the_same_task_is_told(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        await put_tasks(store, [A])
        with pytest.raises(RowConflict):
            await put_tasks(store, ["t_b", A])
        assert await store.view_task(TaskId("t_b")) is None
        with pytest.raises(Bug):
            await put(store, RowChanges(new_leases=[lease(A), lease(A)]))

    run(pg_url, test)


def test_a_guess_counts_the_time_in_which_the_machine_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock stands while it sleeps, the server's does not: a delay of an hour would be over at once."""
    awake = {time.CLOCK_BOOTTIME: 100.0, time.CLOCK_MONOTONIC: 100.0}
    monkeypatch.setattr("time.clock_gettime", lambda clock: awake[clock])
    monkeypatch.setattr("time.monotonic", lambda: awake[time.CLOCK_MONOTONIC])
    clock = ServerClock()
    fresh = [clock.fresh]
    clock.see(1_000_000)
    fresh.append(clock.fresh)
    awake[time.CLOCK_BOOTTIME] += 8 * 3_600
    fresh.append(clock.fresh)
    assert fresh == [False, True, False]
    assert clock.guess() == 1_000_000 + 8 * 3_600_000
