"""Followers of the journal: every event in order, from where each left off, none holding up another."""

import asyncio
from collections.abc import Sequence

from allswell import Position
from allswell.domain.rules.event import Entry
from tests.engine.stage import Stage, play


def test_a_follower_gets_every_event_once_in_order() -> None:
    async def scene(stage: Stage) -> None:
        seen: list[Entry] = []

        async def note(entries: Sequence[Entry]) -> None:
            seen.extend(entries)

        stage.watch.follow("notes", note)
        await stage.watch.submit_many([{"name": f"{number}"} for number in range(1_200)])
        await asyncio.sleep(1)
        for _ in range(3):
            await stage.watch.claim(agent="bob")
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert [entry.event.kind for entry in seen] == ["task_submitted"] * 1_200 + ["task_claimed"] * 3
        assert [entry.position for entry in seen] == sorted({entry.position for entry in seen})

    play(scene)


def test_a_follower_resumes_from_its_cursor() -> None:
    async def scene(stage: Stage) -> None:
        seen: list[str] = []

        async def note(entries: Sequence[Entry]) -> None:
            seen.extend(str(entry.event.data["name"]) for entry in entries)

        async with stage.another(seed=2) as first:
            first.follow("notes", note)
            await first.submit("a")
            await asyncio.sleep(1)
        await stage.watch.submit("b")
        async with stage.another(seed=3) as second:
            second.follow("notes", note)
            await asyncio.sleep(1)
        assert seen == ["a", "b"]

    play(scene)


def test_a_follower_that_fails_is_given_the_same_events_again_and_holds_up_nobody() -> None:
    async def scene(stage: Stage) -> None:
        good: list[Position] = []
        tries: list[list[Position]] = []

        async def note(entries: Sequence[Entry]) -> None:
            good.extend(entry.position for entry in entries)

        async def stumble(entries: Sequence[Entry]) -> None:
            tries.append([entry.position for entry in entries])
            if len(tries) < 4:
                raise RuntimeError("the chat is down")

        stage.watch.follow("good", note)
        stage.watch.follow("bad", stumble)
        await stage.watch.submit("a")
        await asyncio.sleep(0.01)
        assert len(good) == 1
        await asyncio.sleep(10)
        assert tries == [good] * 4

    play(scene)


def test_one_can_read_on_as_things_happen() -> None:
    async def scene(stage: Stage) -> None:
        seen: list[str] = []

        async def read() -> None:
            async for entry in stage.watch.events(follow=True):
                seen.append(entry.event.kind)
                if len(seen) == 3:
                    return

        reading = asyncio.ensure_future(read())
        for name in "abc":
            await stage.watch.submit(name)
            await asyncio.sleep(5)
        await reading
        assert seen == ["task_submitted"] * 3

    play(scene)


def test_one_can_read_after_a_position() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a")
        (first,) = [entry async for entry in stage.watch.events()]
        await stage.watch.submit("b")
        (second,) = [entry async for entry in stage.watch.events(after=first.position)]
        assert second.event.data == {"name": "b"}
        assert [entry async for entry in stage.watch.events(after=second.position)] == []

    play(scene)
