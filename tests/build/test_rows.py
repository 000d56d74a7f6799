"""How a build stands is read off its rows: all of them once, and then only what has changed."""

import asyncio

import msgspec
import pytest

from allswell.build.state import BuildRows
from allswell.domain.build.component import Component
from allswell.domain.build.state import BuildStatus, ComponentStatus
from allswell.domain.ids import Millis
from allswell.domain.task.model import TaskFilter, TaskRow
from allswell.store.memory import MemoryStore
from tests.build.scene import BuildScene, play_build, spec_of


def test_a_line_reads_what_it_concerns_however_many_components_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    view = MemoryStore.view_tasks

    async def counted(store: MemoryStore, which: TaskFilter) -> list[TaskRow]:
        nonlocal read
        rows = await view(store, which)
        read += len(rows)
        return rows

    monkeypatch.setattr(MemoryStore, "view_tasks", counted)

    async def scene(build: BuildScene) -> None:
        nonlocal read
        await build.build("@a", "c1")
        read = 0
        await build.build("@a", "c2")
        assert read < 30

    play_build(scene, {f"c{number}": [] for number in range(300)})


def silent(standing: BuildStatus) -> list[ComponentStatus]:
    """Without the moment of the last check-in: one without words is in no journal, and the coordinator makes it."""
    return [msgspec.structs.replace(one, heard_at=Millis(0)) for one in standing.components.values()]


def test_what_is_followed_is_what_is_read_anew() -> None:
    async def scene(build: BuildScene) -> None:
        run = (await build.watch.runs())[0]
        followed = BuildRows(build.watch.views, run.id, follows=True)

        async def same() -> None:
            await asyncio.sleep(3)
            fresh = await BuildRows(build.watch.views, run.id).look(build.spec, run.created_at)
            seen = await followed.look(build.spec, run.created_at)
            assert silent(seen) == silent(fresh)
            assert set(seen.builders) == set(fresh.builders)
            assert seen.questions == fresh.questions

        await same()
        await build.claim("@a", "db")
        await same()
        await build.say("@a", "PROGRESS db half", "READY db https://x/1")
        await same()
        await build.say("@a", "READY db https://x/2")
        await same()
        await build.fail("@a", "db", 3)
        await same()
        await build.say("@human", f"ANSWER {(await build.watch.questions())[0].id} retry")
        await same()
        await build.claim("@b", "db")
        await build.pass_time(31)  # nobody tells us of this but the journal
        await same()
        await build.build("@a", "db")
        await same()
        await build.claim("@a", "web")
        (row,) = await build.watch.tasks(TaskFilter(name="web"))
        await build.watch.cancel(row.task.id)
        await same()
        build.spec = spec_of({"db": [], "api": ["db"], "web": [], "more": []})
        assert Component("more") in build.spec.components
        await same()

    play_build(scene)
