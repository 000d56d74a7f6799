"""Who holds a durable flow, flows and steps in sync code, and what is refused where it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import allswell
from allswell.domain.task.model import TaskFilter
from allswell.errors import LeaseLost, Refused
from tests.runtime.durable.scene import add, on, ran

# --- who holds it ---------------------------------------------------------------------------------------------------


@pytest.mark.row("F11")
def test_a_flow_that_is_running_is_refused_a_second_time(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        async with allswell.flow("f", run_id="r1", watch=watch):
            await add(1, 1)
            with pytest.raises(Refused, match=r"the flow f \(r_r1\) is running: .* holds it") as refused:
                async with allswell.flow("f", run_id="r1", watch=watch):
                    ran.append("never")
            assert refused.value.code == "flow_running"
            with pytest.raises(Refused, match="the run r_r1 is of the flow f, not of g"):
                async with allswell.flow("g", run_id="r1", watch=watch):
                    ran.append("never")
            assert await add(2, 2) == 4  # nothing changed for the one that runs
        assert ran == [(1, 1), (2, 2)]

    on(url, scene)


@pytest.mark.row("O10", "F11")
def test_a_process_that_was_given_up_records_nothing_over_its_successor(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(watch: allswell.Watch) -> None:
        async def program() -> None:
            async with allswell.flow("f", run_id="r1", watch=watch):
                await add(1, 1)
                monkeypatch.setattr("allswell.runtime.durable.flow.is_dead", lambda _: True)
                async with allswell.flow("f", run_id="r1", watch=watch) as second:
                    assert await add(1, 1) == 2
                    assert second.found == 1
                await add(3, 3)  # the first one, which believes that it still holds the flow

        with pytest.raises(LeaseLost):
            await program()
        assert [row.task.name for row in await watch.tasks(TaskFilter(role="step"))] == ["add"]
        late = [entry.event async for entry in watch.events() if entry.event.kind == "step_refused"]
        assert [(event.token, event.data["name"]) for event in late] == [(1, "add")]
        assert await watch.questions() == []

    on(url, scene)


def test_a_flow_that_was_called_off_stays_so(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        async def program() -> None:
            async with allswell.flow("f", run_id="r1", watch=watch):
                raise KeyError("cut")

        with pytest.raises(KeyError):
            await program()
        (question,) = await watch.questions()
        await watch.answer(question.id, "call_off", "we have another", by="ada")
        with pytest.raises(Refused, match="was skipped: we have another; run it under another run_id") as refused:
            await program()
        assert refused.value.code == "flow_over"

    on(url, scene)


def test_a_finished_flow_takes_no_further_steps(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        async with allswell.flow("f", run_id="r1", watch=watch):
            await add(1, 1)
        async with allswell.flow("f", run_id="r1", watch=watch):
            assert await add(1, 1) == 2
            with pytest.raises(Refused, match="the flow is done, and add is not among its steps"):
                await add(2, 2)
        assert ran == [(1, 1)]

    on(url, scene)


# --- sync code ------------------------------------------------------------------------------------------------------


@allswell.step("double")
def double(number: int) -> int:
    ran.append(number)
    return number * 2


@pytest.mark.row("F11")
def test_sync_flows_and_steps(url: str) -> None:
    def program(*, cut: bool) -> int:
        with allswell.flow("f", run_id="r1", store=url) as flow:
            total = double(1) + double(2)
            if cut:
                raise KeyError("cut")
            assert flow.found == 2
            return total + double(3)

    with pytest.raises(KeyError):
        program(cut=True)
    assert program(cut=False) == 12
    assert ran == [1, 2, 3]
    with allswell.open(url) as watch, allswell.flow("g", run_id="r2", watch=watch):
        assert double(5) == 10


def test_sync_steps_in_async_flows_run_in_threads_or_are_refused(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        for _ in range(2):
            async with allswell.flow("f", run_id="r1", watch=watch):
                assert await asyncio.to_thread(double, 1) == 2
                assert await allswell.run(allswell.step("plus"), int.__add__, 1, 2) == 3
                with pytest.raises(Refused, match="is sync and would block the event loop"):
                    double(4)
        assert ran == [1]

    on(url, scene)


def test_async_steps_in_sync_flows(url: str) -> None:
    for _ in range(2):
        with allswell.flow("f", run_id="r1", store=url):
            assert asyncio.run(_both()) == [3, 7]
    assert ran == [(1, 2), (3, 4)]


async def _both() -> list[int]:
    return [await add(1, 2), await add(3, 4)]


# --- misuse ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: allswell.flow("f", run_id="a b"), "run_id must be 1 to 64 letters"),
        (lambda: allswell.flow("f", run_id="../x"), "run_id must be 1 to 64 letters"),
        (lambda: allswell.flow("f", run_id=7), "run_id must be 1 to 64 letters"),  # type: ignore[call-overload]
        (lambda: allswell.flow("", run_id="r1"), "a flow with a run_id needs a name"),
        (lambda: allswell.flow("f", store="memory:"), "needs a run_id"),  # type: ignore[call-overload]
        (lambda: allswell.flow("f", run_id="r1")(print), "is a block"),
        (lambda: allswell.step("s", key="url")(print), "must be a function"),  # type: ignore[arg-type]
    ],
    ids=["space", "path", "number", "no name", "no run_id", "decorator", "key"],
)
def test_what_is_meant_otherwise_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(Refused, match=said):
        make()


def test_without_a_run_id_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        for _ in range(2):
            async with allswell.flow("f"):
                assert await add(1, 1) == 2

    asyncio.run(main())
    assert ran == [(1, 1), (1, 1)]
    assert not (tmp_path / ".allswell").exists()


def test_the_store_is_that_of_the_project_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with allswell.flow("f", run_id="r1"):
        double(1)
    with allswell.open() as watch:
        assert [row.task.name for row in watch.tasks(TaskFilter(role="step"))] == ["double"]
