"""Lanes, and what is handed out first."""

from __future__ import annotations

import asyncio

from allswell.domain.ids import AgentId, RunId, TaskId
from allswell.domain.task.model import Exclusion, Lane
from allswell.store.port import LockKind, RowChanges, RowRequest, Store, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, look, write


async def _pick(
    store: Store, lanes: list[int], count: int, agent: str | None = None, outside: tuple[RunId, ...] = ()
) -> list[str]:
    barred = None if agent is None else AgentId(agent)
    return list(await look(store, lambda tx: tx.pick(lanes, count, barred, outside)))


def _claimable(*claimable: tuple[str, int, int, int]) -> RowChanges:
    """Tasks by (id, lane, priority, age)."""
    tasks = [rows.task(id_, lane=lane, priority=priority, age=age) for id_, lane, priority, age in claimable]
    changes = rows.new_tasks(*tasks)
    changes.new_ready = [rows.ready_of(task) for task in tasks]
    return changes


async def the_best_rank_goes_first(place: Place) -> None:
    """Higher priority first, then the older, then the smaller id; over all lanes that were asked for."""
    async with place.store() as store:
        one, two, three = await store.intern_lanes([("a", ()), ("b", ()), ("c", ())])
        await write(
            store,
            _claimable(
                ("t_young", one, 5, 1),
                ("t_old", two, 5, 9),
                ("t_same_b", one, 0, 0),
                ("t_same_B", two, 0, 0),
                ("t_same_a", two, 0, 0),
                ("t_urgent", two, 1_000_000, 0),
                ("t_elsewhere", three, 1_000_000, 9),
            ),
        )
        order = ["t_urgent", "t_old", "t_young", "t_same_B", "t_same_a", "t_same_b"]
        assert await _pick(store, [one, two], 100) == order
        assert await _pick(store, [two, one], 2) == order[:2]
        assert await _pick(store, [one], 100) == ["t_young", "t_same_b"]
        assert await _pick(store, [three], 1) == ["t_elsewhere"]
        assert await _pick(store, [], 5) == []
        assert await _pick(store, [three + 1_000], 5) == []


async def runs_can_be_passed_over(place: Place) -> None:
    """Whoever looks outside of some runs is given nothing of them, and everything else, bars and all."""
    runs = [rows.run("r_1"), rows.run("r_2")]
    tasks = [
        rows.task(f"t_{number}", run=f"r_{number}" if number < 3 else None, priority=5 - number) for number in (1, 2, 3)
    ]
    changes = rows.new_tasks(*tasks)
    changes.new_runs = runs
    changes.new_ready = [rows.ready_of(task) for task in tasks]
    changes.new_bars = [Exclusion(TaskId("t_2"), AgentId("bob"))]
    async with place.store() as store:
        await write(store, changes)
        assert await _pick(store, [1], 5, None, (RunId("r_1"),)) == ["t_2", "t_3"]
        assert await _pick(store, [1], 5, "bob", (RunId("r_1"),)) == ["t_3"]
        assert await _pick(store, [1], 5, "carol", (RunId("r_1"), RunId("r_2"))) == ["t_3"]
        assert await _pick(store, [1], 1, None, (RunId("r_3"),)) == ["t_1"]


async def the_barred_are_passed_over(place: Place) -> None:
    """A task's bars keep those agents out and nobody else."""
    changes = _claimable(("t_1", 1, 2, 0), ("t_2", 1, 1, 0), ("t_3", 1, 0, 0))
    changes.new_bars = [Exclusion(TaskId("t_1"), AgentId("bob")), Exclusion(TaskId("t_2"), AgentId("carol"))]
    async with place.store() as store:
        await write(store, changes)
        assert await _pick(store, [1], 2, "bob") == ["t_2", "t_3"]
        assert await _pick(store, [1], 2, "carol") == ["t_1", "t_3"]
        assert await _pick(store, [1], 2, "alice") == ["t_1", "t_2"]
        assert await _pick(store, [1], 2) == ["t_1", "t_2"]


async def a_pick_sees_what_its_transaction_wrote(place: Place) -> None:
    """What this transaction made claimable can be picked, and what it took away cannot."""

    async def work(tx: Transaction) -> list[TaskId]:
        await tx.lock(LockKind.TASK, ["t_1"])
        changes = _claimable(("t_3", 1, 9, 0))
        changes.drop_ready = [rows.ready("t_1", priority=5)]
        await tx.write(changes)
        return list(await tx.pick([1], 9, None))

    async with place.store() as store:
        await write(store, _claimable(("t_1", 1, 5, 0), ("t_2", 1, 0, 0)))
        assert await store.transact(work) == ["t_3", "t_2"]


