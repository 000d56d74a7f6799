"""LISTEN and NOTIFY: off the write path, and a listener that died, loudly or silently, is replaced."""

from __future__ import annotations

import asyncio
import os
import time
from signal import SIGCONT, SIGSTOP
from unittest.mock import patch

import psycopg
import pytest

from allswell.domain.ids import TaskId
from allswell.store.port import LOOK_AGAIN, RowChanges, Transaction, Wakeup, decode
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import SQL
from tests.store.hearing import heard_by, until
from tests.store.postgres.scene import AT, opened, put_tasks, run, task

_LISTENERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')
"""


def listeners(url: str) -> list[int]:
    """The server's processes behind listening connections."""
    with psycopg.connect(url, autocommit=True) as connection:
        return [pid for (pid,) in connection.execute(_LISTENERS).fetchall()]


def test_a_unit_of_work_never_notifies(pg_url: str) -> None:
    """A notifying commit takes a lock of the whole cluster: what is written is told by another transaction."""

    async def test(store: PostgresStore) -> None:
        calls = await heard_by(store)
        with psycopg.connect(pg_url, autocommit=True) as other:
            other.execute("LISTEN allswell")
            await put_tasks(store, ["t_a"], ready=1)
            assert [*other.notifies(timeout=0.05)] == [], "the store itself tells nothing"
            store.announce(Wakeup(ready=True))
            (told,) = other.notifies(timeout=20, stop_after=1)
            assert told.payload == "[true,false,false,null]"
        assert calls == [], "and nobody hears itself"

    run(pg_url, test)


