"""What SQLite adds to the conformance suite: fences in SQL, picks over many lanes, states as the core sees them."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.task.aggregate import TaskAggregate, state
from allswell.domain.task.model import Exclusion, TaskFilter, TaskHistory, WaitState
from allswell.errors import Bug
from allswell.store.port import LockKind, RowChanges, RowConflict, RowRequest, Transaction
from tests.store.sqlite.scene import opened, put
from tests.support.conformance.rows import attempt, lease, ready, task


@pytest.mark.parametrize(
    "changes",
    [
        RowChanges(leases=[lease("t_1", 1)]),
        RowChanges(leases=[lease("t_1", 2), lease("t_2", 1)]),
        RowChanges(drop_leases=[(TaskId("t_1"), Token(3))]),
        RowChanges(drop_leases=[(TaskId("t_1"), Token(2)), (TaskId("t_1"), Token(2))]),
    ],
)
def test_a_lease_is_changed_under_its_token_only(tmp_path: Path, changes: RowChanges) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            held = lease("t_1", 2)
            await put(
                store, RowChanges(new_tasks=[(task("t_1"), "null")], new_leases=[held], timers=[("t_1", Millis(9))])
            )
            with pytest.raises(Bug, match="lease was to change"):
                await put(store, changes)
            found = await store.view_task(TaskId("t_1"))
            assert found is not None
            assert found.lease == held

    asyncio.run(main())


def test_many_leases_that_change_alike_are_each_fenced(tmp_path: Path) -> None:
    """Those that differ in nothing but their task go in one statement, and it tells if one of them is not as read."""
    tasks = [TaskId(f"t_{number:03d}") for number in range(40)]
    held = [lease(id_, 1) for id_ in tasks]
    renewed = [replace(one, renewed_at=Millis(7), checkin_at=Millis(7)) for one in held[:20]]
    noted = [replace(one, note="own words") for one in held[20:22]]
    stale = [replace(one, token=Token(2)) for one in renewed[:1]]

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, RowChanges(new_tasks=[(task(id_), "null") for id_ in tasks], new_leases=held))
            again = [*(lease(f"u_{number}", 1) for number in range(9)), held[5]]
            with pytest.raises(Bug, match=r"UNIQUE constraint failed: lease\.task"):
                await put(store, RowChanges(new_leases=again))
            with pytest.raises(Bug, match="update_lease was to change 20 rows and changed 19"):
                await put(store, RowChanges(leases=[*stale, *renewed[1:]]))
            with pytest.raises(Bug, match="delete_lease was to change 41 rows and changed 40"):
                await put(store, RowChanges(drop_leases=[(id_, Token(1)) for id_ in (*tasks, TaskId("t_none"))]))
            await put(store, RowChanges(leases=[*renewed, *noted]))
            await put(store, RowChanges(drop_leases=[(id_, Token(1)) for id_ in tasks[22:39]]))
            rows = await store.view_tasks(TaskFilter())
            assert [row.lease for row in rows] == [*renewed, *noted, *[None] * 17, held[39]]

    asyncio.run(main())


def test_many_tasks_that_end_alike_are_each_changed(tmp_path: Path) -> None:
    """What was said of many at once is written by one statement; what differs among them stays with its own."""
    tasks = [task(f"t_{number:03d}") for number in range(30)]
    ids = [one.id for one in tasks]
    record = TaskHistory(token=Token(1), reason="completed", ended_by=CommandId("c"))
    over = [replace(one, state="done", ended_at=Millis(9), record=record) for one in tasks]
    other = replace(over[12], record=replace(record, reason="in its own way"))
    ended = [attempt(id_) for id_ in ids]
    results = ["null"] * 20 + [str(number) for number in range(20, 30)]
    changed = [*over[:12], other, *over[13:]]
    kept = [*ended[:7], *ended[8:]]  # one of them had no attempt that ended

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, RowChanges(new_tasks=[(one, "null") for one in tasks]))
            with pytest.raises(RowConflict, match="insert_task"):
                await put(
                    store,
                    RowChanges(new_tasks=[(task(f"u_{number}"), "null") for number in range(9)] + [(tasks[3], "null")]),
                )
            missing = replace(over[0], id=TaskId("t_none"))
            with pytest.raises(Bug, match="update_task was to change 31 rows and changed 30"):
                await put(store, RowChanges(tasks=[(one, "null") for one in (*over, missing)]))
            await put(store, RowChanges(tasks=[*zip(changed, results, strict=True)], new_attempts=kept))
        async with opened(tmp_path / "x.db") as store:
            assert [row.task for row in await store.view_tasks(TaskFilter())] == changed
            assert [(await store.view_payload(id_))[1] for id_ in ids] == results
            assert [one for id_ in ids for one in await store.view_attempts(id_)] == kept

    asyncio.run(main())


def test_a_text_that_looks_like_what_stands_for_none_stays_a_text(tmp_path: Path) -> None:
    """Absent and usual values are bound as the number -1."""
    made = replace(task("t_1"), name="-1", role="-1")
    held = replace(lease("t_1", 1), note="-1", command=CommandId("-1"))

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, RowChanges(new_tasks=[(made, "-1"), (task("t_2"), "null")], new_leases=[held]))
        async with opened(tmp_path / "x.db") as store:
            found = await store.view_task(TaskId("t_1"))
            assert found is not None
            assert (found.task, found.lease) == (made, held)
            wanted = RowRequest(payloads=[TaskId("t_1"), TaskId("t_2")])

            async def read(tx: Transaction) -> dict[TaskId, str]:
                return (await tx.read(wanted)).payloads

            assert await store.transact(read) == {"t_1": "-1", "t_2": "null"}

    asyncio.run(main())


def test_the_best_of_many_lanes(tmp_path: Path) -> None:
    rows = [ready(f"t_{number:03d}", lane=number % 7, priority=number * 37 % 11) for number in range(200)]
    ann = AgentId("ann")
    barred = {row.task for row in rows[::3]}

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(
                store, RowChanges(new_ready=rows, new_bars=[Exclusion(TaskId(id_), ann) for id_ in sorted(barred)])
            )

            async def work(tx: Transaction) -> None:
                for lanes, count, agent in product([[], [3], [1, 2, 6], list(range(9))], [1, 10, 500], [None, ann]):
                    fits = [row for row in rows if row.lane in lanes and (agent is None or row.task not in barred)]
                    best = sorted((row.rank, row.task) for row in fits)[:count]
                    assert await tx.pick(lanes, count, agent) == [id_ for _, id_ in best]

            await store.transact(work)

    asyncio.run(main())


def test_ids_given_twice_count_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            id_, wait = TaskId("t_1"), WaitState(TaskId("t_1"), "need", TaskId("t_2"))
            await put(store, RowChanges(new_tasks=[(task("t_1"), "null")], new_waits=[wait]))

            async def work(tx: Transaction) -> None:
                assert await tx.lock(LockKind.TASK, [id_, id_]) == [id_]
                found = await tx.read(RowRequest(tasks=[id_, id_], payloads=[id_, id_]))
                assert found.waits == {id_: [wait]}
                assert found.payloads == {id_: "null"}

            await store.transact(work)

    asyncio.run(main())


def test_states_in_sql_are_those_of_the_core(tmp_path: Path) -> None:
    """The one rule that stands twice: here it is held to the first."""
    cases: list[TaskAggregate] = []
    for number, (held, waits, claimable, due) in enumerate(product([False, True], repeat=4)):
        if not (held or waits or claimable or due):
            continue
        id_ = f"t_{number:02d}"
        cases.append(
            TaskAggregate(
                task(id_),
                lease=lease(id_) if held else None,
                ready=ready(id_) if claimable else None,
                due=Millis(9) if due else None,
                waits=(WaitState(TaskId(id_), "need", TaskId("t_00")),) if waits else (),
            )
        )
    cases.append(TaskAggregate(replace(task("t_99"), state="done", ended_at=Millis(9))))

    async def main() -> None:
        changes = RowChanges(
            new_tasks=[(case.task, "null") for case in cases],
            new_leases=[case.lease for case in cases if case.lease],
            new_ready=[case.ready for case in cases if case.ready],
            timers=[(case.task.id, case.due) for case in cases if case.due],
            new_waits=[wait for case in cases for wait in case.waits],
        )
        expected: dict[str, list[str]] = {}
        for case in cases:
            expected.setdefault(state(case).value, []).append(case.task.id)
        async with opened(tmp_path / "x.db") as store:
            await put(store, changes)
            for name, ids in expected.items():
                assert [row.task.id for row in await store.view_tasks(TaskFilter(states=(name,)))] == ids

    asyncio.run(main())


def test_states_are_counted_as_they_are_listed(tmp_path: Path) -> None:
    """By sums, so only of what can be: a task that is ready neither is held nor waits (`test_size` counts many)."""

    async def main() -> None:
        changes = RowChanges(
            new_tasks=[(task(f"t_{number:02d}"), "null") for number in range(7)],
            new_leases=[lease("t_00"), lease("t_01")],
            new_waits=[WaitState(TaskId(id_), "need", TaskId("t_05")) for id_ in ("t_01", "t_02", "t_03")],
            new_ready=[ready("t_04"), ready("t_05")],
            timers=[(f"t_{number:02d}", Millis(9)) for number in (0, 1, 3, 5, 6)],
        )
        async with opened(tmp_path / "x.db") as store:
            await put(store, changes)
            counts = await store.view_counts()
            assert counts == {"held": 2, "waiting": 2, "ready": 2, "delayed": 1}
            for name, count in counts.items():
                assert len(await store.view_tasks(TaskFilter(states=(name,)))) == count

    asyncio.run(main())
