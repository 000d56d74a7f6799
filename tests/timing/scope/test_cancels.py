"""How a scope cancels, how often, and what becomes of what its body does at the end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from allswell.timing.scopes import ScopeTimeout, remaining_ms, within
from tests.timing.scope.stage import Run, now, stubborn

# --- how it cancels ---------------------------------------------------------------------------------------------------


def test_it_cancels_once_and_again_at_every_third_of_the_grace(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []
        async with within(1_000) as scope:
            await stubborn(log, 8)()
        assert log == [1.0, 2.667, 4.333, 6.0, 7.667]
        assert scope.expired

    go(main())


def test_clean_up_within_a_third_of_the_grace_is_not_cut_short(go: Run) -> None:
    async def main() -> None:
        saved = []

        async def block() -> None:
            async with within(1_000):
                try:
                    await asyncio.sleep(100)
                finally:
                    for _ in range(16):
                        await asyncio.sleep(0.1)
                    saved.append(now())

        with pytest.raises(ScopeTimeout):
            await block()
        assert saved
        assert now() == pytest.approx(2.6)

    go(main())


def test_an_outer_deadline_does_not_cut_the_clean_up_of_an_inner_one(go: Run) -> None:
    async def main() -> None:
        saved = []

        async def block() -> None:
            async with within(1_200, kind="flow", name="outside"), within(1_000, kind="tool"):
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.sleep(0.25)
                    saved.append(now())

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert saved
        assert caught.value.scope.name == "outside"
        assert now() == 1.25

    go(main())


def test_the_grace_of_an_inner_scope_lies_inside_the_outer_budget(go: Run) -> None:
    async def main() -> None:
        log: list[float] = []
        with contextlib.suppress(ScopeTimeout):
            async with within(4_000), within(1_000):
                await stubborn(log, 3.9)()
        assert log == [1.0, 2.0, 3.0]

    go(main())


# --- what the body does at the end ------------------------------------------------------------------------------------


def test_what_the_body_raises_passes_with_a_note(go: Run) -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def block() -> None:
            async with within(1_000, kind="step", name="save"):
                try:
                    await asyncio.sleep(100)
                finally:
                    raise ValueError("half written")

        with pytest.raises(ValueError, match="half written") as caught:
            await block()
        assert caught.value.__notes__ == ["step 'save' had reached its limit when this was raised."]
        assert task.cancelling() == 0

    go(main())


def test_a_body_that_ends_all_the_same_has_ended(go: Run) -> None:
    async def main() -> str:
        result = ""
        async with within(1_000) as scope:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                result = "what there was"
        assert scope.expired
        await asyncio.sleep(100)
        return result

    assert go(main()) == "what there was"


def test_a_result_that_comes_with_the_deadline_is_not_half_taken(go: Run) -> None:
    """Whoever comes first, the block ends once, and nothing of the cancel is left behind."""

    async def main() -> None:
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, lambda: None if done.done() else done.set_result("done"))
        with contextlib.suppress(ScopeTimeout):
            async with within(1_000):
                assert await done == "done"
        await asyncio.sleep(100)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    go(main())


def test_clean_up_has_until_the_end_of_the_grace(go: Run) -> None:
    async def main() -> None:
        log: list[object] = []

        async def block() -> None:
            async with within(1_000, kind="flow", name="outside"):
                try:
                    await asyncio.sleep(100)
                finally:
                    log.append(remaining_ms())
                    try:
                        async with within(500, kind="tool", name="receipt"):
                            await asyncio.sleep(100)
                    except ScopeTimeout as error:
                        log.append(error.scope.name)
                    async with within("1h") as last:
                        log.append(last.effective_ms)

        with pytest.raises(ScopeTimeout) as caught:
            await block()
        assert caught.value.scope.name == "outside"
        assert log == [5_000, "receipt", pytest.approx(4_500)]
        assert now() == 1.5

    go(main())


def test_after_the_grace_no_scope_can_be_entered(go: Run) -> None:
    async def main() -> None:
        entered = []

        async def block() -> None:
            async with within(1_000):
                await stubborn([], 6.5)()
                async with within(1_000):
                    entered.append(now())

        with pytest.raises(ScopeTimeout):
            await block()
        assert entered == []

    go(main())
