"""The strict memory store answers every breach of the port's protocol with `Bug`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from allswell.domain.ids import AgentId, Millis, QuestionId, TaskId, Token
from allswell.errors import Bug
from allswell.store.memory import MemoryStore
from allswell.store.port import LockKind, RowChanges, RowRequest, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import ids, write

Work = Callable[[Transaction], Coroutine[Any, Any, object]]
ONE = TaskId("t_1")


def perform(work: Work, *, strict: bool = True) -> None:
    """Run one unit of work on two held tasks, a run, a question, an agent, a service and a spread."""

    async def main() -> None:
        store = MemoryStore(strict=strict)
        await store.open()
        changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"), rows.task("t_3"))
        changes.new_runs = [rows.run("r_1")]
        changes.new_questions = [rows.question("q_1.1", "t_1")]
        changes.new_leases = [rows.lease("t_1"), rows.lease("t_2")]
        changes.new_ready = [rows.ready("t_3")]
        changes.agents, changes.new_services = [rows.agent("alice")], [rows.service("s")]
        changes.new_spreads = [rows.spread("t_1")]
        await write(store, changes, {LockKind.SERVICE: ["s"], LockKind.AGENT: ["alice"]})
        await store.transact(work)

    asyncio.run(main())


@pytest.mark.parametrize(
    "wanted",
    [
        RowRequest(spreads=["t_1"]),
        RowRequest(runs=[rows.run("r_1").id]),
        RowRequest(services=["s"]),
        RowRequest(agents=[AgentId("alice")]),
        RowRequest(questions=[QuestionId("q_1.1")]),
        RowRequest(tasks=[ONE]),
        RowRequest(leases=[ONE]),
        RowRequest(attempts=[(ONE, Token(1))]),
        RowRequest(awaited=[ONE]),
        RowRequest(payloads=[ONE]),
        RowRequest(bars=[ONE]),
        RowRequest(tasks=ids("t_none")),
    ],
)
def test_reading_without_a_lock(wanted: RowRequest) -> None:
    with pytest.raises(Bug, match=r"reads .* which is not locked"):
        perform(lambda tx: tx.read(wanted))


def test_a_task_lock_does_not_cover_its_lease() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.read(RowRequest(leases=[ONE]))

    with pytest.raises(Bug, match="lease t_1, which is not locked"):
        perform(work)


def test_reading_what_lock_did_not_return() -> None:
    """A row that came to be after the lock is not locked, though it was asked for."""

    async def main() -> None:
        store = MemoryStore()
        await store.open()

        asked, made = asyncio.Event(), asyncio.Event()

        async def work(tx: Transaction) -> None:
            assert not await tx.lock(LockKind.TASK, ["t_1"])
            asked.set()
            while not made.is_set():
                await tx.lanes()
            await tx.read(RowRequest(tasks=[ONE]))

        running = asyncio.ensure_future(store.transact(work))
        await asked.wait()
        await write(store, rows.new_tasks(rows.task("t_1")))
        made.set()
        await running

    with pytest.raises(Bug, match="not among those that lock returned"):
        asyncio.run(main())


ended = rows.task("t_1", state="done")


@pytest.mark.parametrize(
    "changes",
    [
        RowChanges(runs=[rows.run("r_1")]),
        RowChanges(services=[rows.service("s")]),
        RowChanges(new_services=[rows.service("new")]),
        RowChanges(agents=[rows.agent("alice")]),
        RowChanges(drop_agents=[AgentId("alice")]),
        RowChanges(questions=[rows.question("q_1.1", "t_1")]),
        RowChanges(new_questions=[rows.question("q_1.2", "t_1")]),
        RowChanges(tasks=[(ended, None)]),
        RowChanges(new_ready=[rows.ready("t_1")]),
        RowChanges(drop_ready=[rows.ready("t_3")]),
        RowChanges(timers=[("t_1", Millis(1))]),
        RowChanges(timers=[("r_1", Millis(1))]),
        RowChanges(drop_timers=["t_1"]),
        RowChanges(new_waits=[rows.need("t_1", "t_2")]),
        RowChanges(drop_waits=[rows.need("t_1", "t_2")]),
        RowChanges(new_leases=[rows.lease("t_3")]),
        RowChanges(leases=[rows.lease("t_1")]),
        RowChanges(drop_leases=[(ONE, Token(1))]),
        RowChanges(new_attempts=[rows.attempt("t_1")]),
        RowChanges(late_attempts=[rows.attempt("t_1")]),
        RowChanges(drop_spreads=["t_1"]),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_writing_without_the_lock_or_with_a_shared_one(changes: RowChanges, shared: bool) -> None:
    async def work(tx: Transaction) -> None:
        if shared:
            for kind, id_ in (
                (LockKind.SPREAD, "t_1"),
                (LockKind.RUN, "r_1"),
                (LockKind.SERVICE, "s"),
                (LockKind.AGENT, "alice"),
                (LockKind.QUESTION, "q_1.1"),
            ):
                await tx.lock(kind, [id_], shared=True)
            await tx.lock(LockKind.TASK, ["t_1", "t_2", "t_3"], shared=True)
            await tx.lock(LockKind.LEASE, ["t_1", "t_2"], shared=True)
        await tx.write(changes)

    with pytest.raises(Bug, match="which is"):
        perform(work)


@pytest.mark.parametrize("wait", [rows.need("t_1", "t_2"), rows.asks("t_1", "q_2.1")])
def test_waiting_for_what_is_not_locked(wait: object) -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.write(RowChanges(new_waits=[wait]))  # type: ignore[list-item]

    with pytest.raises(Bug, match=r"would wait for .* which is not locked"):
        perform(work)


def test_waiting_for_what_is_locked_shared_or_new() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, ["t_1"], shared=True)
        changes = rows.new_tasks(rows.task("t_new"), rows.task("t_new2"))
        changes.new_questions = [rows.question("q_new.1", "t_new")]
        changes.new_waits = [
            rows.need("t_new", "t_1"),
            rows.need("t_new", "t_new2"),
            rows.asks("t_new", "q_new.1"),
        ]
        await tx.write(changes)

    perform(work)


@pytest.mark.parametrize(
    "kinds", [(LockKind.TASK, LockKind.RUN), (LockKind.LEASE, LockKind.TASK), (LockKind.TASK, LockKind.TASK)]
)
def test_locking_out_of_order_or_twice(kinds: tuple[LockKind, LockKind]) -> None:
    async def work(tx: Transaction) -> None:
        for kind in kinds:
            await tx.lock(kind, ["t_1"])

    with pytest.raises(Bug, match="the order of locks is spread, run"):
        perform(work)


def test_locking_after_a_pick() -> None:
    async def work(tx: Transaction) -> None:
        await tx.pick([1], 1, None)
        await tx.lock(LockKind.LEASE, ["t_1"])

    with pytest.raises(Bug, match="after pick"):
        perform(work)


def test_deciding_by_a_clock_that_was_read_before_the_locks() -> None:
    async def work(tx: Transaction) -> None:
        await tx.now()
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.write(RowChanges(tasks=[(ended, None)]))

    with pytest.raises(Bug, match="stale"):
        perform(work)


def test_a_look_by_an_early_clock_is_fine_if_it_is_read_again() -> None:
    async def work(tx: Transaction) -> None:
        await tx.find_due(await tx.now(), 10)
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.now()
        await tx.write(RowChanges(tasks=[(ended, None)]))

    perform(work)


def test_making_a_row_that_the_transaction_knows() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, ["t_1"])
        await tx.write(rows.new_tasks(rows.task("t_1")))

    with pytest.raises(Bug, match="this transaction knew it"):
        perform(work)


def test_awaiting_something_else_than_the_transaction() -> None:
    async def work(tx: Transaction) -> None:
        await tx.now()
        await asyncio.sleep(0)

    with pytest.raises(Bug, match="other than its transaction"):
        perform(work)
    perform(work, strict=False)


def test_after_an_error_nothing_but_rolling_back_is_left() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, ["t_1"])
        with pytest.raises(Bug):
            await tx.read(RowRequest(tasks=ids("t_2")))
        with pytest.raises(Bug):
            await tx.now()

    with pytest.raises(Bug, match="task t_2, which is not locked"):
        perform(work)


def test_using_a_transaction_after_its_end() -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.open()
        kept: list[Transaction] = []

        async def work(tx: Transaction) -> None:
            kept.append(tx)

        await store.transact(work)
        await kept[0].now()

    with pytest.raises(Bug, match="after its end"):
        asyncio.run(main())
