"""The pick: best first, never what is taken, and on its index however much is ready."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from allswell.domain.ids import AgentId, TaskId
from allswell.domain.task.model import Exclusion
from allswell.store.port import RowChanges, RowRequest, Transaction
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import SQL
from allswell.store.postgres.values import integers
from tests.store.postgres.scene import client, names, opened, put, put_tasks, run


async def pick(store: PostgresStore, lanes: list[int], count: int, agent: str | None = None) -> list[str]:
    async def work(tx: Transaction) -> list[str]:
        return list(await tx.pick(lanes, count, None if agent is None else AgentId(agent)))

    return await store.transact(work)


def test_the_best_of_all_lanes_and_nothing_of_others(pg_url: str) -> None:
    async def test(store: PostgresStore) -> None:
        await put_tasks(store, ["t_a0", "t_a1", "t_a2"], ready=1)
        await put_tasks(store, ["t_b0", "t_b1", "t_b2"], ready=2)
        await put_tasks(store, ["t_c0"], ready=3)
        assert await pick(store, [1, 2], 4) == ["t_a0", "t_b0", "t_a1", "t_b1"]
        assert await pick(store, [3], 4) == ["t_c0"]
        assert await pick(store, [], 4) == await pick(store, [9], 4) == []
        await put(store, RowChanges(new_bars=[Exclusion(TaskId("t_a0"), AgentId("eve"))]))
        assert await pick(store, [1, 2], 2, "eve") == ["t_b0", "t_a1"]
        assert await pick(store, [1, 2], 2, "bob") == ["t_a0", "t_b0"]

    run(pg_url, test)


def test_what_others_hold_is_skipped_however_much_it_is(pg_url: str) -> None:
    ids = names(60)

    async def test(store: PostgresStore) -> None:
        await put_tasks(store, ids, ready=1)
        with client(pg_url) as other:
            other.execute("SELECT FROM allswell.task WHERE id < %s FOR UPDATE", (ids[50],))
            assert await pick(store, [1], 5) == ids[50:55]
            assert await pick(store, [1], 5, "bob") == ids[50:55]

    run(pg_url, test)


@pytest.mark.parametrize("name", ["pick", "pick_allowed", "pick_from_lane", "pick_outside"])
def test_what_changes_between_look_and_lock_is_seen_as_it_is(pg_url: str, name: str) -> None:
    """The look is the cursor's snapshot, the lock comes with the fetch.

    A claimer leaves the task row as it is, so that lock is granted; only the ready row tells that the task is gone.
    """
    ids = names(20)

    async def fill(store: PostgresStore) -> None:
        await put_tasks(store, ids, ready=1)

    run(pg_url, fill)
    values = {
        "pick": ("{1}", 8, 4),
        "pick_allowed": ("{1}", 8, 4, "eve"),
        "pick_from_lane": (1, 4, "eve"),
        "pick_outside": ("{1}", 8, 4, "", "{}"),
    }
    with (
        psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as picker,
        psycopg.connect(pg_url, autocommit=True) as other,
    ):
        picker.execute(SQL["set_up"], ("10000", "10000", "10000", "on"))
        picker.execute(f"DECLARE look CURSOR FOR {SQL[name]}", values[name])
        other.execute("DELETE FROM allswell.ready WHERE task = ANY(%s)", (ids[:2],))
        other.execute("UPDATE allswell.task SET record = 'new' WHERE id = %s", (ids[3],))
        with psycopg.connect(pg_url) as holder:
            holder.execute("SELECT FROM allswell.task WHERE id = %s FOR UPDATE", (ids[4],))
            picked = picker.execute("FETCH ALL FROM look").fetchall()
    assert [(row[0], row[10]) for row in picked] == [(ids[2], "{}"), (ids[3], "new"), (ids[5], "{}"), (ids[6], "{}")]


def test_two_processes_that_claim_at_once_share_the_work(pg_url: str) -> None:
    ids = names(400)

    async def claim(store: PostgresStore) -> list[TaskId]:
        async def work(tx: Transaction) -> list[TaskId]:
            picked = list(await tx.pick([1], 10, None))
            ready = (await tx.read(RowRequest(tasks=picked))).ready
            taken = [task for task in picked if task in ready]
            await tx.write(RowChanges(drop_ready=[ready[task] for task in taken]))
            return taken

        taken: list[TaskId] = []
        while some := await store.transact(work):
            taken += some
        return taken

    async def main() -> None:
        async with opened(pg_url) as one, opened(pg_url) as two:
            await put_tasks(one, ids, ready=1)
            shares = await asyncio.gather(claim(one), claim(two), claim(one))
            assert sorted(task for share in shares for task in share) == ids

    asyncio.run(main())


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("name", ["pick", "pick_allowed", "pick_from_lane", "pick_outside"])
def test_the_pick_stays_on_its_index_with_50_000_ready_rows(pg_url: str, name: str, analyzed: bool) -> None:
    async def nothing(store: PostgresStore) -> None:
        pass

    run(pg_url, nothing)
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        if not analyzed:
            connection.execute("ANALYZE allswell.ready, allswell.task")  # while they are empty: the worst statistics
        connection.execute(
            "INSERT INTO allswell.task SELECT 't_' || n, '', null, '', n % 5, 0, 'open', n, null, '{}', '{}', 'null', "
            "NULL, n "
            "FROM generate_series(1, 50000) n"
        )
        connection.execute("INSERT INTO allswell.ready SELECT 't_' || n, n % 5, n FROM generate_series(1, 50000) n")
        if analyzed:
            connection.execute("ANALYZE allswell.ready, allswell.task")
        connection.execute(SQL["set_up"], ("10000", "10000", "10000", "on"))
        lanes = integers([0, 1, 2])
        values = {
            "pick": (lanes, 200, 100),
            "pick_allowed": (lanes, 200, 100, "eve"),
            "pick_from_lane": (1, 100, "eve"),
            "pick_outside": (lanes, 200, 100, "eve", "{}"),
        }
        rows = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) {SQL[name]}", values[name]).fetchall()
        plan = "\n".join(row[0] for row in rows)
    assert "ready_pkey" in plan, plan
    assert "Index Scan using task_pkey" in plan, plan
    assert "Seq Scan" not in plan, plan
    assert "rows=50000" not in plan.partition("Planning")[0].replace("(cost", ""), plan
