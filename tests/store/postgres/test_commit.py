"""A commit whose answer was lost is settled both ways; nothing commits behind the back of a caller who gave up."""

from __future__ import annotations

import asyncio
import threading
from typing import Literal

import psycopg
import pytest

from allswell.domain.ids import TaskId
from allswell.errors import Bug, Unavailable
from allswell.store.port import CommitUnknown, Lock, LockKind, RowChanges, RowRequest, Transaction
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import CommitGuard
from allswell.testing.postgres import Cluster
from tests.store.postgres.scene import lease, opened, put_tasks, run, task, wire

A, B = TaskId("t_a"), TaskId("t_b")


@pytest.mark.parametrize("fate, committed", [("pass and cut", True), ("swallow and cut", False)])
@pytest.mark.parametrize("durable", [True, False])
def test_a_lost_answer_to_a_commit_is_settled(
    pg_url: str, fate: Literal["pass and cut", "swallow and cut"], committed: bool, durable: bool
) -> None:
    with wire(pg_url) as line:

        async def work(tx: Transaction) -> None:
            await tx.lock_and_read([Lock(LockKind.TASK, [A])], RowRequest())
            await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
            line.next = fate  # the next thing the client says is what it writes and its commit

        async def test(store: PostgresStore) -> None:
            with pytest.raises(CommitUnknown) as unknown:
                await store.transact(work, durable=durable)
            await put_tasks(store, [B])  # the store works on, and what it does now does not blur the answer
            assert await store.outcome(unknown.value.ticket) is committed
            assert (await store.view_task(A) is not None) is committed

        run(line.url, test)


@pytest.mark.realtime
def test_a_commit_that_is_never_answered_is_given_up_and_settled(pg_url: str) -> None:
    with wire(pg_url) as line:

        async def work(tx: Transaction) -> None:
            await tx.lock_and_read([Lock(LockKind.TASK, [A])], RowRequest())
            await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
            line.next = "swallow"

        async def test(store: PostgresStore) -> None:
            await put_tasks(store, [B])
            with pytest.raises(CommitUnknown) as unknown:
                await store.transact(work)
            assert await store.outcome(unknown.value.ticket) is False
            assert await store.view_task(A) is None
            await put_tasks(store, [A])

        run(line.url, test, transact_timeout=0.5)


@pytest.mark.realtime
def test_work_that_is_given_up_before_its_commit_never_commits(pg_url: str) -> None:
    go_on, over = threading.Event(), threading.Event()

    async def work(tx: Transaction) -> None:
        await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
        go_on.wait(20)
        over.set()

    async def test(store: PostgresStore) -> None:
        with pytest.raises(Unavailable, match="transact_timeout"):
            await store.transact(work)
        await put_tasks(store, [B])  # on a new desk
        go_on.set()
        await asyncio.to_thread(over.wait)
        await put_tasks(store, [A])  # would be a Conflict, had it been committed

    run(pg_url, test, transact_timeout=0.5)


def test_a_cancelled_caller_s_work_does_not_commit(pg_url: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def work(tx: Transaction) -> None:
        await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
        begun.set()
        go_on.wait(20)

    async def test(store: PostgresStore) -> None:
        working = asyncio.create_task(store.transact(work))
        await asyncio.to_thread(begun.wait)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        go_on.set()
        await put_tasks(store, [B])
        assert await store.view_task(A) is None

    run(pg_url, test)


def test_a_session_ended_by_the_server_before_its_commit(pg_url: str) -> None:
    def end_sessions() -> None:
        with psycopg.connect(pg_url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    async def before_the_write(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, [B])
        end_sessions()
        await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
        await tx.now()

    async def before_the_commit(tx: Transaction) -> None:
        await tx.lock_and_read([Lock(LockKind.TASK, [B])], RowRequest())
        await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
        end_sessions()

    async def nothing_to_commit(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, [B])
        end_sessions()

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, [B])
        with pytest.raises(Unavailable):
            await store.transact(before_the_write)
        with pytest.raises(CommitUnknown) as unknown:
            await store.transact(before_the_commit)
        assert await store.outcome(unknown.value.ticket) is False
        with pytest.raises(Unavailable):
            await store.transact(nothing_to_commit)
        assert await store.view_task(A) is None

    run(pg_url, test)


def test_a_number_that_a_crashed_server_hands_out_again_proves_nothing() -> None:
    """After the crash another transaction gets our xid and commits: `pg_xact_status` then says `committed`."""
    with Cluster() as cluster:
        url = cluster.create_database()

        async def work(tx: Transaction) -> None:
            await tx.lock_and_read([Lock(LockKind.TASK, [A])], RowRequest())
            await tx.write(RowChanges(new_tasks=[(task(A), "null")], new_leases=[lease(A)]))
            cluster.kill()

        async def main() -> None:
            async with opened(url) as store:
                await put_tasks(store, [B])
                with pytest.raises(CommitUnknown) as unknown:
                    await store.transact(work)
                cluster.start()
                ours = int(unknown.value.ticket.split()[0])
                with psycopg.connect(url, autocommit=True) as other:
                    row = other.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
                    while row is not None and row[0] <= ours:
                        row = other.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
                assert await store.outcome(unknown.value.ticket) is False
                assert await store.view_task(A) is None

        asyncio.run(main())


def test_the_guard_lets_no_commit_begin_after_it_was_given_up() -> None:
    guard = CommitGuard()
    assert guard.give_up() is None
    for forbidden in (guard.check, lambda: guard.enter_commit("7")):
        with pytest.raises(Unavailable):
            forbidden()
    late = CommitGuard()
    late.enter_commit("7")
    assert late.give_up() == "7"


def test_a_failed_statement_that_the_work_overlooks_is_not_committed(pg_url: str) -> None:
    async def careless(tx: Transaction) -> None:
        await tx.write(RowChanges(new_tasks=[(task(A), "null")]))
        await tx.write(RowChanges(new_leases=[lease(A), lease(A)]))
        with pytest.raises(Bug, match="twice"):
            await tx.now()

    async def test(store: PostgresStore) -> None:
        with pytest.raises(Bug):
            await store.transact(careless)
        assert await store.view_task(A) is None

    run(pg_url, test)