async def a_read_after_a_pick_gives_what_was_wanted(place: Place) -> None:
    """However much a store reads ahead, what nobody asked for must not be taken for an answer."""

    async def work(tx: Transaction) -> None:
        picked = list(await tx.pick([1], 9, None))
        assert picked == ["t_1", "t_2", "t_3"]
        got = await tx.read(RowRequest(tasks=picked[1:2], payloads=picked[:2]))
        assert list(got.tasks) == list(got.ready) == ["t_2"]
        assert sorted(got.payloads) == ["t_1", "t_2"]

    async with place.store() as store:
        await write(store, _claimable(("t_1", 1, 5, 0), ("t_2", 1, 4, 0), ("t_3", 1, 3, 0)))
        await store.transact(work)


async def no_task_is_handed_out_twice(place: Place) -> None:
    """Claimers that pick at the same time never get the same task, and together they get all of them."""
    place.needs_concurrency()
    count = 24

    async def work(tx: Transaction) -> list[TaskId]:
        picked = list(await tx.pick([1], 3, None))
        ready = (await tx.read(RowRequest(tasks=picked))).ready
        taken = [id_ for id_ in picked if id_ in ready]
        if taken:
            await tx.write(
                RowChanges(drop_ready=[ready[id_] for id_ in taken], new_leases=[rows.lease(id_) for id_ in taken])
            )
        return taken

    async with place.two_stores() as stores:
        await write(stores[0], _claimable(*((f"t_{number:02}", 1, 0, 0) for number in range(count))))
        given: list[str] = []
        for _ in range(count):
            answers = await asyncio.gather(*(store.transact(work) for store in stores * 2))
            given += [id_ for answer in answers for id_ in answer]
            if len(given) >= count:
                break
    assert sorted(given) == [f"t_{number:02}" for number in range(count)]


async def lanes_are_made_once(place: Place) -> None:
    """The same role and services always get the same lane; others never do."""
    wanted: list[tuple[str, tuple[str, ...]]] = [
        ("", ()), ("", ("s",)), ("rôle", ()), ("rôle", ("s", "t")), ("rôle", ("t", "s")), ("s", ()), ("", ("",))
    ]  # fmt: skip
    async with place.two_stores() as (first, second):
        made = await first.intern_lanes(wanted)
        assert len(set(made)) == len(wanted)
        assert await second.intern_lanes(wanted) == made
        assert await first.intern_lanes([*reversed(wanted), wanted[0]]) == [*reversed(made), made[0]]
        assert await first.intern_lanes([]) == []
        twice = await first.intern_lanes([("new", ()), ("new", ())])
        assert twice[0] == twice[1]
        lanes, _ = await look(second, lambda tx: tx.lanes())
    known = [Lane(id_, role, services) for id_, (role, services) in zip(made, wanted, strict=True)]
    assert sorted(lanes, key=_by_id) == sorted([*known, Lane(twice[0], "new", ())], key=_by_id)


def _by_id(lane: Lane) -> int:
    return lane.id


async def lanes_made_at_once_are_the_same(place: Place) -> None:
    """Two who intern the same lanes at the same time agree on them."""
    wanted: list[tuple[str, tuple[str, ...]]] = [(f"role{number}", ("s",)) for number in range(5)]
    async with place.two_stores() as stores:
        answers = await asyncio.gather(*(store.intern_lanes(wanted) for store in stores * 3))
    assert all(answer == answers[0] for answer in answers)


async def services_are_shown_with_the_lanes(place: Place) -> None:
    """Whoever chooses lanes sees what is held against each service."""
    made = [rows.service("s", AT), rows.service("t β", rows.BIG)]
    async with place.store() as store:
        await write(store, RowChanges(new_services=made), {LockKind.SERVICE: [row.id for row in made]})
        _, shown = await look(store, lambda tx: tx.lanes())
        assert await store.view_services() == shown == {row.id: row for row in made}


CASES: tuple[Case, ...] = (
    the_best_rank_goes_first,
    the_barred_are_passed_over,
    runs_can_be_passed_over,
    a_pick_sees_what_its_transaction_wrote,
    a_read_after_a_pick_gives_what_was_wanted,
    no_task_is_handed_out_twice,
    lanes_are_made_once,
    lanes_made_at_once_are_the_same,
    services_are_shown_with_the_lanes,
)
