"""The memory store behaves as a database does: weather, lost answers, late commits, rows that come and go."""

import asyncio
import random

import pytest

from allswell.domain.ids import Millis, TaskId, Token
from allswell.domain.rules.event import Position
from allswell.domain.task.model import OPEN, State, WaitState
from allswell.errors import Bug, Unavailable
from allswell.store.memory import AnswerLost, MemoryStore
from allswell.store.port import CommitUnknown, LockKind, RowChanges, RowRequest, Transaction
from allswell.testing.loop import DeterministicLoop, VirtualClock
from tests.support.conformance import rows
from tests.support.conformance.place import take, write

ONE = TaskId("t_1")


class Weather:
    """Raises what it is told to, where it is told to."""

    def __init__(self, at: str = "", error: Exception | None = None) -> None:
        self.at = at
        self.error = error
        self.seen: list[str] = []

    async def _strike(self, where: str) -> None:
        self.seen.append(where)
        if where == self.at and self.error is not None:
            raise self.error

    async def before(self, statement: str) -> None:
        await self._strike(statement)

    async def before_commit(self) -> None:
        await self._strike("before_commit")

    async def after_commit(self) -> None:
        await self._strike("after_commit")


async def opened(store: MemoryStore) -> MemoryStore:
    await store.open()
    return store


@pytest.mark.parametrize("at", ["lock", "now", "write", "before_commit"])
def test_a_broken_connection_leaves_nothing_and_frees_the_locks(at: str) -> None:
    async def main() -> None:
        store = await opened(MemoryStore())
        await write(store, rows.new_tasks(rows.task("t_1")))
        broken = await opened(store.another(faults=Weather(at, Unavailable("the line is cut"))))
        with pytest.raises(Unavailable):
            await write(broken, RowChanges(timers=[("t_1", Millis(1))]), {LockKind.TASK: ["t_1"]})
        assert (await store.view_agenda()).next_due is None
        assert store.database.locks.is_idle()

    asyncio.run(main())


@pytest.mark.parametrize(
    "at, error, committed",
    [
        ("before_commit", AnswerLost(), False),
        ("after_commit", AnswerLost(), True),
        ("after_commit", Unavailable("cut"), True),
    ],
)
def test_a_lost_answer_can_be_asked_for(at: str, error: Exception, committed: bool) -> None:
    async def main() -> None:
        weather = Weather(at, error)
        store = await opened(MemoryStore(faults=weather))
        with pytest.raises(CommitUnknown) as lost:
            await write(store, rows.new_tasks(rows.task("t_1")))
        weather.error = None
        assert await store.outcome(lost.value.ticket) is committed
        assert (await store.view_task(ONE) is not None) is committed
        with pytest.raises(Bug):
            await store.outcome("another")

    asyncio.run(main())


def test_the_weather_is_asked_before_every_statement_and_view() -> None:
    async def main() -> None:
        weather = Weather()
        store = await opened(MemoryStore(faults=weather))
        await write(store, RowChanges(), {LockKind.TASK: ["t_1"]})
        await store.view_counts()
        assert weather.seen == ["lock", "now", "write", "before_commit", "after_commit", "view_counts"]

    asyncio.run(main())


def test_on_commit_is_told_what_was_written_by_any_connection() -> None:
    async def main() -> None:
        store = await opened(MemoryStore())
        told: list[list[RowChanges]] = []
        store.on_commit = told.append
        changes = rows.new_tasks(rows.task("t_1"))
        await write(await opened(store.another()), changes)
        assert told == [[changes]]
        assert store.unaccounted() == ["t_1"]

    asyncio.run(main())


def test_a_dropped_row_that_is_made_anew_is_another_row() -> None:
    """Who waits for a lease's lock while it is dropped and made again does not get the new one, as on PostgreSQL."""

    async def main() -> None:
        store = await opened(MemoryStore())
        changes = rows.new_tasks(rows.task("t_1"))
        changes.new_leases = [rows.lease("t_1", 1)]
        await write(store, changes)
        held = asyncio.Event()

        async def replace(tx: Transaction) -> None:
            await take(tx, {LockKind.TASK: ["t_1"], LockKind.LEASE: ["t_1"]})
            held.set()
            for _ in range(5):
                await tx.lanes()
            await tx.write(RowChanges(drop_leases=[(ONE, Token(1))]))
            await tx.write(RowChanges(new_leases=[rows.lease("t_1", 2)]))

        async def check_in(tx: Transaction) -> list[str]:
            while not held.is_set():
                await tx.lanes()
            return list(await tx.lock(LockKind.LEASE, ["t_1"]))

        _, found = await asyncio.gather(store.transact(replace), store.transact(check_in))
        assert found == []
        assert await store.transact(check_in) == ["t_1"]
        assert store.database.locks.is_idle()

    asyncio.run(main())


