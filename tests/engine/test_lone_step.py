"""A step that comes by itself takes the store's short way, and is recorded once whatever becomes of that."""

import asyncio
from pathlib import Path

import pytest

import allswell
from allswell.errors import Unavailable
from allswell.store.port import Decide
from allswell.store.sqlite import SqliteStore

WENT = {"short way": True, "it declined": False, "its answer was lost": True, "it broke": False}


@allswell.step("double")
async def double(number: int) -> int:
    return number * 2


@pytest.mark.parametrize("fate", WENT)
def test_a_lone_step_is_recorded_once(fate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    right = SqliteStore.record

    async def record(self: SqliteStore, believed: object, decide: Decide) -> bool:
        done = False
        while WENT[fate] and not done:  # it declines while somebody else writes: a sweep, a renewal, on a busy machine
            done = await right(self, believed, decide)  # type: ignore[arg-type]
        tried.append(done)
        if fate in ("its answer was lost", "it broke"):
            raise Unavailable("planted")
        return done

    async def scene() -> list[int]:
        async with allswell.flow("sums", run_id="sums", store=f"sqlite:///{tmp_path}/x.db"):
            return [await double(number) for number in range(4)]

    monkeypatch.setattr(SqliteStore, "record", record)
    assert asyncio.run(scene()) == [0, 2, 4, 6]
    assert tried == [WENT[fate]] * 3, "the first one makes the flow's lease known, the others go by it"

    async def events() -> list[str]:
        async with allswell.open(f"sqlite:///{tmp_path}/x.db") as watch:
            return [entry.event.kind async for entry in watch.events()]

    assert asyncio.run(events()).count("step_recorded") == 4
