"""The faulty store fails exactly where it is told to, and tells the truth about what became of it."""

import asyncio

import pytest

from allswell.domain.ids import TaskId
from allswell.errors import Unavailable
from allswell.store.memory import MemoryStore
from allswell.store.port import CommitUnknown, Store
from allswell.testing.faulty import FaultyStore
from tests.support.conformance import CASES, Case, Place, Skip, rows
from tests.support.conformance.place import write


def test_each_failure_happens_to_the_unit_of_work_it_was_meant_for() -> None:
    async def main() -> None:
        store: Store = FaultyStore(MemoryStore(), fail_before={2}, lose_commit={3}, lose_answer={4})
        await store.open()
        await write(store, rows.new_tasks(rows.task("t_1")))
        with pytest.raises(Unavailable, match="unit of work 2"):
            await write(store, rows.new_tasks(rows.task("t_2")))
        with pytest.raises(CommitUnknown) as third:
            await write(store, rows.new_tasks(rows.task("t_3")))
        with pytest.raises(CommitUnknown) as fourth:
            await write(store, rows.new_tasks(rows.task("t_4")))
        await write(store, rows.new_tasks(rows.task("t_5")))
        there = [await store.view_task(TaskId(f"t_{number}")) is not None for number in range(1, 6)]
        assert there == [True, False, False, True, True]
        assert not await store.outcome(third.value.ticket)
        assert await store.outcome(fourth.value.ticket)

    asyncio.run(main())


def test_while_it_is_down_nothing_answers_but_close() -> None:
    async def main() -> None:
        store = FaultyStore(MemoryStore())
        await store.open()
        store.down = True
        with pytest.raises(Unavailable):
            await write(store, rows.new_tasks(rows.task("t_1")))
        with pytest.raises(Unavailable):
            await store.view_counts()
        store.down = False
        assert await store.view_counts() == {}
        store.down = True
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_without_faults_it_is_as_good_as_the_store_behind_it(case: Case) -> None:
    first = MemoryStore()
    try:
        asyncio.run(case(Place(lambda: FaultyStore(first.another()))))
    except Skip as skip:
        pytest.skip(str(skip))
