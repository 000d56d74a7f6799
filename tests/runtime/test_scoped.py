"""`flow`, `step`, `llm_call`, `tool`: limits of their own, around blocks and around functions whose end is promised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

import allswell
from allswell.domain.scopes import HardLimits, ScopeLimits, Timeouts
from allswell.errors import Refused
from allswell.runtime.calls import FOR_TASKS
from allswell.runtime.deadlines import limits, use_limits
from allswell.testing.loop import run
from allswell.timing.scopes import abandoned, current

MINUTE = 60_000


@pytest.mark.row("F1")
@pytest.mark.parametrize(
    "make, minutes",
    [(allswell.flow, 30), (allswell.step, 10), (allswell.llm_call, 2), (allswell.tool, 5)],
    ids=["flow", "step", "llm_call", "tool"],
)
def test_a_scope_that_names_no_limit_has_the_default(make: object, minutes: int) -> None:
    async def main() -> None:
        async with make("x") as scope:  # type: ignore[operator]
            assert scope.effective_ms == minutes * MINUTE

    run(main(), seed=None)


@pytest.mark.row("F1", "F12")
def test_above_the_hard_limit_only_an_override_goes() -> None:
    with pytest.raises(Refused, match=r"step: timeout \(1200000 ms\) is above its hard limit \(900000 ms\)"):
        allswell.step("heavy", timeout="20m")
    assert allswell.step("heavy", timeout_override="20m").timeout_ms == 20 * MINUTE

    async def main() -> None:
        async with allswell.flow("build", timeout="5m"), allswell.step("heavy", timeout_override="20m") as step:
            assert step.effective_ms == 5 * MINUTE

    run(main(), seed=None)


def test_limits_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLSWELL_TIMEOUTS_TOOL", "7m")
    monkeypatch.setenv("ALLSWELL_SCOPE_GRACE", "2s")
    use_limits(None)
    assert allswell.tool("x").timeout_ms == 7 * MINUTE
    assert limits().grace == 2_000
    with pytest.raises(Refused, match=r"timeouts.tool \(20 ms\) must be at most hard_limits.tool \(10 ms\)"):
        use_limits(ScopeLimits(Timeouts(tool=20), HardLimits(tool=10)))


@pytest.mark.row("F3")
def test_a_decorated_function_has_a_fresh_scope_at_every_call() -> None:
    seen: list[float | None] = []

    @allswell.tool("look", timeout="8s")
    async def look() -> str:
        scope = current()
        assert scope is not None
        seen.append(scope.effective_ms)
        await asyncio.sleep(4)
        return "seen"

    async def main() -> None:
        async with allswell.flow("build", timeout="10s"):
            assert await look() == "seen"
            assert await look() == "seen"

    run(main(), seed=None)
    assert seen == [8_000, pytest.approx(6_000)]
    assert look.__name__ == "look"


def test_a_function_that_is_not_named_is_called_by_its_own_name() -> None:
    @allswell.step()
    async def plan() -> str:
        scope = current()
        assert scope is not None
        return scope.name

    assert run(plan(), seed=None).endswith("plan")


def test_generators_and_other_mistakes_are_refused() -> None:
    async def stream() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(Refused, match="put the scope inside it"):
        allswell.tool("x")(stream)
    with pytest.raises(Refused, match="must be text"):
        allswell.step(stream)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="'thread', 'process' or 'here'"):
        allswell.step("x", on="mars")  # type: ignore[arg-type]

    async def fine() -> None: ...

    with pytest.raises(Refused, match="cannot run on a process"):
        allswell.step("x", on="process")(fine)
    with pytest.raises(Refused, match="top of a module"):
        allswell.step("x", on="process")(lambda: None)


# --- sync functions ---------------------------------------------------------------------------------------------------


def test_a_sync_function_runs_in_a_thread_of_its_own_and_knows_its_scope() -> None:
    @allswell.tool("here")
    def where() -> tuple[int, str]:
        scope = current()
        assert scope is not None
        return threading.get_ident(), scope.name

    thread, name = where()
    assert thread != threading.get_ident()
    assert name == "here"
    assert current() is None


@pytest.mark.row("F2")
def test_a_sync_function_that_hangs_is_given_up_and_what_it_does_later_is_fenced() -> None:
    gate, later = threading.Event(), threading.Event()
    effects: list[str] = []

    @allswell.tool("stuck", timeout=50)
    def stuck() -> None:
        gate.wait(30)
        try:
            with allswell.tool("late write"):
                effects.append("written")
        finally:
            later.set()

    with pytest.raises(allswell.ScopeTimeout) as caught:
        stuck()
    assert caught.value.abandoned
    gate.set()
    assert later.wait(10)
    assert effects == []


def test_a_sync_function_that_asks_is_told_and_stops() -> None:
    use_limits(ScopeLimits(grace=60_000))

    @allswell.tool("polite", timeout=50)
    def polite() -> None:
        while True:
            allswell.check_deadline()
            threading.Event().wait(0.001)

    with pytest.raises(allswell.ScopeTimeout) as caught:
        polite()
    assert not caught.value.abandoned
    assert caught.value.scope.name == "polite"


def test_a_sync_function_keeps_its_errors_and_may_run_here() -> None:
    @allswell.tool("wrong", on="here")
    def wrong() -> int:
        raise LookupError(threading.get_ident())

    with pytest.raises(LookupError) as caught:
        wrong()
    assert caught.value.args == (threading.get_ident(),)


def test_nested_sync_functions_share_one_deadline() -> None:
    left: list[float] = []

    @allswell.tool("inner")
    def inner() -> None:
        left.append(allswell.remaining_ms() or 0)

    @allswell.step("outer", timeout="20s")
    def outer() -> None:
        inner()

    outer()
    assert 0 < left[0] <= 20_000


# --- sync functions from async code -----------------------------------------------------------------------------------


def test_async_code_awaits_a_sync_function_without_blocking_its_loop() -> None:
    async def main() -> None:
        turned = asyncio.Event()
        gate = threading.Event()

        def wait() -> str:
            assert gate.wait(10)
            scope = current()
            assert scope is not None
            return scope.name

        call = asyncio.create_task(allswell.run(allswell.tool("x"), wait))
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()
        gate.set()
        assert await call == "x"
        assert await allswell.run(allswell.tool("y"), asyncio.sleep, 0, "async too") == "async too"

    asyncio.run(main())


@pytest.mark.row("F2")
def test_a_thread_that_hangs_frees_its_caller_and_its_slot() -> None:
    async def main() -> None:
        gate = threading.Event()
        before = FOR_TASKS.lost
        with pytest.raises(allswell.ScopeTimeout) as caught:
            await allswell.run(allswell.tool("stuck", timeout=50), gate.wait, 30)
        assert caught.value.abandoned
        assert caught.value.scope in abandoned()
        while FOR_TASKS.lost == before:
            await asyncio.sleep(0)
        assert FOR_TASKS.busy == 0
        gate.set()
        while caught.value.scope in abandoned():
            await asyncio.sleep(0)

    asyncio.run(main())


def test_async_in_disguise_is_refused_and_async_objects_are_not() -> None:
    class Client:
        async def __call__(self, word: str) -> str:
            await asyncio.sleep(0)
            return word

    async def main() -> None:
        client = Client()
        assert await allswell.run(allswell.tool("x"), client, "hello") == "hello"
        with pytest.raises(Refused, match="give an async function"):
            await allswell.run(allswell.tool("x"), lambda: client("hello"))

    asyncio.run(main())

    @allswell.tool("x")
    def disguised() -> object:
        return asyncio.sleep(0)

    with pytest.raises(Refused, match="give an async function"):
        disguised()


def test_a_cancelled_caller_of_a_thread_is_let_go_after_the_grace() -> None:
    async def main() -> None:
        gate = threading.Event()
        task = asyncio.create_task(allswell.run(allswell.tool("stuck"), gate.wait, 30))
        while FOR_TASKS.busy == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while FOR_TASKS.busy:
            await asyncio.sleep(0)
        gate.set()
        while abandoned():
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_thread_that_was_given_up_has_its_line_in_the_tree() -> None:
    use_limits(ScopeLimits(grace=20))
    let_go = threading.Event()

    @allswell.tool("hangs", timeout=20)
    def hangs() -> None:
        let_go.wait(30)

    def whole() -> None:
        with allswell.step("whole", timeout=200):
            with pytest.raises(allswell.ScopeTimeout):
                hangs()
            let_go.set()
            while True:
                allswell.check_deadline()

    with pytest.raises(allswell.ScopeTimeout) as caught:
        whole()
    assert "─ tool 'hangs': " in caught.value.explain()


def test_a_coroutine_in_place_of_a_function_is_refused() -> None:
    async def nothing() -> None: ...

    with pytest.raises(Refused, match="give the function itself"):
        asyncio.run(allswell.run(allswell.tool("x"), nothing()))  # type: ignore[call-overload]
