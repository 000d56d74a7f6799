"""Runs whose clocks stand, the leases that move with them, and all that comes after an attempt's end."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ids import Millis, RunId, TaskId
from allswell.domain.run.run import Run
from allswell.store.clock import DueTimer
from allswell.store.port import LockKind, RowChanges, RowRequest
from tests.support.conformance import rows
from tests.support.conformance.place import Case, Place, look, read, write

_RUN = RunId("r_1")
_AT = Millis(1_700_000_000_000)


async def a_run_s_clock_is_kept(place: Place) -> None:
    """Since when it stands, for what, for how long it stood before: as it was written, for all who look."""
    stands = replace(rows.full_run("r_1"), asked=2, stands_since=_AT, stood=1 << 40, moves=3)
    goes = Run(_RUN, "on", _AT, Millis(5), stood=7, moves=4)
    changes = rows.new_tasks()
    changes.new_runs = [stands, rows.run("r_2")]
    async with place.store() as store:
        await write(store, changes)
        assert await store.view_run(_RUN) == stands
        assert await store.view_run(RunId("r_none")) is None
        await write(store, RowChanges(runs=[replace(goes, created_at=stands.created_at)]), {LockKind.RUN: ["r_1"]})
        expected = {_RUN: replace(goes, created_at=stands.created_at)}
        assert (await read(store, RowRequest(runs=[_RUN]))).runs == expected
        assert await look(store, lambda tx: tx.runs([_RUN, RunId("r_none")])) == expected


async def a_question_says_whether_it_is_waited_for(place: Place) -> None:
    """That is kept, and closing the question does not change it."""
    changes = rows.new_tasks(rows.task("t_1"))
    changes.new_questions = [rows.question("q_1.1", "t_1"), replace(rows.question("q_1.2", "t_1"), waited=True)]
    async with place.store() as store:
        await write(store, changes)
        closed = replace(rows.question("q_1.2", "t_1", closed=True), waited=True)
        await write(store, RowChanges(questions=[closed]), {LockKind.QUESTION: ["q_1.2"]})
        seen = {question.id: question.waited for question in await store.view_questions(open_only=False)}
        assert seen == {"q_1.1": False, "q_1.2": True}


async def a_lease_keeps_the_limit_of_its_own(place: Place) -> None:
    """It comes, changes and goes with the limit of its run."""
    cut = replace(rows.lease("t_1"), own=Millis(_AT + 99))
    changes = rows.new_tasks(*(rows.task(id_) for id_ in ("t_1", "t_2")))
    changes.new_leases = [cut, rows.lease("t_2")]
    locks = {LockKind.TASK: ["t_1", "t_2"], LockKind.LEASE: ["t_1", "t_2"]}
    async with place.store() as store:
        await write(store, changes)
        wanted = RowRequest(leases=[TaskId("t_1"), TaskId("t_2")])
        assert (await read(store, wanted)).leases == {"t_1": cut, "t_2": rows.lease("t_2")}
        row = await store.view_task(TaskId("t_1"))
        assert row is not None
        assert row.lease == cut
        moved = [replace(cut, deadline=Millis(7), own=None), replace(rows.lease("t_2"), own=Millis(8))]
        await write(store, RowChanges(leases=moved), locks)
        assert (await read(store, wanted)).leases == {lease.task: lease for lease in moved}


async def runs_and_holders_of_tasks_are_found(place: Place) -> None:
    """In which run a task is, and what is held in a run, a page at a time."""
    tasks = [rows.task(id_, run="r_1") for id_ in ("t_1", "t_2", "t_3")]
    changes = rows.new_tasks(*tasks, rows.task("t_4", run="r_2"), rows.task("t_5"))
    changes.new_leases = [rows.lease(id_) for id_ in ("t_1", "t_3", "t_4", "t_5")]
    asked = [TaskId(id_) for id_ in ("t_1", "t_4", "t_5", "t_none")]
    async with place.store() as store:
        await write(store, changes)
        assert await look(store, lambda tx: tx.find_runs(asked)) == {"t_1": "r_1", "t_4": "r_2"}
        assert list(await look(store, lambda tx: tx.find_held(_RUN, "", 9))) == ["t_1", "t_3"]
        assert list(await look(store, lambda tx: tx.find_held(_RUN, "", 1))) == ["t_1"]
        assert list(await look(store, lambda tx: tx.find_held(_RUN, "t_1", 9))) == ["t_3"]
        assert list(await look(store, lambda tx: tx.find_held(RunId("r_none"), "", 9))) == []


async def a_run_s_timer_comes_last_in_its_moment(place: Place) -> None:
    """What falls due together with a run's end is handed out before it, however few are asked for."""
    changes = rows.new_tasks(*(rows.task(id_) for id_ in ("t_1", "t_2")))
    changes.new_runs = [rows.run("r_1"), rows.run("r_2")]
    changes.new_leases = [rows.lease("t_2")]
    changes.timers = [(owner, Millis(due)) for owner, due in (("r_1", 9), ("r_2", 8), ("t_1", 9), ("t_2", 9))]
    holder = rows.lease("t_2").agent
    async with place.store() as store:
        await write(store, changes)
        expected = [DueTimer("r_2", None), DueTimer("t_1", None), DueTimer("t_2", holder), DueTimer("r_1", None)]
        assert list(await look(store, lambda tx: tx.find_due(Millis(9), 9))) == expected
        assert list(await look(store, lambda tx: tx.find_due(Millis(9), 3))) == expected[:3]


async def what_comes_after_an_attempt_is_kept(place: Place) -> None:
    """With a first attempt, which its task's row may hold, and with later ones; and it grows."""
    first, second = (replace(rows.attempt("t_1", token), late=None) for token in (1, 2))
    ended = rows.task("t_1")
    async with place.store() as store:
        await write(store, rows.new_tasks(ended))
        locks = {LockKind.TASK: ["t_1"]}
        late = [first, second]
        await write(store, RowChanges(tasks=[(ended, None)], new_attempts=[first]), locks)
        await write(store, RowChanges(new_attempts=[replace(second, afterwards='{"checkins":1}')]), locks)
        for after in ('{"checkins":1}', '{"checkins":2,"note":"“§”"}'):
            late = [replace(one, afterwards=after) for one in (first, second)]
            await write(store, RowChanges(late_attempts=late), locks)
            assert await store.view_attempts(ended.id) == late
        keys = [(ended.id, first.token), (ended.id, second.token)]
        assert (await read(store, RowRequest(attempts=keys))).attempts == dict(zip(keys, late, strict=True))


CASES: tuple[Case, ...] = (
    a_run_s_clock_is_kept,
    a_question_says_whether_it_is_waited_for,
    a_lease_keeps_the_limit_of_its_own,
    runs_and_holders_of_tasks_are_found,
    a_run_s_timer_comes_last_in_its_moment,
    what_comes_after_an_attempt_is_kept,
)
