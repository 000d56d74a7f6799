"""What a page that is open is sent, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from allswell.domain.rules.event import Entry, Position
from allswell.interfaces.web.app import BEAT, frames
from allswell.testing.loop import run, running_loop


class StillJournal:
    """A journal in which nothing happens."""

    async def end(self) -> Position:
        return Position()

    async def follow(self, *_: object) -> AsyncIterator[list[Entry]]:
        await asyncio.Event().wait()
        yield []


@pytest.mark.parametrize("beat", [2.0, 10.0, 60.0])
def test_a_screen_that_is_drawn_rarely_still_gives_signs_of_life(beat: float) -> None:
    """A page gives its server up after 35 seconds of silence; one that is drawn once a minute must not."""
    drawn: list[float] = []
    came: list[float] = []

    async def scene() -> None:
        clock = running_loop()
        closing = asyncio.Event()
        call: Any = SimpleNamespace(house=SimpleNamespace(closing=closing, journal=StillJournal()), views=None)

        async def draw(_: Position) -> tuple[str, float]:
            drawn.append(clock.time())
            return "the same", 0.0

        async def holds() -> None:
            if clock.time() > 200:
                closing.set()

        stream = frames(call, draw, lambda _: True, beat, holds)
        said = [(clock.time(), one) async for one in stream]
        came.extend(at for at, _ in said)
        assert [one for _, one in said if one != BEAT] == [b"data: the same\n\n"]

    run(scene(), seed=1)
    assert max(after - before for before, after in pairwise(came)) < 15
    assert max(after - before for before, after in pairwise(drawn)) == pytest.approx(beat, abs=0.5)
