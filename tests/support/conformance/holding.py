"""Locks, fences and ends of transactions: nobody writes over another, and what fails leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.task.model import Exclusion
from allswell.errors import AllswellError, Bug
from allswell.store.port import LockKind, RowChanges, RowConflict, RowRequest, Store, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, ids, linger, read, take, until, write


class _Enough(Exception):
    """Raised inside a unit of work to have it rolled back."""


async def _refused(store: Store, changes: RowChanges, task: str = "t_1") -> type[BaseException]:
    try:
        await write(store, changes, {LockKind.TASK: [task], LockKind.LEASE: [task]})
    except AllswellError as error:
        return type(error)
    raise AssertionError(f"the store accepted {changes}")


async def lock_returns_what_exists(place: Place) -> None:
    """Ids that do not exist lock nothing and are left out; the rest come sorted."""
    changes = rows.new_tasks(*(rows.task(id_) for id_ in ("t_b", "t_A", "t_a-1", "t_a.1", "t_a")))
    changes.new_runs = [rows.run("r_1")]
    changes.new_questions = [rows.question("q_a.1", "t_a")]
    changes.new_leases = [rows.lease("t_b")]
    changes.new_spreads = [rows.spread("t_b")]

    async def work(tx: Transaction) -> list[Sequence[str]]:
        return [
            await tx.lock(LockKind.SPREAD, ["t_a", "t_b"]),
            await tx.lock(LockKind.RUN, ["r_0", "r_1", "r_2"], shared=True),
            await tx.lock(LockKind.SERVICE, ["none"]),
            await tx.lock(LockKind.AGENT, ["nobody"]),
            await tx.lock(LockKind.QUESTION, ["q_a.1", "q_a.2"]),
            await tx.lock(LockKind.TASK, ["t_A", "t_a", "t_a-1", "t_a.1", "t_b", "t_c"]),
            await tx.lock(LockKind.LEASE, ["t_a", "t_b"], skip=True),
        ]

    async with place.store() as store:
        await write(store, changes)
        found = [list(answer) for answer in await store.transact(work)]
    assert found == [
        ["t_b"], ["r_1"], [], [], ["q_a.1"], ["t_A", "t_a", "t_a-1", "t_a.1", "t_b"], ["t_b"]
    ]  # fmt: skip


async def reading_what_does_not_exist_finds_nothing(place: Place) -> None:
    """Ids that do not exist are simply missing from the answer."""
    none = ids("t_none")
    wanted = RowRequest(
        ["t_none"],
        [RunId("r_none")],
        ["none"],
        [AgentId("nobody")],
        [],
        none,
        none,
        [(none[0], Token(1))],
        none,
        none,
        none,
    )
    async with place.store() as store:
        got = await read(store, wanted)
    assert not any(got.waits.values())
    assert not any(got.bars.values())
    assert not any((got.tasks, got.leases, got.attempts, got.awaited, got.payloads, got.runs, got.timers, got.ready))


async def a_failed_unit_of_work_leaves_nothing(place: Place) -> None:
    """What raises is rolled back whole, and its error reaches the caller."""

    async def work(tx: Transaction) -> None:
        await take(tx, {LockKind.TASK: ["t_1"]})
        await tx.write(
            RowChanges(
                new_tasks=[(rows.task("t_2"), "")],
                new_ready=[rows.ready("t_2")],
                drop_ready=[rows.ready("t_1")],
                new_runs=[rows.run("r_1")],
                timers=[("t_1", Millis(1))],
                new_spreads=[rows.spread("t_1")],
                events=[rows.event()],
            )
        )
        raise _Enough

    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_1"))
        changes.new_ready = [rows.ready("t_1")]
        await write(store, changes)
        try:
            await store.transact(work)
        except _Enough:
            pass
        else:
            raise AssertionError("the error of the work did not reach the caller")
        got = await read(store, RowRequest(tasks=ids("t_1", "t_2"), spreads=["t_1"], runs=[RunId("r_1")]))
        agenda = await store.view_agenda()
        await write(store, RowChanges(events=[rows.event("task_done")]))
    assert list(got.tasks) == ["t_1"]
    assert got.ready == {TaskId("t_1"): rows.ready("t_1")}
    assert not got.spreads
    assert not got.runs
    assert agenda.next_due is None
    assert not agenda.spreads


async def new_rows_must_be_new(place: Place) -> None:
    """A task or run that exists already is a conflict; a second row under a task's lock is refused as well."""
    first = rows.new_tasks(rows.task("t_1"))
    first.new_runs = [rows.run("r_1")]
    first.new_ready = [rows.ready("t_1")]
    first.new_leases = [rows.lease("t_1")]
    first.new_attempts = [rows.attempt("t_1")]
    first.new_waits = [rows.need("t_1", "t_1")]
    first.new_bars = [Exclusion(TaskId("t_1"), AgentId("bob"))]
    async with place.store() as store:
        await write(store, first)
        for twice in (rows.new_tasks(rows.task("t_0"), rows.task("t_1")), RowChanges(new_runs=[rows.run("r_1")])):
            try:
                await write(store, twice)
            except RowConflict:
                continue
            raise AssertionError(f"no conflict for {twice}")
        for field in ("new_ready", "new_leases", "new_attempts", "new_waits", "new_bars"):
            again = RowChanges()
            setattr(again, field, getattr(first, field))
            assert issubclass(await _refused(store, again), Bug | RowConflict), field
        assert await store.view_task(TaskId("t_0")) is None, "a conflict rolls everything back"


