"""What is looked for without locks: hints, in a certain order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from allswell.domain.ids import CommandId, Millis, RunId, TaskId, Token
from allswell.domain.task.model import State
from allswell.store.clock import DueTimer
from allswell.store.port import LockKind, RowChanges, Store, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import Case, Place, look, take, write


async def _found(store: Store, find: Callable[[Transaction], Awaitable[Sequence[str]]]) -> list[str]:
    return list(await look(store, find))


async def due_timers_are_found_oldest_first(place: Place) -> None:
    """Due means not later than now; who holds the task is named."""
    changes = rows.new_tasks(*(rows.task(id_) for id_ in ("t_1", "t_2", "t_3", "t_4")))
    changes.new_runs = [rows.run("r_1")]
    changes.new_leases = [rows.lease("t_2", agent="ågent")]
    changes.timers = [(owner, Millis(due)) for owner, due in (("t_1", 30), ("t_2", 10), ("r_1", 20), ("t_3", 31))]
    async with place.store() as store:
        await write(store, changes)
        found = await look(store, lambda tx: tx.find_due(Millis(30), 10))
        first = await look(store, lambda tx: tx.find_due(Millis(30), 2))
        none = await look(store, lambda tx: tx.find_due(Millis(9), 10))
        agenda = await store.view_agenda()
    expected = [DueTimer("t_2", rows.lease("t_2", agent="ågent").agent), DueTimer("r_1", None), DueTimer("t_1", None)]
    assert (list(found), list(first), list(none)) == (expected, expected[:2], [])
    assert agenda.next_due == 10
    assert not agenda.spreads


async def spreads_are_found_in_the_order_of_making(place: Place) -> None:
    """The oldest consequence is worked off first."""
    async with place.store() as store:
        for id_ in ("t_9", "r_1", "t_1"):
            await write(store, RowChanges(new_spreads=[rows.spread(id_)]))
        assert await _found(store, lambda tx: tx.find_spreads(10)) == ["t_9", "r_1", "t_1"]
        assert await _found(store, lambda tx: tx.find_spreads(1)) == ["t_9"]
        assert (await store.view_agenda()).spreads
        await write(store, RowChanges(drop_spreads=["t_9", "r_1", "t_1"]), {LockKind.SPREAD: ["r_1", "t_1", "t_9"]})
        assert await _found(store, lambda tx: tx.find_spreads(10)) == []
        assert not (await store.view_agenda()).spreads


async def those_who_wait_are_found(place: Place) -> None:
    """By what they wait for; each once, no more than asked for."""
    changes = rows.new_tasks(*(rows.task(id_) for id_ in ("t_0", "t_1", "t_2", "t_3")))
    changes.new_waits = [rows.need(id_, "t_0") for id_ in ("t_1", "t_2", "t_3")] + [rows.need("t_3", "t_1")]
    async with place.store() as store:
        await write(store, changes)
        assert sorted(await _found(store, lambda tx: tx.find_waiting("t_0", 10))) == ["t_1", "t_2", "t_3"]
        assert len(await _found(store, lambda tx: tx.find_waiting("t_0", 2))) == 2
        assert await _found(store, lambda tx: tx.find_waiting("t_1", 10)) == ["t_3"]
        assert await _found(store, lambda tx: tx.find_waiting("t_3", 10)) == []
        await write(store, RowChanges(drop_waits=[rows.need("t_3", "t_1")]), {LockKind.TASK: ["t_3"]})
        assert await _found(store, lambda tx: tx.find_waiting("t_1", 10)) == []


async def open_tasks_of_a_run_are_found(place: Place) -> None:
    """Ended tasks and those of other runs are not among them."""
    changes = rows.new_tasks(
        rows.task("t_1", run="r_1"),
        rows.task("t_2", run="r_1"),
        rows.task("t_3", run="r_1", state=State.DONE),
        rows.task("t_4", run="r_2"),
        rows.task("t_5"),
    )
    run = RunId("r_1")
    async with place.store() as store:
        await write(store, changes)
        assert sorted(await _found(store, lambda tx: tx.find_open(run, 10))) == ["t_1", "t_2"]
        assert len(await _found(store, lambda tx: tx.find_open(run, 1))) == 1
        ended = rows.task("t_1", run="r_1", state=State.CANCELLED)
        await write(store, RowChanges(tasks=[(ended, None)]), {LockKind.TASK: ["t_1"]})
        assert await _found(store, lambda tx: tx.find_open(run, 10)) == ["t_2"]
        assert await _found(store, lambda tx: tx.find_open(RunId("r_none"), 10)) == []


async def open_questions_of_a_task_are_found(place: Place) -> None:
    """Closed ones are not among them."""
    changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"))
    changes.new_questions = [
        rows.question("q_1.1", "t_1", closed=True),
        rows.question("q_1.2", "t_1"),
        rows.question("q_1.3", "t_1"),
        rows.question("q_2.1", "t_2"),
    ]
    task = TaskId("t_1")
    async with place.store() as store:
        await write(store, changes)
        assert sorted(await _found(store, lambda tx: tx.find_questions(task))) == ["q_1.2", "q_1.3"]
        await write(
            store, RowChanges(questions=[rows.question("q_1.2", "t_1", closed=True)]), {LockKind.QUESTION: ["q_1.2"]}
        )
        assert await _found(store, lambda tx: tx.find_questions(task)) == ["q_1.3"]


async def whom_a_task_is_for_is_found_with_whoever_holds_it(place: Place) -> None:
    """Its role, and its holder if there is one; of a task that is not there nothing."""
    changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"))
    role = rows.task("t_1").role
    async with place.store() as store:
        await write(store, changes)
        await write(store, RowChanges(new_leases=[rows.lease("t_2")]), {LockKind.TASK: ["t_2"]})
        assert await _found(store, lambda tx: tx.find_target(TaskId("t_1"))) == [role]
        assert await _found(store, lambda tx: tx.find_target(TaskId("t_2"))) == [role, rows.lease("t_2").agent]
        assert await _found(store, lambda tx: tx.find_target(TaskId("t_3"))) == []


async def leases_are_found_by_the_claim_that_made_them(place: Place) -> None:
    """Only the current ones; and all leases in the order of their tasks, a page at a time."""
    names = ("t_B", "t_a", "t_a-1", "t_c")
    changes = rows.new_tasks(*(rows.task(id_) for id_ in names))
    changes.new_leases = [
        rows.lease("t_c", command="c1"),
        rows.lease("t_B", command="c1"),
        rows.lease("t_a", command="c2"),
    ]
    changes.new_leases.append(rows.lease("t_a-1"))
    one, two = CommandId("c1"), CommandId("c2")
    async with place.store() as store:
        await write(store, changes)
        assert sorted(await _found(store, lambda tx: tx.find_claimed(one))) == ["t_B", "t_c"]
        assert await _found(store, lambda tx: tx.find_claimed(two)) == ["t_a"]
        assert await _found(store, lambda tx: tx.find_claimed(CommandId("c3"))) == []
        assert await _found(store, lambda tx: tx.find_leases("", 10)) == list(names)
        assert await _found(store, lambda tx: tx.find_leases("t_B", 2)) == ["t_a", "t_a-1"]
        assert await _found(store, lambda tx: tx.find_leases("t_c", 2)) == []
        locks = {LockKind.TASK: ["t_B"], LockKind.LEASE: ["t_B"]}
        await write(store, RowChanges(drop_leases=[(TaskId("t_B"), Token(1))]), locks)
        assert await _found(store, lambda tx: tx.find_claimed(one)) == ["t_c"]
        assert await _found(store, lambda tx: tx.find_leases("", 1)) == ["t_a"]


async def a_transaction_finds_its_own_writes(place: Place) -> None:
    """What this transaction made is found, and what it ended is not."""
    run = RunId("r_1")

    async def work(tx: Transaction) -> None:
        await take(
            tx,
            {LockKind.SPREAD: ["t_1"], LockKind.QUESTION: ["q_1.1"], LockKind.TASK: ["t_1"], LockKind.LEASE: ["t_1"]},
        )
        closed = rows.question("q_1.1", "t_1", closed=True)
        await tx.write(
            RowChanges(
                new_tasks=[(rows.task("t_2", run="r_1"), "")],
                tasks=[(rows.task("t_1", run="r_1", state=State.DONE), None)],
                questions=[closed],
                new_questions=[replace(closed, id=rows.question("q_1.2", "t_1").id, closed_at=None)],
                timers=[("t_2", Millis(1))],
                drop_timers=["t_1"],
                drop_leases=[(TaskId("t_1"), Token(1))],
                new_leases=[rows.lease("t_2", command="c1")],
                new_waits=[rows.need("t_2", "t_1")],
                drop_spreads=["t_1"],
                new_spreads=[rows.spread("r_1")],
            )
        )
        assert list(await tx.find_open(run, 9)) == ["t_2"]
        assert list(await tx.find_questions(TaskId("t_1"))) == ["q_1.2"]
        assert [due.owner for due in await tx.find_due(Millis(9), 9)] == ["t_2"]
        assert list(await tx.find_leases("", 9)) == ["t_2"]
        assert list(await tx.find_waiting("t_1", 9)) == ["t_2"]
        assert list(await tx.find_spreads(9)) == ["r_1"]

    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_1", run="r_1"))
        changes.new_questions = [rows.question("q_1.1", "t_1")]
        changes.timers = [("t_1", Millis(2))]
        changes.new_leases = [rows.lease("t_1", command="c1")]
        changes.new_spreads = [rows.spread("t_1")]
        await write(store, changes)
        await store.transact(work)


CASES: tuple[Case, ...] = (
    due_timers_are_found_oldest_first,
    spreads_are_found_in_the_order_of_making,
    those_who_wait_are_found,
    open_tasks_of_a_run_are_found,
    open_questions_of_a_task_are_found,
    leases_are_found_by_the_claim_that_made_them,
    whom_a_task_is_for_is_found_with_whoever_holds_it,
    a_transaction_finds_its_own_writes,
)
