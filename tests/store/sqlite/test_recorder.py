"""Steps that a loop records itself: only while the disk is quick and nobody is in the way, and the WAL stays small."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.domain.lease import Lease
from allswell.domain.names import Millis
from allswell.store.shortcut import Decide, Recorded
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.turnstile import Turnstile
from allswell.store.thread import AT_ONCE
from allswell.testing.conformance.shortening import held_flow, recorded_step
from tests.store.sqlite.scene import run

QUICK = 0.0001
MIB = 1 << 20


class Disk:
    """A connection of the recorder on whose commits time passes as it is told; it notes who made them."""

    def __init__(self, store: SqliteStore) -> None:
        real = store._recorder._connection
        assert real is not None, "nothing was recorded yet"
        self._real = real
        self.takes = QUICK
        self.now = 0.0
        self.by: list[int] = []
        store._recorder._connection = self  # type: ignore[assignment]
        store._recorder._monotonic = lambda: self.now

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        self.by.append(threading.get_ident())
        self.now += self.takes
        return self._real.execute(statement, values)


def test_a_loop_records_itself_only_while_the_disk_is_quick(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        here, held = threading.get_ident(), await held_flow(store)
        assert await store.record(held, recorded_step("t_first"))
        disk = Disk(store)
        store._recorder._trust = 0
        store._recorder._checkpoint = lambda: None  # nobody else takes a turn here

        async def some(name: str) -> list[bool]:
            """Whether it was the loop, of each of forty."""
            disk.by.clear()
            for number in range(40):
                assert await store.record(held, recorded_step(f"t_{name}{number}"))
            return [one == here for one in disk.by]

        assert await some("a") == [False] * 32 + [True] * 8
        disk.takes = AT_ONCE
        assert await some("b") == [True] + [False] * 39, "a slow commit, and a thread does it"
        disk.takes = QUICK
        assert await some("c") == [False] * 32 + [True] * 8
        assert await some("d") == await some("e") == [True] * 40
        disk.takes = AT_ONCE
        assert await store.record(held, recorded_step("t_hiccup"))
        disk.takes = QUICK
        assert await some("f") == [True] * 40, "a hiccup of a disk that is quick otherwise"
        disk.takes = 10 * AT_ONCE
        assert await store.record(held, recorded_step("t_stall"))
        disk.takes = QUICK
        assert await some("g") == [False] * 32 + [True] * 8, "it stood still"

    run(tmp_path / "x.db", test)


def test_a_loop_waits_for_no_turn_and_no_lock(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        held = await held_flow(store)
        assert await store.record(held, recorded_step("t_1"))
        store._recorder._trust = 1_000
        other = Turnstile(store.path, 1_000)
        other.open()
        other.enter()
        assert not await store.record(held, recorded_step("t_2")), "somebody else has the turn"
        other.leave()
        other.close()
        outside = sqlite3.connect(store.path, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(Exception, match="locked"):
            await store.record(held, recorded_step("t_3"))
        outside.execute("ROLLBACK")
        outside.close()
        assert await store.record(held, recorded_step("t_4"))
        assert (await store.view_counts())["done"] == 2

    run(tmp_path / "x.db", test)


def test_the_wal_of_many_steps_stays_small(tmp_path: Path) -> None:
    """Their connection makes no checkpoints; without those of the writer this is a WAL of 25 MiB."""

    def large(id_: str) -> Decide:
        step = recorded_step(id_)

        def decide(lease: Lease | None, now: Millis) -> Recorded | None:
            decided = step(lease, now)
            return decided and replace(decided, made=replace(decided.made, result="x" * 200_000))

        return decide

    async def test(store: SqliteStore) -> None:
        held = await held_flow(store)
        for number in range(120):
            while not await store.record(held, large(f"t_{number}")):
                await store.view_counts()  # the writer has its turn
        wal = await asyncio.to_thread(store.path.with_name("x.db-wal").stat)
        assert wal.st_size < 10 * MIB

    run(tmp_path / "x.db", test)