async def what_does_not_exist_cannot_be_changed(place: Place) -> None:
    """An update that finds no row is a bug, never silence."""
    none = rows.task("t_none")
    async with place.store() as store:
        assert await _refused(store, RowChanges(tasks=[(none, None)]), "t_none") is Bug
        assert await _refused(store, RowChanges(late_attempts=[rows.attempt("t_none")]), "t_none") is Bug
        for changes, locks in (
            (RowChanges(runs=[rows.run("r_none")]), {LockKind.RUN: ["r_none"]}),
            (RowChanges(questions=[rows.question("q_none.1", "t_none")]), {LockKind.QUESTION: ["q_none.1"]}),
        ):
            try:
                await write(store, changes, locks)
            except Bug:
                continue
            raise AssertionError(f"no bug for {changes}")


async def a_wrong_token_changes_nothing(place: Place) -> None:
    """A lease is written and dropped only with its current token; anything else is a bug and rolls back."""
    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"))
        changes.new_leases = [rows.lease("t_1", 2)]
        await write(store, changes)
        for wrong in (1, 3):
            forged = replace(rows.lease("t_1", wrong), note="forged")
            assert await _refused(store, RowChanges(leases=[forged], timers=[("t_1", Millis(1))])) is Bug
            assert await _refused(store, RowChanges(drop_leases=[(TaskId("t_1"), Token(wrong))])) is Bug
        assert await _refused(store, RowChanges(leases=[rows.lease("t_2")]), "t_2") is Bug
        assert await _refused(store, RowChanges(drop_leases=[(TaskId("t_2"), Token(1))]), "t_2") is Bug
        row = await store.view_task(TaskId("t_1"))
    assert row is not None
    assert row.lease == rows.lease("t_1", 2)
    assert row.due is None


async def a_locked_row_is_waited_for(place: Place) -> None:
    """Of two who change the same row, the second sees what the first has written: no update is lost."""
    place.needs_concurrency()
    rounds = 10

    async def work(tx: Transaction) -> None:
        task = TaskId("t_1")
        await tx.lock(LockKind.TASK, [task])
        row = (await tx.read(RowRequest(tasks=[task]))).tasks[task]
        count = row.record.timeouts + 1
        await tx.write(RowChanges(tasks=[(replace(row, record=replace(row.record, timeouts=count)), None)]))

    async with place.two_stores() as stores:
        await write(stores[0], rows.new_tasks(rows.task("t_1")))
        await asyncio.gather(*(stores[number % 2].transact(work) for number in range(rounds)))
        row = await stores[0].view_task(TaskId("t_1"))
    assert row is not None
    assert row.task.record.timeouts == rounds


