"""The journal: nothing is lost by a follower, whatever the order in which transactions commit."""

from __future__ import annotations

import asyncio
import threading

import psycopg

from allswell.domain.rules.event import Entry, Position
from allswell.store.port import RowChanges, Transaction
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import SQL
from tests.store.postgres.scene import opened, put, run, told


def kinds(entries: list[Entry]) -> list[str]:
    return [entry.event.kind for entry in entries]


async def shown(store: PostgresStore, after: Position, count: int) -> list[Entry]:
    """The journal once it has so many entries: it hangs back while any older transaction of the server runs."""
    for _ in range(5_000):
        entries = await store.journal(after, 1_000)
        if len(entries) >= count:
            return entries
    raise AssertionError(f"the journal never showed {count} events")


def test_a_follower_does_not_lose_the_events_of_a_transaction_that_commits_late(pg_url: str) -> None:
    """Reading `id > last` loses them: the late one's ids are smaller than what was read already."""
    written, go_on = threading.Event(), threading.Event()

    async def late(tx: Transaction) -> None:
        await tx.write(RowChanges(events=told("late_1", "late_2")))
        await tx.now()  # which sends it
        written.set()
        go_on.wait(20)

    async def main() -> None:
        async with opened(pg_url) as slow, opened(pg_url) as quick:
            await put(quick, RowChanges(events=told("first")))
            first = await shown(quick, Position(), 1)
            committing = asyncio.create_task(slow.transact(late))
            await asyncio.to_thread(written.wait)
            await put(quick, RowChanges(events=told("quick")))
            # The quick one is committed, yet not shown: what is under way will stand before it.
            assert await quick.journal(first[-1].position, 10) == []
            go_on.set()
            await committing
            assert kinds(await shown(quick, first[-1].position, 3)) == ["late_1", "late_2", "quick"]

    asyncio.run(main())


def test_the_journal_is_read_in_pages_without_gaps(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        for number in range(7):
            await put(store, RowChanges(events=told(*(f"e{number}_{part}" for part in range(5)))))
        whole = await shown(store, Position(), 35)
        assert kinds(whole) == [f"e{number}_{part}" for number in range(7) for part in range(5)]
        pages: list[Entry] = []
        while page := await store.journal(pages[-1].position if pages else Position(), 4):
            pages += page
        assert pages == whole

    run(pg_url, test)


def test_a_cursor_never_goes_back(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        assert await store.cursor("page") == Position()
        await store.advance("page", Position(5, 2))
        await store.advance("page", Position(4, 9))
        await store.advance("page", Position(5, 1))
        assert await store.cursor("page") == Position(5, 2)
        await store.advance("page", Position(2**40, 1))
        assert await store.cursor("page") == Position(2**40, 1)
        assert await store.cursor("other") == Position()

    run(pg_url, test)


def test_a_page_of_the_journal_is_served_by_its_index(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        with psycopg.connect(pg_url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
            connection.execute(
                "INSERT INTO allswell.journal (at, events) SELECT n, '[]' FROM generate_series(1, 5000) AS n"
            )
            connection.execute("ANALYZE allswell.journal")
            rows = connection.execute(f"EXPLAIN {SQL['journal']}", ("1", 0, 10, 3_000)).fetchall()
        plan = "\n".join(row[0] for row in rows)
        assert "journal_pkey" in plan
        assert "Sort" not in plan

    run(pg_url, test)
