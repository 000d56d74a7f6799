"""Requests between agents: who waits for whom is found, and those who ask at once ask in turn."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from allswell.domain.ids import Millis, TaskId, Token
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.task.model import State
from allswell.store.port import LockKind, RowChanges, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, linger, look, take, until, write


async def who_waits_for_whose_answer_is_found(place: Place) -> None:
    """Of open requests to agents whose delivery is under way, and whose asker still holds its task."""
    asked = [rows.request(f"m_1.{mark}", "ågent", to) for mark, to in (("a", "oracle"), ("b", "zed"), ("c", "late"))]
    late = asked[2].record.request
    assert late is not None
    moved_on = replace(late, waiting=False, blocked_at=Millis(AT), moved_on=True, by="zed", mesh=True, attempt=3)
    async with place.store() as store:
        await write(store, rows.new_tasks(rows.task("t_1"), *asked))
        assert not await look(store, lambda tx: tx.find_asking()), "no agent holds the task"
        await write(store, RowChanges(new_leases=[rows.lease("t_1", agent="ågent")]), {LockKind.TASK: ["t_1"]})
        assert list(await look(store, lambda tx: tx.find_asking())) == [
            AwaitedRequest(TaskId("m_1.a"), "ågent", ("oracle",)),
            AwaitedRequest(TaskId("m_1.b"), "ågent", ("zed",)),
            AwaitedRequest(TaskId("m_1.c"), "ågent", ("late",)),
        ]
        after = replace(asked[2], record=replace(asked[2].record, request=moved_on))
        over = replace(asked[1], state=State.DONE.value, ended_at=Millis(AT))
        await write(store, RowChanges(tasks=[(over, "1"), (after, None)]), {LockKind.TASK: ["m_1.b", "m_1.c"]})
        assert list(await look(store, lambda tx: tx.find_asking())) == [
            AwaitedRequest(TaskId("m_1.a"), "ågent", ("oracle",))
        ]
        again = RowChanges(drop_leases=[(TaskId("t_1"), Token(1))], new_leases=[rows.lease("t_1", 2, agent="ågent")])
        await write(store, again, {LockKind.TASK: ["t_1"], LockKind.LEASE: ["t_1"]})
        assert not await look(store, lambda tx: tx.find_asking()), "it is another lease"
        row = await store.view_task(after.id)
    assert row is not None
    assert row.task == after


async def of_two_who_ask_at_once_the_second_sees_the_first(place: Place) -> None:
    """Two requests that would close a circle together must not both be made (docs/adr/0052)."""
    place.needs_concurrency()
    held, asking = asyncio.Event(), asyncio.Event()

    async def holder(tx: Transaction) -> None:
        assert not await tx.find_asking()
        held.set()
        await linger(tx, asking.is_set)
        for _ in range(50):  # time enough for the other to find nothing, if it did not wait
            await tx.lanes()
        await take(tx, {LockKind.TASK: ["t_1"]})
        await tx.write(RowChanges(new_tasks=[(rows.request("m_1.a", "ann", "bob"), "null")], at=await tx.now()))

    async def other(tx: Transaction) -> list[AwaitedRequest]:
        asking.set()
        return list(await tx.find_asking())

    async with place.two_stores() as (first, second):
        await write(first, rows.new_tasks(rows.task("t_1")))
        await write(first, RowChanges(new_leases=[rows.lease("t_1", agent="ann")]), {LockKind.TASK: ["t_1"]})
        holding = asyncio.ensure_future(first.transact(holder))
        await until(second, held.is_set, holding)
        found = await second.transact(other)
        await holding
    assert found == [AwaitedRequest(TaskId("m_1.a"), "ann", ("bob",))]


CASES: tuple[Case, ...] = (
    who_waits_for_whose_answer_is_found,
    of_two_who_ask_at_once_the_second_sees_the_first,
)