def test_calls_that_pile_up_are_one_notification(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        with psycopg.connect(pg_url, autocommit=True) as other:
            other.execute("LISTEN allswell")
            for _ in range(10_000):
                store.announce(Wakeup(ready=True))
            store.announce(Wakeup(spreads=True))
            told: list[str] = []
            while not told or not decode(told[-1].encode()).spreads:
                told += [note.payload for note in other.notifies(timeout=20, stop_after=1)]
            assert len(told) < 200

    run(pg_url, test)


def test_a_listener_whose_session_was_ended_is_replaced(pg_url: str) -> None:
    async def main() -> None:
        async with opened(pg_url) as store, opened(pg_url) as other:
            calls = await heard_by(store)
            (listener,) = listeners(pg_url)
            with psycopg.connect(pg_url, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s)", (listener,))
            await until(lambda: LOOK_AGAIN in calls)
            calls.clear()
            other.announce(Wakeup(ready=True))
            await until(lambda: calls == [Wakeup(ready=True)])

    asyncio.run(main())


@pytest.mark.realtime
def test_a_listener_that_died_in_silence_is_found_by_a_round_trip(pg_url: str) -> None:
    """Its peer is stopped: packets are acknowledged, nothing is ever said again, and no error comes."""

    async def main() -> None:
        async with opened(pg_url, listen_check=0.3, listen_timeout=0.5) as store, opened(pg_url) as other:
            calls = await heard_by(store)
            (listener,) = listeners(pg_url)
            os.kill(listener, SIGSTOP)
            try:
                await until(lambda: LOOK_AGAIN in calls)
                calls.clear()
                other.announce(Wakeup(ready=True))
                await until(lambda: calls == [Wakeup(ready=True)])
            finally:
                os.kill(listener, SIGCONT)

    asyncio.run(main())


def test_a_quiet_listener_keeps_its_connection(pg_url: str) -> None:
    """Round trips that succeed replace nothing and wake nobody, neither here nor elsewhere."""

    async def main() -> None:
        async with opened(pg_url, listen_check=0.02) as store, opened(pg_url, listen_check=0.02) as other:
            calls, others = await heard_by(store), await heard_by(other)
            before = set(listeners(pg_url))
            for _ in range(50):
                await store.view_agenda()
                await asyncio.sleep(0.005)
            assert set(listeners(pg_url)) == before
            assert calls == others == []

    asyncio.run(main())


def test_a_store_that_only_tells_does_not_listen(pg_url: str) -> None:
    async def main() -> None:
        async with opened(pg_url) as store, opened(pg_url) as other:
            calls = await heard_by(other)
            store.announce(Wakeup(ready=True))
            await until(lambda: calls == [Wakeup(ready=True)])
            assert store._herald._carrier.fileno() is None

    asyncio.run(main())


def test_what_is_told_last_is_still_told_when_the_store_closes(pg_url: str) -> None:
    """A short process submits and ends; the fleet hears of it all the same."""

    async def main() -> None:
        async with opened(pg_url) as other:
            calls = await heard_by(other)
            async with opened(pg_url) as store:
                store.announce(Wakeup(ready=True))
            await until(lambda: calls == [Wakeup(ready=True)])

    asyncio.run(main())


async def told(store: PostgresStore, id_: str, call: Wakeup) -> None:
    """Commit a task and have others told of it."""

    async def work(tx: Transaction) -> None:
        await tx.write(RowChanges(new_tasks=[(task(id_), "null")], at=AT))
        tx.call = call

    await store.transact(work)


def test_an_urgent_call_is_sent_along_with_the_commit(pg_url: str) -> None:
    """On the same connection, behind the commit: who hears it finds what it is about, and no thread was woken."""

    async def main() -> None:
        async with opened(pg_url) as store, opened(pg_url) as other:
            heard = await heard_by(other)
            await told(store, "t_a", Wakeup(ready=True))
            assert store._herald._thread is None
            await until(lambda: heard == [Wakeup(ready=True)])
            assert await other.view_task(TaskId("t_a")) is not None

    asyncio.run(main())


def test_a_call_that_is_sent_along_is_not_heard_by_its_own_process(pg_url: str) -> None:
    async def main() -> None:
        async with opened(pg_url) as store, opened(pg_url) as other:
            calls, heard = await heard_by(store), await heard_by(other)
            await told(store, "t_a", Wakeup(ready=True))
            await until(lambda: heard == [Wakeup(ready=True)])
            await told(other, "t_b", Wakeup(ready=True))
            await until(lambda: bool(calls))
            assert calls == [Wakeup(ready=True)], "the other's, and not its own before it"

    asyncio.run(main())


def test_commits_in_a_row_send_few_calls_and_the_last_one_is_told(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        with psycopg.connect(pg_url, autocommit=True) as other:
            other.execute("LISTEN allswell")
            before = time.monotonic()
            for number in range(50):
                await told(store, f"t_{number:02d}", Wakeup(ready=True))
            await told(store, "t_last", Wakeup(ready=True, spreads=True))
            notes: list[str] = []
            while not notes or not decode(notes[-1].encode()).spreads:
                notes += [note.payload for note in other.notifies(timeout=20, stop_after=1)]
            assert len(notes) <= 2 + (time.monotonic() - before) / 0.005

    run(pg_url, test)


def test_a_call_that_cannot_be_sent_along_harms_neither_its_commit_nor_the_next(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        with patch.dict(SQL, {"notify": "SELECT $1::text, $2::text, 1 / 0"}):
            await told(store, "t_a", Wakeup(ready=True))
        (desk,) = store._desks.values()
        line = desk._line
        await put_tasks(store, ["t_b"])
        assert desk._line is line, "the connection is still good"
        assert await store.view_task(TaskId("t_a")) is not None

    run(pg_url, test)


def test_what_is_rolled_back_is_told_to_nobody(pg_url: str) -> None:
    async def work(tx: Transaction) -> None:
        await tx.write(RowChanges(new_tasks=[(task("t_a"), "null")], at=AT))
        tx.call = Wakeup(ready=True)
        raise ZeroDivisionError

    async def main() -> None:
        async with opened(pg_url) as store, opened(pg_url) as other:
            heard = await heard_by(other)
            with pytest.raises(ZeroDivisionError):
                await store.transact(work)
            store.announce(Wakeup(spreads=True))
            await until(lambda: bool(heard))
            assert heard == [Wakeup(spreads=True)]

    asyncio.run(main())
