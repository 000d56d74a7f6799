"""The strict memory store answers every breach of the port's protocol with `Bug`."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from allswell.domain.names import AgentId, Millis, QuestionId, TaskId, Token
from allswell.errors import Bug
from allswell.store.memory import MemoryStore
from allswell.store.port import Changes, Kind, Transaction, Wanted
from allswell.testing.conformance import rows
from allswell.testing.conformance.place import ids, write

Work = Callable[[Transaction], Awaitable[object]]
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
        await write(store, changes, {Kind.SERVICE: ["s"], Kind.AGENT: ["alice"]})
        await store.transact(work)

    asyncio.run(main())


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(spreads=["t_1"]),
        Wanted(runs=[rows.run("r_1").id]),
        Wanted(services=["s"]),
        Wanted(agents=[AgentId("alice")]),
        Wanted(questions=[QuestionId("q_1.1")]),
        Wanted(tasks=[ONE]),
        Wanted(leases=[ONE]),
        Wanted(attempts=[(ONE, Token(1))]),
        Wanted(awaited=[ONE]),
        Wanted(payloads=[ONE]),
        Wanted(bars=[ONE]),
        Wanted(tasks=ids("t_none")),
    ],
)
def test_reading_without_a_lock(wanted: Wanted) -> None:
    with pytest.raises(Bug, match=r"reads .* which is not locked"):
        perform(lambda tx: tx.read(wanted))


def test_a_task_lock_does_not_cover_its_lease() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(Kind.TASK, ["t_1"])
        await tx.read(Wanted(leases=[ONE]))

    with pytest.raises(Bug, match="lease t_1, which is not locked"):
        perform(work)


def test_reading_what_lock_did_not_return() -> None:
    """A row that came to be after the lock is not locked, though it was asked for."""

    async def main() -> None:
        store = MemoryStore()
        await store.open()

        asked, made = asyncio.Event(), asyncio.Event()

        async def work(tx: Transaction) -> None:
            assert not await tx.lock(Kind.TASK, ["t_1"])
            asked.set()
            while not made.is_set():
                await tx.lanes()
            await tx.read(Wanted(tasks=[ONE]))

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
        Changes(runs=[rows.run("r_1")]),
        Changes(services=[rows.service("s")]),
        Changes(new_services=[rows.service("new")]),
        Changes(agents=[rows.agent("alice")]),
        Changes(drop_agents=[AgentId("alice")]),
        Changes(questions=[rows.question("q_1.1", "t_1")]),
        Changes(new_questions=[rows.question("q_1.2", "t_1")]),
        Changes(tasks=[(ended, None)]),
        Changes(new_ready=[rows.ready("t_1")]),
        Changes(drop_ready=[rows.ready("t_3")]),
        Changes(timers=[("t_1", Millis(1))]),
        Changes(timers=[("r_1", Millis(1))]),
        Changes(drop_timers=["t_1"]),
        Changes(new_waits=[rows.need("t_1", "t_2")]),
        Changes(drop_waits=[rows.need("t_1", "t_2")]),
        Changes(new_leases=[rows.lease("t_3")]),
        Changes(leases=[rows.lease("t_1")]),
        Changes(drop_leases=[(ONE, Token(1))]),
        Changes(new_attempts=[rows.attempt("t_1")]),
        Changes(late_attempts=[rows.attempt("t_1")]),
        Changes(drop_spreads=["t_1"]),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_writing_without_the_lock_or_with_a_shared_one(changes: Changes, shared: bool) -> None:
    async def work(tx: Transaction) -> None:
        if shared:
            for kind, id_ in (
                (Kind.SPREAD, "t_1"),
                (Kind.RUN, "r_1"),
                (Kind.SERVICE, "s"),
                (Kind.AGENT, "alice"),
                (Kind.QUESTION, "q_1.1"),
            ):
                await tx.lock(kind, [id_], shared=True)
            await tx.lock(Kind.TASK, ["t_1", "t_2", "t_3"], shared=True)
            await tx.lock(Kind.LEASE, ["t_1", "t_2"], shared=True)
        await tx.write(changes)

    with pytest.raises(Bug, match="which is"):
        perform(work)


@pytest.mark.parametrize("wait", [rows.need("t_1", "t_2"), rows.asks("t_1", "q_2.1")])
def test_waiting_for_what_is_not_locked(wait: object) -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(Kind.TASK, ["t_1"])
        await tx.write(Changes(new_waits=[wait]))  # type: ignore[list-item]

    with pytest.raises(Bug, match=r"would wait for .* which is not locked"):
        perform(work)


def test_waiting_for_what_is_locked_shared_or_new() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(Kind.TASK, ["t_1"], shared=True)
        changes = rows.new_tasks(rows.task("t_new"), rows.task("t_new2"))
        changes.new_questions = [rows.question("q_new.1", "t_new")]
        changes.new_waits = [
            rows.need("t_new", "t_1"),
            rows.need("t_new", "t_new2"),
            rows.asks("t_new", "q_new.1"),
        ]
        await tx.write(changes)

    perform(work)


@pytest.mark.parametrize("kinds", [(Kind.TASK, Kind.RUN), (Kind.LEASE, Kind.TASK), (Kind.TASK, Kind.TASK)])
def test_locking_out_of_order_or_twice(kinds: tuple[Kind, Kind]) -> None:
    async def work(tx: Transaction) -> None:
        for kind in kinds:
            await tx.lock(kind, ["t_1"])

    with pytest.raises(Bug, match="the order of locks is spread, run"):
        perform(work)


def test_locking_after_a_pick() -> None:
    async def work(tx: Transaction) -> None:
        await tx.pick([1], 1, None)
        await tx.lock(Kind.LEASE, ["t_1"])

    with pytest.raises(Bug, match="after pick"):
        perform(work)


def test_deciding_by_a_clock_that_was_read_before_the_locks() -> None:
    async def work(tx: Transaction) -> None:
        await tx.now()
        await tx.lock(Kind.TASK, ["t_1"])
        await tx.write(Changes(tasks=[(ended, None)]))

    with pytest.raises(Bug, match="stale"):
        perform(work)


def test_a_look_by_an_early_clock_is_fine_if_it_is_read_again() -> None:
    async def work(tx: Transaction) -> None:
        await tx.find_due(await tx.now(), 10)
        await tx.lock(Kind.TASK, ["t_1"])
        await tx.now()
        await tx.write(Changes(tasks=[(ended, None)]))

    perform(work)


def test_making_a_row_that_the_transaction_knows() -> None:
    async def work(tx: Transaction) -> None:
        await tx.lock(Kind.TASK, ["t_1"])
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
        await tx.lock(Kind.TASK, ["t_1"])
        with pytest.raises(Bug):
            await tx.read(Wanted(tasks=ids("t_2")))
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
