"""`now` does not go back: not in one process, not between two, not across a restart; far behind, it is not told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.lease.clock_change import TOLERATED
from allswell.store.clock import SetBack
from allswell.store.port import RowChanges, Transaction
from allswell.store.sqlite import SqliteStore
from tests.store.sqlite.scene import HandClock, opened, plain, put
from tests.support.conformance.rows import lease

AT = 1_800_000_000_000


async def now(store: SqliteStore) -> Millis:
    async def work(tx: Transaction) -> Millis:
        return await tx.now()

    return await store.transact(work)


def test_a_clock_that_is_a_little_behind_stands_still(tmp_path: Path) -> None:
    async def main() -> None:
        clock = HandClock(AT)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            assert await now(store) == AT
            clock.at -= TOLERATED
            assert await now(store) == AT
            assert (await store.view_agenda()).now == AT
            clock.at = AT + 5
            assert (await store.view_agenda()).now == AT + 5
            clock.at = AT
            assert await now(store) == AT + 5, "what a view was told counts too"

    asyncio.run(main())


def test_a_clock_that_was_set_back_is_not_told(tmp_path: Path) -> None:
    """Neither to who was there before nor to who comes after; a view is told how it stands."""

    async def main() -> None:
        clock = HandClock(AT)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            await put(store, plain(["t_1"]))
            clock.at -= 3_600_000
            with pytest.raises(SetBack):
                await now(store)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            with pytest.raises(SetBack):
                await now(store)
            agenda = await store.view_agenda()
            assert (agenda.now, agenda.stands) == (AT, 3_600_000)

    asyncio.run(main())


def test_across_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db", clock=HandClock(AT)) as store:
            await put(store, plain(["t_1"]))
        async with opened(tmp_path / "x.db", clock=HandClock(AT - 3_000)) as store:
            assert await now(store) == AT

    asyncio.run(main())


def test_a_beat_counts_across_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        clock = HandClock(AT)
        async with opened(tmp_path / "x.db", clock=clock) as store:
            await put(store, RowChanges(new_leases=[lease("t_1")]))
            clock.at += 1_000
            await put(store, RowChanges(leases=[replace(lease("t_1"), renewed_at=Millis(AT + 1_000))]), durable=False)
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
