"""What is given from memory is what the database says: every read of random scripts is compared with a fresh one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from allswell.domain.task.aggregate import TaskAggregate
from allswell.store.port import RowRequest, Rows
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.cache import RowCache
from allswell.store.sqlite.transaction import SqliteTransaction
from tests.engine.test_equal_answers import StoppedClock, engine_on, follow_script, write_script

SEQUENCES = (*range(30), 139)
"""The last one finds a task remembered of which not all rows had been read."""


def whole(wanted: RowRequest, rows: Rows) -> dict[str, TaskAggregate]:
    """The cases of the tasks that were wanted, made of rows that were read one by one."""
    return {
        id_: TaskAggregate(
            task,
            rows.leases.get(id_),
            rows.ready.get(id_),
            rows.timers.get(id_),
            tuple(rows.waits.get(id_, ())),
            awaited=id_ in rows.awaited,
        )
        for id_, task in rows.tasks.items()
        if id_ in wanted.tasks
    }


@pytest.mark.parametrize("watches", [1, 2], ids=["one", "two"])
def test_every_read_is_what_the_database_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watches: int) -> None:
    """By one watch, and by two on one file that take turns, so that each must notice what the other wrote."""
    read = SqliteTransaction.read
    given = {"from memory": 0, "from the database": 0}

    async def compared(self: SqliteTransaction, wanted: RowRequest) -> Rows:
        found = await read(self, wanted)
        kept, self._cache = self._cache, RowCache()
        every = {*wanted.tasks, *wanted.leases, *wanted.awaited}
        ids = sorted(every)
        said = await read(self, replace(wanted, tasks=ids, leases=ids, awaited=ids, whole=False))
        self._cache = kept
        cases = whole(wanted, said)
        for id_, case in found.cases.items():
            sure = id_ in wanted.awaited or id_ not in kept._unsure
            assert case == (cases[id_] if sure else replace(cases[id_], awaited=case.awaited))
        for id_, case in kept._cases.items():
            assert id_ not in cases or replace(case, awaited=False) == replace(cases[id_], awaited=False)
        assert {**{id_: case.task for id_, case in found.cases.items()}, **found.tasks} == {
            id_: case.task for id_, case in cases.items()
        }
        for name in ("ready", "timers", "waits", "leases", "payloads", "agents", "services", "awaited"):
            got, right = getattr(found, name), getattr(said, name)
            assert all(one in right and (name == "awaited" or got[one] == right[one]) for one in got), name
        given["from memory"] += len(found.cases)
        given["from the database"] += len(found.tasks)
        return found

    async def scene() -> None:
        for seed in SEQUENCES:
            lines, wanted = await write_script(seed, timed=True)
            monkeypatch.setattr(SqliteTransaction, "read", compared)
            clock = StoppedClock()
            first, second = (SqliteStore(tmp_path / f"{seed}.db", clock=clock) for _ in range(2))
            async with engine_on(first, clock) as one, engine_on(second, clock) as two:
                places = [one] if watches == 1 else [one, two]
                answers: list[object] = []
                for number, line in enumerate(lines):
                    answers += (await follow_script([line], places[number // 3 % watches], clock))[:1]
            assert answers == wanted[:-1], f"seed {seed}"

    asyncio.run(scene())
    assert min(given.values()) > 50
