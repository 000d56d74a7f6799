"""Steps that are recorded the short way: who has no time waits for nobody, and the WAL stays small."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.lease.model import LeaseRow
from allswell.store.port import Decide, Recorded
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.writer import Turnstile
from tests.store.sqlite.scene import run
from tests.support.conformance.shortening import held_flow, recorded_step

MIB = 1 << 20


def test_who_has_no_time_waits_for_no_turn_and_no_lock(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        held = await held_flow(store)
        assert store.record_here(held, recorded_step("t_1"), 10.0)
        other = Turnstile(store.path, 1_000)
        other.open()
        other.enter()
        assert not store.record_here(held, recorded_step("t_2"), 0.0), "somebody else has the turn"
        other.leave()
        other.close()
        outside = sqlite3.connect(store.path, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(Exception, match="locked"):
            store.record_here(held, recorded_step("t_3"), 0.0)
        outside.execute("ROLLBACK")
        outside.close()
        assert store.record_here(held, recorded_step("t_4"), 0.0)
        assert (await store.view_counts())["done"] == 2

    run(tmp_path / "x.db", test)


def test_the_wal_of_many_steps_stays_small(tmp_path: Path) -> None:
    """Their connection makes no checkpoints; without those of the writer this is a WAL of 25 MiB."""

    def large(id_: str) -> Decide:
        step = recorded_step(id_)

        def decide(lease: LeaseRow, now: Millis) -> Recorded | None:
            decided = step(lease, now)
            return decided and replace(decided, made=replace(decided.made, result="x" * 200_000))

        return decide

    async def test(store: SqliteStore) -> None:
        held = await held_flow(store)
        for number in range(120):
            while not store.record_here(held, large(f"t_{number}"), 10.0):
                await store.view_counts()  # the writer has its turn
        wal = await asyncio.to_thread(store.path.with_name("x.db-wal").stat)
        assert wal.st_size < 10 * MIB

    run(tmp_path / "x.db", test)
