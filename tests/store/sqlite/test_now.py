"""`now` never goes back: not in one process, not between two, not across a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from allswell.domain.names import Millis
from allswell.store.port import Changes, Transaction
from allswell.store.sqlite import SqliteStore
from allswell.testing.conformance.rows import lease
from tests.store.sqlite.scene import HandClock, opened, plain, put

AT = 1_800_000_000_000


async def now(store: SqliteStore) -> Millis:
    async def work(tx: Transaction) -> Millis:
        return await tx.now()

    return await store.transact(work)


def test_a_clock_set_back_stands_still(tmp_path: Path) -> None:
    async def main() -> None:
        clock = HandClock(AT)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            assert await now(store) == AT
            clock.at -= 60_000
            assert await now(store) == AT
            assert (await store.view_agenda()).now == AT
            clock.at = AT + 5
            assert (await store.view_agenda()).now == AT + 5
            clock.at = AT
            assert await now(store) == AT + 5, "what a view was told counts too"

    asyncio.run(main())


def test_across_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db", clock=HandClock(AT)) as store:
            await put(store, plain(["t_1"]))
        async with opened(tmp_path / "x.db", clock=HandClock(AT - 3_600_000)) as store:
            assert await now(store) == AT

    asyncio.run(main())


def test_a_beat_counts_across_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        clock = HandClock(AT)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            await put(store, Changes(new_leases=[lease("t_1")]))
            clock.at += 1_000
            await put(store, Changes(leases=[replace(lease("t_1"), renewed_at=Millis(AT + 1_000))]), durable=False)
        async with opened(tmp_path / "x.db", clock=HandClock(AT)) as store:
            assert (await store.view_agenda()).now == AT + 1_000

    asyncio.run(main())


def test_between_two_stores_of_one_file(tmp_path: Path) -> None:
    async def main() -> None:
        ahead, behind = HandClock(AT + 10), HandClock(AT)
        async with opened(tmp_path / "x.db", clock=behind) as one, opened(tmp_path / "x.db", clock=ahead) as other:
            assert await now(one) == AT
            await put(other, plain(["t_1"]))
            assert await now(one) == AT + 10

    asyncio.run(main())
