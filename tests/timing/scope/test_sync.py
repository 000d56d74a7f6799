"""Without a task nothing can be interrupted: a scope is known to what is inside, and checked.

The clock is set by hand: `time.monotonic` of the module is what sync scopes read.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from allswell.testing.loop import run
from allswell.timing import scopes
from allswell.timing.scopes import ScopeTimeout, check_deadline, current, of_loop, remaining_ms, within


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    hand = Hand()
    monkeypatch.setattr(scopes, "_monotonic", hand)
    yield hand
    assert current() is None


@pytest.mark.row("F3")
def test_an_inner_scope_gets_what_is_left_outside(clock: Hand) -> None:
    with within("10s", kind="flow") as outer:
        clock.now += 7
        with within("4s") as inner:
            assert inner.effective_ms == 3_000
            assert inner.capped_by is outer
            assert remaining_ms() == 3_000
        assert current() is outer


def test_a_block_in_time_is_left_alone(clock: Hand) -> None:
    with within("10s"):
        clock.now += 9.9
        check_deadline()


def test_a_block_that_ends_late_is_late(clock: Hand) -> None:
    def block() -> None:
        with within("10s", kind="step", name="slow"):
            clock.now += 12

    with pytest.raises(ScopeTimeout, match="step 'slow' reached its limit of 10s, and ended 2s later"):
        block()


def test_sync_code_asks_whether_its_time_is_up(clock: Hand) -> None:
    def block() -> None:
        with within("10s", kind="flow"), within("1h", kind="step"):
            for _ in range(100):
                clock.now += 1
                check_deadline()

    with pytest.raises(ScopeTimeout) as caught:
        block()
    assert caught.value.scope.kind == "flow"
    assert clock.now == 1_010


def test_nothing_is_begun_when_the_time_is_up_but_clean_up_is(clock: Hand) -> None:
    log: list[float | None] = []

    def block() -> None:
        with within("10s", kind="flow", name="build"):
            clock.now += 10
            try:
                with within("1s"):
                    log.append(None)
            finally:
                with within("1m"):
                    log.append(remaining_ms())
                clock.now += 5
                with within("1s"):
                    log.append(None)

    with pytest.raises(ScopeTimeout) as caught:
        block()
    assert caught.value.scope.name == "build"
    assert log == [5_000]


def test_what_the_body_raises_passes(clock: Hand) -> None:
    def block() -> None:
        with within("1s"):
            clock.now += 10
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        block()


def test_in_a_task_a_plain_with_is_a_scope_like_any_other() -> None:
    async def main() -> None:
        async def block() -> None:
            with within("1s", kind="tool"):
                await asyncio.sleep(100)

        with pytest.raises(ScopeTimeout):
            await block()
        assert asyncio.get_running_loop().time() == 1

    run(main(), seed=None)


@pytest.mark.row("F3")
def test_a_loop_inside_a_sync_scope_is_capped_by_it(clock: Hand) -> None:
    """The loop has a clock of its own; what counts is what is left."""

    async def main() -> tuple[float, str]:
        async def block() -> None:
            async with within("1h", kind="step"):
                await asyncio.sleep(100)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        return asyncio.get_running_loop().time(), str(caught.value)

    with within("30s", kind="flow", name="outer"):
        clock.now += 10
        took, said = run(main(), seed=None)
    assert took == 20
    assert said == "step (1h of its own) reached the 20s that flow 'outer' had left for it."


def test_threads_under_one_scope_come_and_go(clock: Hand) -> None:
    """What was entered last is left first within a task; between threads nobody promises that."""
    with within("10s") as outer:
        first, second = copy_context(), copy_context()
        one, other = within("5s"), within("5s")
        first.run(one.__enter__)
        second.run(other.__enter__)
        first.run(one.__exit__, None, None, None)
        assert other.outer is outer
    second.run(other.__exit__, None, None, None)


@pytest.mark.row("F3")
def test_where_clocks_are_two_a_deadline_is_rather_late_than_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading the clock outside and that inside, time goes on."""

    class Restless(Hand):
        def __call__(self) -> float:
            self.now += 0.25
            return self.now

    clock = Restless()
    monkeypatch.setattr(scopes, "_monotonic", clock)

    async def main() -> float:
        of_loop[asyncio.get_running_loop()].time = clock  # the same, as the loop cannot know
        async with within("1h") as inner:
            return inner.deadline

    with within("30s") as outer:
        assert run(main(), seed=None) >= outer.deadline


def test_a_timeout_can_be_sent_to_another_process(clock: Hand) -> None:
    def block() -> None:
        with within("10s", kind="flow", name="build"):
            with within("5s", kind="tool", name="grep"):
                clock.now += 2
            clock.now += 10

    with pytest.raises(ScopeTimeout) as caught:
        block()
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert copy.explain() == caught.value.explain()
    assert "└─ " in copy.explain()
    assert (copy.scope.kind, copy.scope.name, copy.scope.timeout_ms) == ("flow", "build", 10_000)


def test_what_is_still_open_has_its_line_when_sync_code_is_told(clock: Hand) -> None:
    def block() -> None:
        with within("10s", kind="flow"):
            with within("5s", kind="step", name="a"):
                clock.now += 2
            with within("1h", kind="step", name="b"):
                with within("1h", kind="tool"):
                    clock.now += 3
                with within("1h", kind="tool"):
                    clock.now += 6
                    check_deadline()

    with pytest.raises(ScopeTimeout) as caught:
        block()
    assert caught.value.explain().splitlines() == [
        "flow reached its limit of 10s, and ended 1s later.",
        "flow: 11s, limit 10s, cut",
        "├─ step 'b': 9s, limit 1h, cut",
        "│  └─ tool ×2: 9s, limit 1h, cut 1×",
        "└─ step 'a': 2s, limit 5s",
    ]
    assert caught.value.scope.booked is not None
    assert {(part.name, part.count, part.seconds) for part in caught.value.scope.booked.values()} == {
        ("a", 1, 2.0),
        ("b", 1, 9.0),
    }, "asking books nothing: what is left later is booked then, once"


def test_an_error_of_late_sync_code_says_that_it_was_late(clock: Hand) -> None:
    def block(seconds: float) -> None:
        with within("10s", kind="flow"), within("2s", kind="llm_call"):
            clock.now += seconds
            raise OSError("timed out")

    with pytest.raises(OSError, match="timed out") as caught:
        block(1)
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(OSError, match="timed out") as caught:
        block(3)
    assert caught.value.__notes__ == ["llm_call had reached its limit when this was raised."]