def test_a_pick_may_come_too_late() -> None:
    """Between its look and its lock someone may be quicker: the picked task is locked, but no longer ready."""
    late = 0
    for seed in range(200):
        late += _race_for_one_task(seed)
    assert 0 < late < 200


def _race_for_one_task(seed: int) -> int:
    loop = DeterministicLoop(seed=seed)

    async def main() -> int:
        store = await opened(MemoryStore(clock=VirtualClock(loop)))
        changes = rows.new_tasks(rows.task("t_1"))
        changes.new_ready = [rows.ready("t_1")]
        await write(store, changes)

        async def claim(tx: Transaction) -> tuple[int, int]:
            picked = list(await tx.pick([1], 1, None))
            ready = (await tx.read(RowRequest(tasks=picked))).ready
            if ready:
                await tx.write(RowChanges(drop_ready=list(ready.values()), new_leases=[rows.lease("t_1")]))
            return len(picked), len(ready)

        answers = await asyncio.gather(*(store.transact(claim) for _ in range(3)))
        assert sum(ready for _, ready in answers) == 1
        return int(sum(picked for picked, _ in answers) > 1)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_the_same_seed_gives_the_same_journal() -> None:
    def history(seed: int) -> list[tuple[int, int, object]]:
        loop = DeterministicLoop(seed=seed)

        async def main() -> list[tuple[int, int, object]]:
            store = await opened(MemoryStore(clock=VirtualClock(loop)))
            writes = (write(store, RowChanges(events=[rows.event(n=n), rows.event(n=n)])) for n in range(6))
            await asyncio.gather(*writes)
            entries = await store.journal(Position(), 100)
            return [(entry.position.xid, entry.position.id, entry.event.data["n"]) for entry in entries]

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    assert history(1) == history(1)
    assert len({tuple(history(seed)) for seed in range(10)}) > 1


def test_the_account_kept_along_the_way_is_the_one_counted_afresh() -> None:
    """Random changes: after every commit `unaccounted` is what a scan of all tasks finds."""
    for seed in range(30):
        asyncio.run(_keep_account(random.Random(seed)))


async def _keep_account(draw: random.Random) -> None:
    store = await opened(MemoryStore())
    tables = store.database.tables
    names = [f"t_{number}" for number in range(6)]
    changes = rows.new_tasks(*(rows.task(id_, run=draw.choice(["r_1", None])) for id_ in names))
    changes.new_questions = [rows.question("q_0.1", "t_0")]
    await write(store, changes)
    for _ in range(60):
        id_, other = draw.choice(names), draw.choice(names)
        change = _random_change(draw, store, id_, other)
        tasks = sorted({id_, other, "t_0"})
        locks = {
            LockKind.SPREAD: ["r_1", id_],
            LockKind.QUESTION: ["q_0.1"],
            LockKind.TASK: tasks,
            LockKind.LEASE: [id_],
        }
        await write(store, change, locks)
        assert store.unaccounted() == [name for name in names if not tables.is_accounted(TaskId(name))]


def _random_change(draw: random.Random, store: MemoryStore, id_: str, other: str) -> RowChanges:
    tables = store.database.tables
    task = TaskId(id_)
    match draw.randrange(8):
        case 0:
            return (
                RowChanges(drop_ready=[tables.ready[task]])
                if task in tables.ready
                else RowChanges(new_ready=[rows.ready(id_)])
            )
        case 1:
            return RowChanges(drop_timers=[id_]) if id_ in tables.timers else RowChanges(timers=[(id_, Millis(1))])
        case 2:
            return _turn_wait(store, rows.need(id_, other))
        case 3:
            return _turn_wait(store, rows.asks(id_, "q_0.1"))
        case 4:
            return RowChanges(questions=[rows.question("q_0.1", "t_0", closed=draw.random() < 0.5)])
        case 5:
            there = task in tables.leases
            return RowChanges(drop_leases=[(task, Token(1))]) if there else RowChanges(new_leases=[rows.lease(task)])
        case 6:
            spread = draw.choice(["r_1", id_])
            there = spread in tables.spreads
            return RowChanges(drop_spreads=[spread]) if there else RowChanges(new_spreads=[rows.spread(spread)])
        case _:
            row = tables.tasks[task]
            state = State.DONE.value if row.state == OPEN else OPEN
            return RowChanges(tasks=[(rows.task(id_, run=row.run, state=state), None)])


def _turn_wait(store: MemoryStore, wait: WaitState) -> RowChanges:
    there = wait in store.database.tables.waits.get(wait.task, ())
    return RowChanges(drop_waits=[wait]) if there else RowChanges(new_waits=[wait])
