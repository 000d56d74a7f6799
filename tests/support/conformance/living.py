"""A store's own life: opened, closed, shared, cancelled, and its clock."""

from __future__ import annotations

import asyncio
import threading

from allswell.domain.ids import Millis, TaskId
from allswell.errors import Unavailable
from allswell.store.port import LockKind, RowChanges, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import Case, Place, linger, look, take, until, write


async def a_store_opens_and_closes_more_than_once(place: Place) -> None:
    """Both are safe to repeat, and what was committed is there when it is opened again."""
    store = place.connect()
    await store.open()
    await store.open()
    await write(store, rows.new_tasks(rows.task("t_1")))
    await store.close()
    await store.close()
    await store.open()
    try:
        assert await store.view_task(TaskId("t_1")) is not None
    finally:
        await store.close()


async def closing_what_was_never_open_is_fine(place: Place) -> None:
    """A start that failed halfway can clean up without asking how far it got."""
    await place.connect().close()


async def a_closed_store_says_so(place: Place) -> None:
    """What is asked of a closed store is `Unavailable`, not an error of some driver."""
    store = place.connect()
    await store.open()
    await store.close()

    async def work(tx: Transaction) -> None:
        await tx.now()

    for call in (lambda: store.transact(work), store.view_agenda):
        try:
            await call()
        except Unavailable:
            continue
        raise AssertionError("a closed store answered")


async def two_stores_see_each_other(place: Place) -> None:
    """What one has committed, the other reads."""
    async with place.two_stores() as (first, second):
        await write(first, rows.new_tasks(rows.task("t_1")))
        assert await second.view_task(TaskId("t_1")) is not None
        ended = rows.task("t_1", state="done")
        await write(second, RowChanges(tasks=[(ended, "1")]), {LockKind.TASK: ["t_1"]})
        row = await first.view_task(TaskId("t_1"))
        assert row is not None
        assert row.task == ended
    async with place.store() as third:
        assert await third.view_payload(TaskId("t_1")) == ('"t_1"', "1")


async def the_clock_never_goes_back(place: Place) -> None:
    """Not within a transaction, not between two, not between two stores, not for a view."""
    last = Millis(0)

    async def work(tx: Transaction) -> list[Millis]:
        return [await tx.now(), await tx.now()]

    async with place.two_stores() as stores:
        for number in range(10):
            store = stores[number % 2]
            for now in (*await store.transact(work), (await store.view_agenda()).now):
                assert now >= last
                last = now
    assert last > 1_600_000_000_000, "milliseconds since the Unix epoch"


async def a_weak_commit_is_a_commit(place: Place) -> None:
    """Without `durable` only a power failure may undo it."""

    async def work(tx: Transaction) -> str:
        await tx.write(rows.new_tasks(rows.task("t_1")))
        return "answer"

    async with place.two_stores() as (first, second):
        assert await first.transact(work, durable=False) == "answer"
        assert await second.view_task(TaskId("t_1")) is not None


async def a_cancelled_unit_of_work_lets_everything_go(place: Place) -> None:
    """Nothing of it is written, and its locks are free again."""
    place.needs_concurrency()
    held = threading.Event()

    async def work(tx: Transaction) -> None:
        await take(tx, {LockKind.TASK: ["t_1"]})
        await tx.write(RowChanges(timers=[("t_1", Millis(5))], new_spreads=[rows.spread("t_1")]))
        held.set()
        await linger(tx, lambda: False)

    async with place.two_stores() as (first, second):
        await write(first, rows.new_tasks(rows.task("t_1")))
        running = asyncio.ensure_future(first.transact(work))
        await until(second, held.is_set, running)
        running.cancel()
        ended = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended
        assert list(await look(second, lambda tx: tx.lock(LockKind.TASK, ["t_1"]))) == ["t_1"]
        agenda = await second.view_agenda()
    assert agenda.next_due is None
    assert not agenda.spreads


CASES: tuple[Case, ...] = (
    a_store_opens_and_closes_more_than_once,
    closing_what_was_never_open_is_fine,
    a_closed_store_says_so,
    two_stores_see_each_other,
    the_clock_never_goes_back,
    a_weak_commit_is_a_commit,
    a_cancelled_unit_of_work_lets_everything_go,
)
