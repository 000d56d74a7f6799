"""Views: committed rows, filters, pages, and the states that are read off the rows."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ids import Millis, QuestionId, RunId, TaskId
from allswell.domain.task.model import FinishedTask, State, TaskFilter, TaskRow
from allswell.store.port import LockKind, RowChanges, Store
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, write

_STATES = {
    "t_waiting": "waiting",
    "t_asking": "waiting",
    "t_delayed": "delayed",
    "t_ready": "ready",
    "t_held": "held",
    "t_held_asking": "held",
    "t_done": "done",
    "t_failed": "failed",
    "t_cancelled": "cancelled",
    "t_skipped": "skipped",
    "t_split": "split",
}


def _one_of_each() -> RowChanges:
    ends = [
        rows.task(f"t_{end}", run="r_2", state=end.value) for end in State if f"t_{end}" in _STATES and end in _ENDS
    ]
    named = rows.task("t_ready", run="r_1", name="same name")
    changes = rows.new_tasks(
        rows.task("t_waiting", run="r_1"),
        replace(rows.task("t_asking"), role="critic"),
        rows.task("t_delayed", run="r_1", name="same name"),
        named,
        rows.task("t_held"),
        rows.task("t_held_asking"),
        *ends,
    )
    changes.new_questions = [rows.question("q_asking.1", "t_asking"), rows.question("q_held_asking.1", "t_held_asking")]
    changes.new_waits = [
        rows.need("t_waiting", "t_held"),
        rows.need("t_waiting", "t_delayed"),
        rows.asks("t_asking", "q_asking.1"),
        rows.asks("t_held_asking", "q_held_asking.1"),
    ]
    changes.new_leases = [rows.full_lease("t_held"), rows.lease("t_held_asking")]
    changes.new_ready = [rows.ready("t_ready")]
    changes.timers = [("t_delayed", Millis(7)), ("t_held", Millis(8)), ("t_held_asking", Millis(9))]
    return changes


_ENDS = (State.DONE, State.FAILED, State.CANCELLED, State.SKIPPED, State.SPLIT)


async def _ids(store: Store, which: TaskFilter) -> list[str]:
    return [row.task.id for row in await store.view_tasks(which)]


async def a_task_is_shown_with_where_it_stands(place: Place) -> None:
    """Its lease, whether it is ready, its timer and what it waits for."""
    async with place.store() as store:
        await write(store, _one_of_each())
        held = await store.view_task(TaskId("t_held"))
        waiting = await store.view_task(TaskId("t_waiting"))
        ready = await store.view_task(TaskId("t_ready"))
        listed = await store.view_tasks(TaskFilter())
        assert await store.view_task(TaskId("t_none")) is None
    assert held == TaskRow(rows.task("t_held"), rows.full_lease("t_held"), False, Millis(8), ())
    waits = (rows.need("t_waiting", "t_delayed"), rows.need("t_waiting", "t_held"))
    assert waiting == TaskRow(rows.task("t_waiting", run="r_1"), None, False, None, waits)
    assert ready == TaskRow(rows.task("t_ready", run="r_1", name="same name"), None, True, None, ())
    assert [row.task.id for row in listed] == sorted(_STATES)
    for row in (held, waiting, ready):
        assert row in listed


async def tasks_are_filtered(place: Place) -> None:
    """By being open, by run, by name, by state, by id and by a text, in any combination."""
    open_ones = sorted(id_ for id_, stands in _STATES.items() if stands not in _ENDS)
    async with place.store() as store:
        await write(store, _one_of_each())
        assert await _ids(store, TaskFilter(open=True)) == open_ones
        assert await _ids(store, TaskFilter(open=False)) == sorted(set(_STATES) - set(open_ones))
        assert await _ids(store, TaskFilter(run=RunId("r_1"))) == ["t_delayed", "t_ready", "t_waiting"]
        assert await _ids(store, TaskFilter(run=RunId("r_1"), open=False)) == []
        assert len(await _ids(store, TaskFilter(run=RunId("r_2"), open=False))) == len(_ENDS)
        assert await _ids(store, TaskFilter(run=RunId("r_none"))) == []
        assert await _ids(store, TaskFilter(name="same name")) == ["t_delayed", "t_ready"]
        assert await _ids(store, TaskFilter(name="same name", states=("ready",))) == ["t_ready"]
        assert await _ids(store, TaskFilter(role="critic")) == ["t_asking"]
        assert await _ids(store, TaskFilter(role="critic", states=("ready",))) == []
        some = (TaskId("t_ready"), TaskId("t_none"), TaskId("t_done"), TaskId("t_ready"))
        assert await _ids(store, TaskFilter(ids=some)) == ["t_done", "t_ready"]
        assert await _ids(store, TaskFilter(ids=some, open=True)) == ["t_ready"]
        assert await _ids(store, TaskFilter(ids=some, after="t_e")) == ["t_ready"]
        assert await _ids(store, TaskFilter(ids=())) == []
        assert await _ids(store, TaskFilter(open=True, newest=True)) == open_ones[::-1]
        assert await _ids(store, TaskFilter(open=True, newest=True, limit=2)) == open_ones[-1:-3:-1]
        assert await _ids(store, TaskFilter(open=True, newest=True, after=open_ones[2])) == open_ones[1::-1]
        assert await _ids(store, TaskFilter(open=True, below=open_ones[2])) == open_ones[:2]
        assert await _ids(store, TaskFilter(after=open_ones[0], open=True, below=open_ones[2])) == open_ones[1:2]
        assert await _ids(store, TaskFilter(open=True, newest=True, below=open_ones[2])) == open_ones[1::-1]
        assert await _ids(store, TaskFilter(text="SAME n")) == ["t_delayed", "t_ready"]
        assert await _ids(store, TaskFilter(text="Critic")) == ["t_asking"]
        assert await _ids(store, TaskFilter(text="t_held")) == ["t_held", "t_held_asking"]
        assert await _ids(store, TaskFilter(text=rows.full_lease("t_held").agent, states=("held",))) != []
        assert await _ids(store, TaskFilter(text="100%_")) == []
        for state in State:
            of_state = sorted(id_ for id_, stands in _STATES.items() if stands == state)
            assert await _ids(store, TaskFilter(states=(state.value,))) == of_state, state
        both = await _ids(store, TaskFilter(open=True, states=("held", "done")))
        assert both == ["t_held", "t_held_asking"]


async def tasks_are_counted_by_state(place: Place) -> None:
    """Open states follow from the rows, ends from the task."""
    expected: dict[str, int] = {}
    for stands in _STATES.values():
        expected[stands] = expected.get(stands, 0) + 1
    async with place.store() as store:
        assert not any((await store.view_counts()).values())
        await write(store, _one_of_each())
        counts = await store.view_counts()
    assert {str(state): count for state, count in counts.items() if count} == expected


async def tasks_are_paged_by_id(place: Place) -> None:
    """Each page begins after the last; ids are compared character by character, as Python does."""
    names = ["t_-", "t_.1", "t_0", "t_10", "t_9", "t_A", "t_Z", "t__", "t_a", "t_a-", "t_a.1", "t_aa", "t_b"]
    assert names == sorted(names)
    async with place.store() as store:
        await write(store, rows.new_tasks(*(rows.task(id_) for id_ in reversed(names))))
        assert await _ids(store, TaskFilter()) == names
        after, seen = "", list[str]()
        while page := await _ids(store, TaskFilter(after=after, limit=3)):
            assert len(page) <= 3
            seen += page
            after = page[-1]
        assert seen == names
        assert await _ids(store, TaskFilter(after="t_9", open=True, limit=2)) == ["t_A", "t_Z"]


async def questions_are_shown_oldest_first(place: Place) -> None:
    """Open ones unless all are wanted."""
    old = rows.question("q_2.1", "t_2", asked_at=AT - 5)
    closed = rows.question("q_1.1", "t_1", asked_at=AT - 9, closed=True)
    young = rows.question("q_1.2", "t_1")
    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_1"), rows.task("t_2"))
        changes.new_questions = [young, closed, old]
        await write(store, changes)
        assert await store.view_questions() == [old, young]
        assert await store.view_questions(limit=1) == [old]
        assert await store.view_questions(open_only=False) == [closed, old, young]
        assert await store.view_question(closed.id) == closed
        assert await store.view_question(QuestionId("q_none.1")) is None


async def runs_are_shown_newest_first(place: Place) -> None:
    """And agents that something is held against, and attempts in their order."""
    made = [rows.run("r_b", created_at=2), rows.run("r_a", created_at=3), rows.run("r_c", created_at=1)]
    agents = [rows.agent("alice"), rows.agent("ågent", 3)]
    attempts = [rows.attempt("t_1", token) for token in (10, 9, 1)]
    async with place.store() as store:
        assert await store.view_runs() == []
        assert await store.view_agents() == []
        assert await store.view_health() == {}
        changes = rows.new_tasks(rows.task("t_1"))
        changes.new_runs, changes.agents, changes.new_attempts = made, agents, attempts
        await write(store, changes, {LockKind.AGENT: ["alice", "ågent"]})
        told = {"bob": rows.health(), "ågent": rows.health(8)}
        await write(store, RowChanges(new_health=[*told.items()]), {LockKind.HEALTH: [*told]})
        assert await store.view_health() == told
        assert await store.view_runs() == [made[1], made[0], made[2]]
        assert await store.view_runs(limit=1) == [made[1]]
        assert sorted(await store.view_agents(), key=lambda agent: agent.id) == agents
        assert await store.view_attempts(TaskId("t_1")) == attempts[::-1]
        assert await store.view_attempts(TaskId("t_none")) == []


async def results_are_shown_by_run_and_role(place: Place) -> None:
    """Those of tasks that are done, a page at a time; a task that is open or ended otherwise has none to show."""
    made = []
    for id_, run, role, state in (
        ("t_3", "r_1", "step", "done"),
        ("t_1", "r_1", "step", "done"),
        ("t_2", "r_2", "step", "done"),
        ("t_4", "r_1", "", "done"),
        ("t_5", "r_1", "step", "failed"),
    ):
        task = replace(rows.task(id_, run=run, state=state), role=role)
        made.append(FinishedTask(task, "null", f'"{id_}"', replace(rows.attempt(id_, 1), late=None)))
    async with place.store() as store:
        changes = rows.new_tasks(replace(rows.task("t_6", run="r_1"), role="step"))
        changes.recorded = made
        await write(store, changes)
        run = RunId("r_1")
        assert await store.view_results(run, "step", "", 10) == [(TaskId("t_1"), '"t_1"'), (TaskId("t_3"), '"t_3"')]
        assert await store.view_results(run, "step", "", 1) == [(TaskId("t_1"), '"t_1"')]
        assert await store.view_results(run, "step", "t_1", 10) == [(TaskId("t_3"), '"t_3"')]
        assert await store.view_results(RunId("r_none"), "step", "", 10) == []


async def views_show_what_was_changed(place: Place) -> None:
    """A later commit is seen by the next look."""
    before = rows.task("t_1")
    after = replace(before, state="done", ended_at=Millis(AT + 1))
    async with place.store() as store:
        changes = rows.new_tasks(before)
        changes.timers = [("t_1", Millis(5))]
        await write(store, changes)
        await write(store, RowChanges(tasks=[(after, "[]")], drop_timers=["t_1"]), {LockKind.TASK: ["t_1"]})
        assert await store.view_task(before.id) == TaskRow(after, None, False, None, ())
        assert await store.view_payload(before.id) == ('"t_1"', "[]")
        assert (await store.view_agenda()).next_due is None


CASES: tuple[Case, ...] = (
    a_task_is_shown_with_where_it_stands,
    tasks_are_filtered,
    tasks_are_counted_by_state,
    tasks_are_paged_by_id,
    questions_are_shown_oldest_first,
    runs_are_shown_newest_first,
    results_are_shown_by_run_and_role,
    views_show_what_was_changed,
)
