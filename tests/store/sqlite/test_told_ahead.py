"""Those who wait are told before the commit, and find what they were told of however they look."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from allswell.store import herald
from allswell.store.call import NOTHING, Call
from allswell.store.herald import Herald
from allswell.store.port import TaskFilter, Transaction
from allswell.store.sqlite import SqliteStore, views
from allswell.store.sqlite import store as store_module
from allswell.store.sqlite.carrier import DatagramCarrier
from allswell.store.sqlite.turnstile import Turnstile
from tests.store.hearing import heard_by, until
from tests.store.sqlite.hearing import open_carrier
from tests.store.sqlite.scene import opened, plain


def test_what_is_committed_is_told_when_it_is_and_only_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            calls = await heard_by(other)
            await heard_by(store)

            async def fail(tx: Transaction) -> None:
                tx.tell(Call(spreads=True))
                raise ZeroDivisionError

            async def work(tx: Transaction) -> None:
                tx.tell(Call(ready=True))

            async def lazy(tx: Transaction) -> None:
                tx.tell(Call(journal=True))

            with pytest.raises(ZeroDivisionError):
                await store.transact(fail)
            await store.transact(work)
            await until(lambda: calls == [Call(ready=True)])
            await store.transact(lazy)
            await until(lambda: calls == [Call(ready=True), Call(journal=True)])

    asyncio.run(main())


def test_whoever_hears_of_work_finds_it_although_it_is_told_before_the_commit(tmp_path: Path) -> None:
    """They have to wait for the turn of the one who told them; so what they are told of is there."""
    told: list[Call] = []
    found: list[tuple[int, int]] = []
    send_here = DatagramCarrier.send_here

    def note(self: DatagramCarrier, call: Call) -> bool:
        told.append(call)
        return send_here(self, call)

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store, opened(tmp_path / "x.db") as other:
            await heard_by(store)
            looks: list[asyncio.Task[None]] = []

            async def look(expected: int) -> None:
                picked = await other.transact(lambda tx: tx.pick([1], 1_000, None))
                found.append((expected, len(picked)))

            other.hear(lambda call: looks.append(asyncio.create_task(look(len(told)))) if call.ready else None)
            await until(lambda: bool(looks))
            for number in range(20):

                async def work(tx: Transaction, number: int = number) -> None:
                    changes = plain([f"t_{number:02d}"])
                    changes.at = await tx.now()
                    await tx.write(changes)
                    tx.tell(Call(ready=True))

                await store.transact(work)
                await until(lambda number=number: len(looks) > number + 1)  # type: ignore[misc]
                await asyncio.gather(*looks)

    with patch.object(DatagramCarrier, "send_here", note), patch.object(herald, "_URGENT_GAP", 0.0):
        asyncio.run(main())
    assert told == [Call(ready=True)] * 20
    assert found == [(number, number) for number in range(21)]


@patch.object(herald, "_URGENT_GAP", 3_600.0)
def test_what_others_would_look_for_too_soon_is_told_when_it_is_committed(tmp_path: Path) -> None:
    """The first is told at once, however short a time ago the machine was started."""
    with closing(open_carrier(tmp_path / "x.db")) as carrier, closing(open_carrier(tmp_path / "x.db")) as hearing:
        telling = Herald(carrier, "telling")
        with patch("allswell.store.herald.time.monotonic", lambda: 60.0):
            assert telling.announce_ahead(Call(ready=True, journal=True, due=7)) == Call(journal=True, due=7)
            assert hearing.receive() == Call(ready=True)
            assert telling.announce_ahead(Call(ready=True)) == Call(ready=True), "others were told a moment ago"
            assert telling.announce_ahead(Call(spreads=True)) == Call(spreads=True)
            assert hearing.receive() == NOTHING


def test_who_is_told_ahead_of_a_commit_and_only_looks_sees_what_it_was_told_of(tmp_path: Path) -> None:
    """A claim waits for its turn, and so for the commit; a view has to be made to."""
    busy = threading.Event()

    async def main() -> None:
        patience = patch.object(store_module, "_PASSAGE_MOST", 30_000)  # however long the disk takes, beside others
        async with opened(tmp_path / "x.db") as telling:
            with patience:
                looking = SqliteStore(tmp_path / "x.db", turn_timeout=30_000)
            await looking.open()
            await heard_by(telling)
            calls = await heard_by(looking)
            ahead, passage, look = telling._writer._announce_ahead, looking._passage.pass_through, views.tasks

            def slowly(call: Call) -> Call:
                told = ahead(call)
                busy.wait(20)  # until the other one looks, or waits until it may
                return told

            def passed() -> None:
                busy.set()
                passage()

            def looked(*given: Any) -> Any:  # noqa: ANN401
                busy.set()
                return look(*given)

            async def work(tx: Transaction) -> None:
                changes = plain(["t_1"])
                changes.at = await tx.now()
                await tx.write(changes)
                tx.tell(Call(ready=True))

            with (
                patch.object(telling._writer, "_announce_ahead", slowly),
                patch.object(looking._passage, "pass_through", passed),
                patch.object(views, "tasks", looked),
            ):
                writing = asyncio.ensure_future(telling.transact(work))
                await until(lambda: Call(ready=True) in calls)
                (seen,) = await looking.view_tasks(TaskFilter())
                assert seen.task.id == "t_1"
                await writing
            await looking.close()

    asyncio.run(main())


def test_a_writer_that_was_stopped_after_it_had_told_does_not_stop_who_looks(tmp_path: Path) -> None:
    async def main() -> None:
        with patch.object(store_module, "_PASSAGE_MOST", 20):
            looking = SqliteStore(tmp_path / "x.db")
        await looking.open()
        stopped = Turnstile(tmp_path / "x.db", 1_000)
        stopped.open()
        stopped.enter()
        try:
            looking._told_ahead = True
            assert await looking.view_tasks(TaskFilter()) == []
        finally:
            stopped.close()
            await looking.close()

    asyncio.run(main())
