"""Rows come back as they were written: made, replaced, changed, dropped."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.agents.cost import ExpenseRow, Spent
from allswell.domain.ids import AgentId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.run.run import Fanout
from allswell.domain.task.model import Exclusion, FinishedTask, State
from allswell.store.port import LockKind, RowChanges, RowConflict, RowRequest, Transaction
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Locks, Place, ids, read, take, write


async def every_kind_of_row_comes_back_unchanged(place: Place) -> None:
    """Other scripts, quotes, nothing, numbers that no float holds: all as they were."""
    task, held = rows.full_task("t_full"), rows.full_lease("t_full")
    plain = rows.task("t_plain")
    asked = rows.question("q_full.1", "t_full")
    bare = replace(asked, id=QuestionId("q_full.2"), run=RunId("r_1"), options=(), text="", asked_by="")
    bare = replace(bare, waited=True, dismissed_at=Millis(AT), dismissed_by="grâce")
    split = Fanout(TaskId("t_full"), "split", rows.TEXT, tuple(ids("t_b", "t_a")))
    ended, second = rows.attempt("t_full", rows.BIG), rows.attempt("t_full", 2)
    waits = [rows.asks("t_full", "q_full.1"), rows.need("t_full", "t_plain")]
    changes = RowChanges(
        new_runs=[rows.run("r_1"), rows.full_run("r_2")],
        new_questions=[asked, bare],
        new_tasks=[(task, rows.TEXT), (plain, "")],
        new_ready=[rows.ready_of(task)],
        timers=[("t_full", Millis(rows.BIG)), ("r_1", Millis(AT))],
        new_waits=waits,
        new_bars=[Exclusion(task.id, AgentId("bob")), Exclusion(task.id, AgentId("ågent"))],
        new_leases=[held],
        new_attempts=[ended, second],
        new_spreads=[split, rows.spread("r_2")],
    )
    async with place.store() as store:
        await write(store, changes)
        both = ids("t_full", "t_plain")
        got = await read(
            store,
            RowRequest(
                spreads=["t_full", "r_2"],
                runs=[RunId("r_1"), RunId("r_2")],
                questions=[asked.id, bare.id],
                tasks=both,
                leases=both,
                attempts=[(task.id, Token(rows.BIG)), (task.id, Token(2)), (task.id, Token(3))],
                awaited=both,
                payloads=both,
                bars=both,
            ),
        )
    assert got.tasks == {task.id: task, plain.id: plain}
    assert got.leases == {task.id: held}
    assert got.runs == {RunId("r_1"): rows.run("r_1"), RunId("r_2"): rows.full_run("r_2")}
    assert got.questions == {asked.id: asked, bare.id: bare}
    assert got.ready == {task.id: rows.ready_of(task)}
    assert got.timers.get("t_full") == rows.BIG
    assert "t_plain" not in got.timers
    assert {id_: found for id_, found in got.waits.items() if found} == {task.id: sorted(waits)}
    assert got.attempts == {(task.id, ended.token): ended, (task.id, second.token): second}
    assert got.awaited == {plain.id}
    assert got.payloads == {task.id: rows.TEXT, plain.id: ""}
    assert {id_: found for id_, found in got.bars.items() if found} == {task.id: {"bob", "ågent"}}
    assert got.spreads == {"t_full": split, "r_2": rows.spread("r_2")}


MANY = 10**11
"""Tokens."""


async def what_attempts_cost_comes_back_and_is_summed(place: Place) -> None:
    """A later word replaces the one before; what was not reported is not known, in sums too."""
    first = ExpenseRow(
        TaskId("t_1"), Token(1), AgentId("ågent"), "rôle", RunId("r_1"), Millis(AT), rows.BIG, None, MANY
    )
    second = replace(first, token=Token(2), agent=AgentId("bob"), told_at=Millis(AT + 5), cost=None, given=7)
    other = replace(first, task=TaskId("t_2"), role="", run=None, cost=3, written=None)
    async with place.store() as store:
        await write(store, RowChanges(new_tasks=[(rows.task("t_1"), "null"), (rows.task("t_2"), "null")]))
        locks = {LockKind.TASK: ["t_1", "t_2"]}
        await write(store, RowChanges(expenses=[first, second, other]), locks)
        later = replace(first, cost=11, told_at=Millis(AT + 9))
        await write(store, RowChanges(expenses=[later]), locks)
        got = await read(store, RowRequest(tasks=ids("t_1", "t_2"), expenses=ids("t_1", "t_2")))
        assert got.expenses == {first.task: [later, second], other.task: [other]}
        assert await store.view_expenses(first.task) == [later, second]
        assert await store.view_expenses(TaskId("t_none")) == []
        of_first, of_other = Spent(2, 1, 11, 7, 2 * MANY), Spent(1, 1, 3, None, None)
        assert await store.view_spent("task") == {"t_1": of_first, "t_2": of_other}
        assert await store.view_spent("run") == {"r_1": of_first}
        assert await store.view_spent("run", ("r_2",)) == {}
        assert await store.view_spent("role", ("rôle",), AT + 6) == {"rôle": Spent(1, 1, 11, None, MANY)}
        assert await store.view_spent("agent", ("bob",)) == {"bob": Spent(1, 0, None, 7, MANY)}
        assert await store.view_spent("all") == {"": Spent(3, 2, 14, 7, 2 * MANY)}
        assert await store.view_spent("all", (), AT + 10) == {}


async def a_task_may_be_finished_as_it_is_made(place: Place) -> None:
    """With its payload, its result and its one attempt, which can still be brought something late; and only once."""
    done = replace(rows.full_task("t_step"), state=State.DONE.value, ended_at=Millis(AT + 9), run=RunId("r_1"))
    plain = replace(rows.task("t_plain", state=State.DONE.value), run=None)
    ended = replace(rows.attempt("t_step", 1), late=None)
    made = [
        FinishedTask(done, rows.TEXT, rows.TEXT, ended),
        FinishedTask(plain, "null", "null", replace(rows.attempt("t_plain", 1), late=None)),
    ]
    async with place.store() as store:
        await write(store, RowChanges(recorded=made))
        both = ids("t_step", "t_plain")
        got = await read(store, RowRequest(tasks=both, attempts=[(done.id, Token(1))], payloads=both))
        assert await store.view_payload(done.id) == (rows.TEXT, rows.TEXT)
        assert await store.view_attempts(done.id) == [ended]
        late = replace(ended, late='{"late": true}')
        await write(store, RowChanges(late_attempts=[late]), {LockKind.TASK: ["t_step"]})
        assert await store.view_attempts(done.id) == [late]
        for twice in (RowChanges(recorded=made[:1]), rows.new_tasks(rows.task("t_plain"))):
            try:
                await write(store, twice)
            except RowConflict:
                continue
            raise AssertionError("a task was made twice")
    assert got.tasks == {done.id: done, plain.id: plain}
    assert not got.ready
    assert not got.timers
    assert not any(got.waits.values())
    assert got.attempts == {(done.id, Token(1)): ended}
    assert got.payloads == {done.id: rows.TEXT, plain.id: "null"}


async def services_and_agents_are_made_and_replaced(place: Place) -> None:
    """A service's row is made, then replaced, as is an agent's health; a put does both to an agent, which can go."""
    services, agents = ["plain", "svc-β"], [AgentId("alice"), AgentId("ågent")]
    locks: Locks = {LockKind.SERVICE: services, LockKind.AGENT: agents, LockKind.HEALTH: ["ann", "ågent"]}
    wanted = RowRequest(services=services, agents=agents, health=["ann", "ågent"])
    async with place.store() as store:
        first = RowChanges(
            new_services=[rows.service("svc-β", 1)],
            agents=[rows.agent("alice"), rows.agent("ågent", 3)],
            new_health=[("ågent", rows.health())],
        )
        await write(store, first, locks)
        second = RowChanges(
            services=[rows.service("svc-β", rows.BIG)],
            new_services=[rows.service("plain", 2)],
            agents=[rows.agent("alice", 2)],
            drop_agents=[AgentId("ågent")],
            new_health=[("ann", rows.health(0))],
            health=[("ågent", rows.health(8))],
        )
        await write(store, second, locks)
        got = await read(store, wanted)
    assert got.services == {"svc-β": rows.service("svc-β", rows.BIG), "plain": rows.service("plain", 2)}
    assert got.agents == {AgentId("alice"): rows.agent("alice", 2)}
    assert got.health == {"ann": rows.health(0), "ågent": rows.health(8)}


async def rows_change_and_go(place: Place) -> None:
    """Updates replace rows, drops remove them, and what was not named stays."""
    old, other = rows.task("t_1"), rows.task("t_2")
    first = RowChanges(
        new_runs=[rows.run("r_1")],
        new_tasks=[(old, '"in"'), (other, "{}")],
        new_questions=[rows.question("q_1.1", "t_1")],
        new_ready=[rows.ready("t_1"), rows.ready("t_2")],
        timers=[("t_1", Millis(1)), ("t_2", Millis(2))],
        new_waits=[rows.need("t_1", "t_2"), rows.asks("t_1", "q_1.1")],
        new_leases=[rows.lease("t_1"), rows.lease("t_2")],
        new_attempts=[rows.attempt("t_1")],
        new_spreads=[rows.spread("t_1"), rows.spread("t_2")],
    )
    done = replace(
        old, state=State.DONE.value, ended_at=Millis(AT + 9), record=replace(old.record, token=Token(1), reason="ok")
    )
    closed = replace(rows.question("q_1.1", "t_1", closed=True), dismissed_at=Millis(AT), dismissed_by="grâce")
    run = replace(rows.run("r_1"), ended_at=Millis(AT + 8), reason="over")
    # Everything that the core may change on a lease after it was granted.
    renewed = replace(
        rows.lease("t_2"),
        deadline=Millis(AT + 900_007),
        judged=3,
        stalled_at=Millis(AT + 5),
        renewed_at=Millis(AT + 7),
        checkin_at=Millis(AT + 6),
        progress=0.5,
        note=rows.TEXT,
    )
    late = replace(rows.attempt("t_1"), late='{"late": true}')
    second = RowChanges(
        runs=[run],
        questions=[closed],
        tasks=[(done, '"out"'), (other, None)],
        drop_ready=[rows.ready("t_1")],
        timers=[("t_2", Millis(20))],
        drop_timers=["t_1"],
        drop_waits=[rows.need("t_1", "t_2")],
        leases=[renewed],
        drop_leases=[(TaskId("t_1"), Token(1))],
        late_attempts=[late],
        drop_spreads=["t_2"],
    )
    both = ids("t_1", "t_2")
    locks: Locks = {
        LockKind.SPREAD: ["t_2"],
        LockKind.RUN: ["r_1"],
        LockKind.QUESTION: ["q_1.1"],
        LockKind.TASK: both,
        LockKind.LEASE: both,
    }
    async with place.store() as store:
        await write(store, first)
        await write(store, second, locks)
        got = await read(
            store,
            RowRequest(
                spreads=["t_1", "t_2"],
                runs=[run.id],
                questions=[closed.id],
                tasks=both,
                leases=both,
                attempts=[(old.id, Token(1))],
                awaited=both,
            ),
        )
        payloads = [await store.view_payload(id_) for id_ in ids("t_1", "t_2", "t_none")]
    assert got.tasks == {old.id: done, other.id: other}
    assert got.runs == {run.id: run}
    assert got.questions == {closed.id: closed}
    assert got.ready == {other.id: rows.ready("t_2")}
    assert {owner: due for owner, due in got.timers.items() if owner in both} == {"t_2": 20}
    assert {id_: found for id_, found in got.waits.items() if found} == {old.id: [rows.asks("t_1", "q_1.1")]}
    assert got.leases == {other.id: renewed}
    assert got.attempts == {(old.id, Token(1)): late}
    assert got.awaited == set()
    assert got.spreads == {"t_1": rows.spread("t_1")}
    assert payloads == [('"in"', '"out"'), ("{}", None), (None, None)]


async def only_what_may_change_of_a_late_attempt_changes(place: Place) -> None:
    """An ended attempt stays as it ended; what came late is added."""
    ended = rows.attempt("t_1")
    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_1"))
        changes.new_attempts = [ended]
        await write(store, changes)
        forged = replace(ended, outcome="done", detail="", late='"here"')
        await write(store, RowChanges(late_attempts=[forged]), {LockKind.TASK: ["t_1"]})
        assert await store.view_attempts(ended.task) == [replace(ended, late='"here"')]


async def a_transaction_reads_its_own_writes(place: Place) -> None:
    """What was written is read back before the commit, and what was dropped is gone."""

    async def work(tx: Transaction) -> None:
        await take(tx, {LockKind.TASK: ["t_old"], LockKind.LEASE: ["t_old"]})
        old = TaskId("t_old")
        await tx.write(
            RowChanges(
                new_tasks=[(rows.task("t_new"), '"p"')],
                new_ready=[rows.ready("t_new")],
                new_waits=[rows.need("t_new", "t_old")],
                new_bars=[Exclusion(TaskId("t_new"), AgentId("bob"))],
                drop_ready=[rows.ready("t_old")],
                drop_leases=[(old, Token(1))],
                timers=[("t_new", Millis(3))],
            )
        )
        new = TaskId("t_new")
        both = [new, old]
        got = await tx.read(RowRequest(tasks=both, leases=[old], awaited=both, payloads=[new], bars=[new]))
        assert got.tasks == {new: rows.task("t_new"), old: rows.task("t_old")}
        assert got.ready == {new: rows.ready("t_new")}
        assert got.timers == {"t_new": 3}
        assert got.waits[new] == [rows.need("t_new", "t_old")]
        assert got.leases == {}
        assert got.awaited == {old}
        assert got.payloads == {new: '"p"'}
        assert got.bars == {new: {"bob"}}
        await tx.write(RowChanges(new_leases=[rows.lease("t_old", 2)], drop_waits=[rows.need("t_new", "t_old")]))
        again = await tx.read(RowRequest(leases=[old], awaited=[old]))
        assert again.leases == {old: rows.lease("t_old", 2)}
        assert again.awaited == set()

    async with place.store() as store:
        changes = rows.new_tasks(rows.task("t_old"))
        changes.new_ready = [rows.ready("t_old")]
        changes.new_leases = [rows.lease("t_old")]
        await write(store, changes)
        await store.transact(work)


CASES: tuple[Case, ...] = (
    every_kind_of_row_comes_back_unchanged,
    what_attempts_cost_comes_back_and_is_summed,
    a_task_may_be_finished_as_it_is_made,
    services_and_agents_are_made_and_replaced,
    rows_change_and_go,
    only_what_may_change_of_a_late_attempt_changes,
    a_transaction_reads_its_own_writes,
)
