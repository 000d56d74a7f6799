"""What a connection remembers of its own writes is forgotten as soon as anybody else has written, or it rolled back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.app import make_watch
from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.lease.model import Agent
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import TaskAggregate
from allswell.store.port import LockKind, RowChanges, RowRequest, Rows, Transaction
from allswell.store.sqlite import SqliteStore, cache
from tests.support.conformance import rows

IDS = [TaskId("t_1")]


async def read(store: SqliteStore) -> tuple[list[str], list[str], Rows]:
    """The task and its lease, as a unit of work sees them."""

    async def work(tx: Transaction) -> tuple[list[str], list[str], Rows]:
        tasks = list(await tx.lock(LockKind.TASK, IDS))
        leases = list(await tx.lock(LockKind.LEASE, IDS))
        await tx.now()
        return tasks, leases, await tx.read(RowRequest(tasks=IDS, leases=IDS, payloads=IDS, agents=[AgentId("alice")]))

    return await store.transact(work)


def known(changes: RowChanges) -> RowChanges:
    """As a book writes new tasks: with how they then stand."""
    ready, due = {row.task: row for row in changes.new_ready}, dict(changes.timers)
    changes.cases = {
        task.id: TaskAggregate(task, None, ready.get(task.id), due.get(task.id)) for task, _ in changes.new_tasks
    }
    return changes


async def write(store: SqliteStore, changes: RowChanges) -> None:
    """Write as a unit of work would."""

    async def work(tx: Transaction) -> None:
        await tx.lock(LockKind.TASK, IDS)
        await tx.lock(LockKind.LEASE, IDS)
        await tx.now()
        await tx.write(changes)

    await store.transact(work)


def test_another_connection_s_writes_are_seen(tmp_path: Path) -> None:
    """Two stores take turns on one task; each always sees what the other did."""

    async def scene() -> None:
        one, two = SqliteStore(tmp_path / "x.db"), SqliteStore(tmp_path / "x.db")
        await one.open()
        await two.open()
        await write(one, rows.new_tasks(rows.task("t_1")))
        lease = rows.lease("t_1")
        for round_ in range(1, 6):
            for writer, reader in ((one, two), (two, one)):
                fresh = replace(lease, token=Token(round_))
                await write(writer, RowChanges(new_leases=[fresh], timers=[("t_1", Millis(round_))]))
                for store in (writer, reader, writer):
                    tasks, leases, found = await read(store)
                    assert (tasks, leases) == (IDS, IDS)
                    assert found.leases == {"t_1": fresh}
                    assert found.timers == {"t_1": round_}
                renewed = replace(fresh, renewed_at=Millis(7), note="x")
                await write(reader, RowChanges(leases=[renewed]))
                assert (await read(writer))[2].leases == {"t_1": renewed}
                await write(reader, RowChanges(drop_leases=[(IDS[0], Token(round_))], drop_timers=["t_1"]))
                assert (await read(writer))[1] == []
                assert (await read(writer))[2].timers == {}
        await one.close()
        await two.close()

    asyncio.run(scene())


def test_what_others_hold_against_agents_and_services_is_seen(tmp_path: Path) -> None:
    """Two stores take turns; each always sees the agents, services and lanes as the other left them."""

    async def scene() -> None:
        one, two = SqliteStore(tmp_path / "x.db"), SqliteStore(tmp_path / "x.db")
        await one.open()
        await two.open()

        async def seen(store: SqliteStore) -> tuple[dict[AgentId, Agent], dict[str, ServiceRow], int]:
            async def work(tx: Transaction) -> tuple[dict[AgentId, Agent], dict[str, ServiceRow], int]:
                lanes, services = await tx.lanes()
                agents = [AgentId("alice"), AgentId("bob")]
                return (await tx.read(RowRequest(agents=agents))).agents, services, len(lanes)

            return await store.transact(work)

        assert await seen(one) == await seen(two) == ({}, {}, 0)
        await write(
            one, RowChanges(new_agents=[rows.agent("alice", 1)], new_services=[rows.service("s"), rows.service("t")])
        )
        for round_, (writer, reader) in enumerate([(one, two), (two, one)] * 3, start=2):
            alice, service = rows.agent("alice", round_), [rows.service("s", round_), rows.service("t", round_)]
            await write(writer, RowChanges(agents=[alice], services=service))
            await writer.intern_lanes([(f"role {round_}", ())])
            for store in (writer, reader, writer):
                agents, services, lanes = await seen(store)
                assert agents == {"alice": alice}
                assert services == {"s": service[0], "t": service[1]}
                assert lanes == round_ - 1
        await write(two, RowChanges(drop_agents=[AgentId("alice")], new_agents=[rows.agent("bob")]))
        assert (await seen(one))[0] == (await seen(two))[0] == {"bob": rows.agent("bob")}
        await one.close()
        await two.close()

    asyncio.run(scene())


def test_nobody_waits_any_more(tmp_path: Path) -> None:
    """Whether others wait for a task is told by their rows: who is remembered as awaited need not be so for ever."""

    async def scene() -> None:
        store = SqliteStore(tmp_path / "x.db")
        await store.open()
        first, second, wait = rows.task("t_1"), rows.task("t_2"), rows.need("t_2", "t_1")
        changes = known(rows.new_tasks(first, second))
        changes.new_waits = [wait]
        changes.cases = {first.id: TaskAggregate(first, awaited=True), second.id: TaskAggregate(second, waits=(wait,))}
        await write(store, changes)

        async def awaited(tx: Transaction) -> bool:
            return (await tx.read(RowRequest(tasks=IDS, leases=IDS, awaited=IDS, whole=True))).cases[IDS[0]].awaited

        assert await store.transact(awaited)
        await write(store, RowChanges(drop_waits=[wait], cases={second.id: TaskAggregate(second)}))
        assert not await store.transact(awaited)
        await store.close()

    asyncio.run(scene())


def test_nothing_stays_of_tasks_and_runs_that_are_over(tmp_path: Path) -> None:
    """A watch lives for months: what was once waited for, or had a timer, must not be remembered by name for ever."""

    async def scene() -> None:
        async with make_watch(SqliteStore(tmp_path / "x.db"), sweeping=False) as watch:
            store = watch._engine.store
            assert isinstance(store, SqliteStore)
            for number in range(3):
                run = await watch.open_run(f"night {number}", timeout="1h")
                first = await watch.submit("first", run=run)
                second = await watch.submit("second", needs=[first], not_before=1)
                (lease,) = await watch.claim_many(1, agent="alice")
                await watch.answer(await lease.ask("Which one?"), "reply", "This one.")
                await watch.cancel(second)
                await asyncio.gather(watch.cancel(first), watch.end_run(run))  # in one batch
            kept = store._writer._cache
            assert (kept._cases, kept._payloads, kept._unsure, kept._apart) == ({}, {}, set(), set())

    asyncio.run(scene())


def test_what_was_rolled_back_is_not_remembered(tmp_path: Path) -> None:
    """A failed unit of work leaves neither rows nor memories."""

    async def scene() -> None:
        store = SqliteStore(tmp_path / "x.db")
        await store.open()
        await write(store, rows.new_tasks(rows.task("t_1")))

        async def fail(tx: Transaction) -> None:
            await tx.write(RowChanges(new_leases=[rows.lease("t_1")], new_agents=[rows.agent("alice")]))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.transact(fail)
        assert (await read(store))[1:] == ([], (await read(store))[2])
        assert (await read(store))[2].leases == {}
        assert (await read(store))[2].agents == {}
        await store.close()

    asyncio.run(scene())


def test_no_more_is_remembered_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten, and read again when they are wanted."""
    monkeypatch.setattr(cache, "MOST", 10)

    async def scene() -> None:
        store = SqliteStore(tmp_path / "x.db")
        await store.open()
        await write(store, known(rows.new_tasks(*(rows.task(f"t_{number}") for number in range(1, 31)))))
        assert len(store._writer._cache._cases) == 10
        tasks, _, found = await read(store)
        assert tasks == IDS
        assert found.tasks[IDS[0]] == rows.task("t_1")
        await store.close()

    asyncio.run(scene())


def test_large_payloads_are_not_remembered(tmp_path: Path) -> None:
    """Twenty thousand of a mebibyte each would be the machine's memory; they are read when they are wanted."""

    async def scene() -> None:
        store = SqliteStore(tmp_path / "x.db")
        await store.open()
        small, large = '"' + "s" * 100 + '"', '"' + "l" * 100_000 + '"'
        made = [(rows.task("t_1"), large), (rows.task("t_2"), small)]
        await write(store, known(RowChanges(new_tasks=made, timers=[("t_1", Millis(1)), ("t_2", Millis(1))])))
        assert store._writer._cache._payloads == {"t_2": small}
        assert (await read(store))[2].payloads == {"t_1": large}
        await store.close()

    asyncio.run(scene())