async def locked_rows_are_skipped_on_request(place: Place) -> None:
    """With `skip`, rows that another transaction holds are left out; nobody waits."""
    place.needs_concurrency()
    held, done = threading.Event(), threading.Event()

    async def holder(tx: Transaction) -> None:
        await take(tx, {LockKind.TASK: ["t_1"], LockKind.LEASE: ["t_1"]})
        held.set()
        await linger(tx, done.is_set)

    async def visitor(tx: Transaction) -> tuple[Sequence[str], Sequence[str], Sequence[TaskId]]:
        tasks = await tx.lock(LockKind.TASK, ["t_1", "t_2"], skip=True)
        leases = await tx.lock(LockKind.LEASE, ["t_1", "t_2"], skip=True)
        return tasks, leases, await tx.pick([1], 5, None)

    async with place.two_stores() as (first, second):
        changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"), rows.task("t_3"))
        changes.new_ready = [rows.ready("t_1"), rows.ready("t_3")]
        changes.new_leases = [rows.lease("t_1"), rows.lease("t_2")]
        await write(first, changes)
        holding = asyncio.ensure_future(first.transact(holder))
        try:
            await until(second, held.is_set, holding)
            tasks, leases, picked = await second.transact(visitor)
        finally:
            done.set()
            await holding
        after = await second.transact(visitor)
    assert (list(tasks), list(leases), list(picked)) == (["t_2"], ["t_2"], ["t_3"])
    assert [sorted(found) for found in after] == [["t_1", "t_2"], ["t_1", "t_2"], ["t_1", "t_3"]]


async def shared_locks_live_together(place: Place) -> None:
    """Two can hold a row shared; who wants it alone passes it by or waits."""
    place.needs_concurrency()
    held, done = threading.Event(), threading.Event()

    async def holder(tx: Transaction) -> None:
        await tx.lock(LockKind.RUN, ["r_1"], shared=True)
        held.set()
        await linger(tx, done.is_set)

    async def reader(tx: Transaction) -> Sequence[str]:
        return await tx.lock(LockKind.RUN, ["r_1"], shared=True)

    async def writer(tx: Transaction) -> Sequence[str]:
        return await tx.lock(LockKind.RUN, ["r_1"], skip=True)

    async with place.two_stores() as (first, second):
        await write(first, RowChanges(new_runs=[rows.run("r_1")]))
        holding = asyncio.ensure_future(first.transact(holder))
        try:
            await until(second, held.is_set, holding)
            assert list(await second.transact(reader)) == ["r_1"]
            assert list(await second.transact(writer)) == []
        finally:
            done.set()
            await holding
        assert list(await second.transact(writer)) == ["r_1"]


async def of_two_equal_submits_one_conflicts(place: Place) -> None:
    """Two transactions make the same task: the second waits for the first, then finds it taken."""
    place.needs_concurrency()

    async def work(tx: Transaction) -> str:
        if await tx.lock(LockKind.TASK, ["t_1"]):
            return "there"
        await tx.write(rows.new_tasks(rows.task("t_1")))
        return "made"

    async with place.two_stores() as stores:
        answers = await asyncio.gather(*(store.transact(work) for store in stores * 4), return_exceptions=True)
    assert answers.count("made") == 1
    assert all(answer in ("made", "there") or isinstance(answer, RowConflict) for answer in answers), answers


async def a_claim_that_comes_twice_is_looked_up_by_one_at_a_time(place: Place) -> None:
    """Whoever asks for the same claim waits, and then finds what was granted on it."""
    place.needs_concurrency()
    claim = CommandId("c1")
    held, asking = threading.Event(), threading.Event()

    async def holder(tx: Transaction) -> None:
        assert not await tx.find_claimed(claim)
        held.set()
        await linger(tx, asking.is_set)
        for _ in range(50):  # time enough for the other to find nothing, if it did not wait
            await tx.lanes()
        await take(tx, {LockKind.TASK: ["t_1"], LockKind.LEASE: ["t_1"]})
        await tx.write(RowChanges(new_leases=[rows.lease("t_1", command=claim)], at=await tx.now()))

    async def other(tx: Transaction) -> list[TaskId]:
        asking.set()
        return list(await tx.find_claimed(claim))

    async with place.two_stores() as (first, second):
        await write(first, rows.new_tasks(rows.task("t_1")))
        holding = asyncio.ensure_future(first.transact(holder))
        await until(second, held.is_set, holding)
        found = await second.transact(other)
        await holding
    assert found == ["t_1"]


