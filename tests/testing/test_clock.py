"""The virtual clock follows the loop to the millisecond, and only its wall jumps."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.testing.loop import START_WALL_MS, VirtualClock, run
from allswell.timing.clock import Clock


def test_it_moves_with_the_loop_alone() -> None:
    async def main() -> list[tuple[int, int]]:
        clock: Clock = VirtualClock()
        readings = [(clock.wall(), clock.monotonic())]
        await asyncio.sleep(1.5)
        readings.append((clock.wall(), clock.monotonic()))
        return readings

    assert run(main(), seed=1) == [(START_WALL_MS, 0), (START_WALL_MS + 1_500, 1_500)]
    assert run(main(), seed=1, start_wall_ms=7) == [(7, 0), (1_507, 1_500)]


@given(st.lists(st.integers(1, 10_000_000), max_size=50), st.integers(0, 10**10))
def test_sleeps_of_whole_milliseconds_add_up_exactly(sleeps: list[int], already: int) -> None:
    async def main() -> int:
        clock = VirtualClock()
        await asyncio.sleep(already / 1_000)
        for ms in sleeps:
            await asyncio.sleep(ms / 1_000)
        return clock.monotonic()

    assert run(main(), seed=None) == already + sum(sleeps)


def test_a_jump_moves_one_machines_wall_and_nothing_else() -> None:
    async def main() -> None:
        here, there = VirtualClock(), VirtualClock()
        here.jump_wall(-3_600_000)
        await asyncio.sleep(1)
        assert here.wall() == START_WALL_MS - 3_599_000
        assert there.wall() == START_WALL_MS + 1_000
        assert here.monotonic() == there.monotonic() == 1_000

    run(main(), seed=None)


def test_it_asks_for_the_deterministic_loop() -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="DeterministicLoop"):
            VirtualClock()

    asyncio.run(main())
