"""A disk that is really full: what does not fit is refused or waits, what was acknowledged stays, and work goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import allswell
from allswell.domain.ids import TaskId
from allswell.engine.timings import Timings
from tests.crash.disk import SmallDisk

BIG = "x" * 200_000


@pytest.fixture(params=["a disk of its own", "a limit on files"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk", mounting=request.param == "a disk of its own")
    if request.param == "a disk of its own" and not made.mounted:
        pytest.skip("only root may mount; the other way to fill a disk is tested")
    yield made
    made.close()


async def write_on(watch: allswell.Watch, written: list[TaskId]) -> None:
    """Write until there is no room."""
    while True:
        written.append(await watch.submit("too much", payload=BIG))


@pytest.mark.realtime
def test_a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room(disk: SmallDisk) -> None:
    async def scene() -> None:
        url = f"sqlite:///{disk.folder / 'watch.db'}"
        async with allswell.open(url, pace=Timings(store_patience=1.0)) as watch:
            before = [await watch.submit(f"before {number}", payload=BIG) for number in range(3)]
            disk.fill([os.getpid()])
            try:
                with pytest.raises(allswell.Unavailable, match="store_patience"):
                    await write_on(watch, before)
                waiting = asyncio.create_task(watch.submit("patient", payload=BIG))
                await asyncio.sleep(0.2)
                assert not waiting.done()
            finally:
                disk.free([os.getpid()])
            patient = await waiting
            lease = await watch.claim(agent="ann")
            assert lease is not None
            await lease.complete("fine")
            assert {row.task.id for row in await watch.tasks()} == {*before, patient}
            assert await watch.unaccounted() == []

    asyncio.run(scene())