async def of_two_first_records_of_an_agent_one_conflicts(place: Place) -> None:
    """Two transactions find nothing held against an agent: the second to write must look again, or a miss is lost.

    The same holds of what requests say of an agent.
    """
    place.needs_concurrency()
    firsts = {
        LockKind.AGENT: RowChanges(new_agents=[rows.agent("bob")]),
        LockKind.HEALTH: RowChanges(new_health=[("bob", rows.health())]),
    }
    async with place.two_stores() as stores:
        for kind, first in firsts.items():

            async def work(tx: Transaction, kind: LockKind = kind, first: RowChanges = first) -> str:
                if await tx.lock(kind, ["bob"]):
                    return "there"
                await tx.write(replace(first, at=await tx.now()))
                return "made"

            answers = await asyncio.gather(*(store.transact(work) for store in stores * 4), return_exceptions=True)
            assert answers.count("made") == 1
            assert all(answer in ("made", "there") or isinstance(answer, RowConflict) for answer in answers), answers
        assert await stores[0].view_agents() == [rows.agent("bob")]
        assert await stores[0].view_health() == {"bob": rows.health()}


async def of_two_who_make_the_same_service_one_conflicts(place: Place) -> None:
    """What is first held against a service is not lost to another process that holds something against it as well."""
    place.needs_concurrency()

    async def work(tx: Transaction) -> str:
        if await tx.lock(LockKind.SERVICE, ["s"]):
            return "there"
        await tx.write(RowChanges(new_services=[rows.service("s")]))
        return "made"

    async with place.two_stores() as stores:
        answers = await asyncio.gather(*(store.transact(work) for store in stores * 4), return_exceptions=True)
    assert answers.count("made") == 1
    assert all(answer in ("made", "there") or isinstance(answer, RowConflict) for answer in answers), answers


async def a_service_covers_its_questions(place: Place) -> None:
    """A question about a service has no task; it is asked, read and closed under the service's lock."""
    asked = replace(rows.question("q_@svc-β.1", "t_1"), task=None, run=None)
    locks = {LockKind.SERVICE: ["svc-β"]}
    async with place.store() as store:
        await write(store, RowChanges(new_services=[rows.service("svc-β")], new_questions=[asked]), locks)
        assert await store.view_questions() == [asked]

        async def close(tx: Transaction) -> None:
            await tx.lock(LockKind.SERVICE, ["svc-β"])
            await tx.now()
            found = (await tx.read(RowRequest(questions=[asked.id]))).questions[asked.id]
            await tx.write(RowChanges(questions=[replace(found, closed_at=Millis(AT), choice="withdrawn")]))

        await store.transact(close)
        assert await store.view_questions() == []
        closed = await store.view_question(asked.id)
    assert closed == replace(asked, closed_at=Millis(AT), choice="withdrawn")
    assert closed is not None
    assert (closed.task, closed.service) == (None, "svc-β")


CASES: tuple[Case, ...] = (
    lock_returns_what_exists,
    reading_what_does_not_exist_finds_nothing,
    a_failed_unit_of_work_leaves_nothing,
    new_rows_must_be_new,
    what_does_not_exist_cannot_be_changed,
    a_wrong_token_changes_nothing,
    a_locked_row_is_waited_for,
    locked_rows_are_skipped_on_request,
    shared_locks_live_together,
    of_two_equal_submits_one_conflicts,
    a_claim_that_comes_twice_is_looked_up_by_one_at_a_time,
    of_two_first_records_of_an_agent_one_conflicts,
    of_two_who_make_the_same_service_one_conflicts,
    a_service_covers_its_questions,
)
