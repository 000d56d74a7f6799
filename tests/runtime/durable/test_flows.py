"""Durable Python flows: steps run once, whatever becomes of the flow; what cannot be kept is refused."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import allswell
from allswell.domain.task.model import TaskFilter
from allswell.errors import Refused
from tests.flows.run.test_files import validate
from tests.runtime.durable.scene import add, on, ran


@dataclass
class Page:
    url: str
    words: tuple[str, ...]


# --- what runs, and what does not -----------------------------------------------------------------------------------


@pytest.mark.row("F11")
def test_a_flow_that_failed_goes_on_with_the_step_that_failed(url: str) -> None:
    broken = True

    @allswell.step("publish")
    async def publish(total: int) -> str:
        ran.append("publish")
        if broken:
            raise ConnectionError("the printer is away")
        return f"published {total}"

    async def scene(watch: allswell.Watch) -> None:
        nonlocal broken

        async def program() -> str:
            async with allswell.flow("report", run_id="r1", watch=watch):
                total = await add(1, 2)
                return await publish(total)

        with pytest.raises(ConnectionError):
            await program()
        (question,) = await watch.questions()
        assert question.kind == "flow_left"
        assert "The flow report (r_r1) has stopped: ConnectionError: the printer is away." in question.text
        broken = False
        assert await program() == "published 3"
        assert ran == [(1, 2), "publish", "publish"]
        assert await watch.questions() == []  # withdrawn: somebody has run it again
        assert await program() == "published 3"
        assert len(ran) == 3
        flow, *steps = sorted(await watch.tasks(), key=lambda row: row.task.role)
        assert (flow.task.name, flow.task.state) == ("report", "done")
        assert [attempt.outcome for attempt in await watch.attempts(flow.task.id)] == ["failed:network", "done"]
        assert sorted((row.task.name, row.task.state) for row in steps) == [("add", "done"), ("publish", "done")]

    on(url, scene)


@pytest.mark.row("F11")
def test_calls_find_their_own_results_in_whatever_order_they_come(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        async def program(order: list[int]) -> dict[int, int]:
            async with allswell.flow("fan", run_id="r1", watch=watch):
                found = dict(zip(order, await asyncio.gather(*(add(n, 0) for n in order)), strict=True))
                if 99 not in order:
                    raise KeyError("cut")
                return found

        with pytest.raises(KeyError):
            await program([1, 2, 3])
        assert await program([3, 99, 1, 2]) == {1: 1, 2: 2, 3: 3, 99: 99}
        assert ran == [(1, 0), (2, 0), (3, 0), (99, 0)]

    on(url, scene)


@pytest.mark.row("F11")
def test_equal_calls_are_counted(url: str) -> None:
    """Five samples of one prompt are five steps, and each is kept."""
    numbers = iter(range(100))

    @allswell.step("sample")
    async def sample(prompt: str) -> int:
        ran.append(prompt)
        return next(numbers)

    async def scene(watch: allswell.Watch) -> None:
        async def program(count: int) -> list[int]:
            async with allswell.flow("best of", run_id="r1", watch=watch):
                found = await asyncio.gather(*(sample("why?") for _ in range(count)))
                if count < 5:
                    raise KeyError("cut")
                return sorted(found)

        with pytest.raises(KeyError):
            await program(3)
        assert await program(5) == [0, 1, 2, 3, 4]
        assert len(ran) == 5

    on(url, scene)


def test_a_key_says_what_tells_calls_apart(url: str, caplog: pytest.LogCaptureFixture) -> None:
    class Client:
        """Not JSON."""

    @allswell.step("fetch", key=lambda _, page: page)
    async def fetch(client: Client, page: str) -> str:
        ran.append(page)
        return page.upper()

    @allswell.step("stamp")
    async def stamp(when: int) -> int:
        ran.append(when)
        return when

    async def scene(watch: allswell.Watch) -> None:
        async def program(moment: int) -> int:
            async with allswell.flow("pages", run_id="r1", watch=watch) as flow:
                assert await fetch(Client(), "a") == "A"
                assert await stamp(moment) == moment
                if moment == 1:
                    raise KeyError("cut")
            return flow.found

        with caplog.at_level(logging.WARNING):
            with pytest.raises(KeyError):
                await program(1)
            assert caplog.text == ""  # a flow that stops has not got to its later steps
            assert await program(2) == 1
        # What it is called with differs from run to run: it ran again, and that is said.
        assert ran == ["a", 1, 2]
        assert "1 recorded results were not asked for again" in caplog.text

    on(url, scene)


def test_two_functions_under_one_name_are_refused_before_one_gets_the_other_s_result(url: str) -> None:
    @allswell.step("load")
    async def load_user(number: int) -> str:
        return f"user {number}"

    @allswell.step("load")
    async def load_order(number: int) -> str:
        ran.append(number)
        return f"order {number}"

    async def scene(watch: allswell.Watch) -> None:
        async with allswell.flow("f", run_id="r1", watch=watch):
            assert await load_user(7) == "user 7"
            with pytest.raises(
                Refused, match=r"two functions are called step 'load' here, .*load_user and .*load_order"
            ):
                await load_order(7)
            assert await load_user(8) == "user 8"
        assert ran == []

    on(url, scene)


def test_a_step_inside_a_step_is_kept_too(url: str) -> None:
    cut = True

    @allswell.step("outer")
    async def outer() -> int:
        ran.append("outer")
        first = await add(1, 1)
        if cut:
            raise KeyError("cut")
        return first + await add(2, 2)

    async def scene(watch: allswell.Watch) -> None:
        nonlocal cut

        async def program() -> int:
            async with allswell.flow("nest", run_id="r1", watch=watch):
                return await outer()

        with pytest.raises(KeyError):
            await program()
        cut = False
        assert await program() == 6
        assert ran == ["outer", (1, 1), "outer", (2, 2)]

    on(url, scene)


# --- results --------------------------------------------------------------------------------------------------------


def test_a_result_is_what_was_recorded_in_the_first_run_too(url: str) -> None:
    @allswell.step("typed")
    async def typed() -> Page:
        return Page("x", ("a", "b"))

    @allswell.step("plain")
    async def plain() -> Any:  # noqa: ANN401 - that is what it shows
        return {"pair": (1, 2)}

    async def scene(watch: allswell.Watch) -> None:
        for _ in range(2):
            async with allswell.flow("kinds", run_id="r1", watch=watch):
                assert await typed() == Page("x", ("a", "b"))
                assert await plain() == {"pair": [1, 2]}

    on(url, scene)


@pytest.mark.parametrize(
    "returns, annotation, said",
    [
        (object(), Any, "the result of step 'bad' cannot be written as JSON"),
        (
            {"rate": float("nan")},
            Any,
            r"the result of step 'bad' cannot be written as JSON: JSON has no nan \(at rate\)",
        ),
        ("x" * (1 << 20), Any, "the result of step 'bad' is larger than 1048576 bytes"),
        ("no number", int, "the result of step 'bad' is not what its annotation says"),
    ],
    ids=["not JSON", "not a number", "too large", "not as annotated"],
)
def test_a_result_that_cannot_be_kept_is_an_error_of_the_step(
    url: str, returns: object, annotation: object, said: str
) -> None:
    async def bad() -> object:
        return returns

    bad.__annotations__["return"] = annotation
    step = allswell.step("bad")(bad)

    async def scene(watch: allswell.Watch) -> None:
        with pytest.raises(Refused, match=said):
            async with allswell.flow("f", run_id="r1", watch=watch):
                await step()
        assert await watch.tasks(TaskFilter(role="step")) == []

    on(url, scene)


def test_what_cannot_be_read_back_is_refused_before_the_step_runs(url: str) -> None:
    @allswell.step("both")
    async def both() -> int | Page | dict[str, int]:
        ran.append("both")
        return 1

    @allswell.step("takes anything")
    async def anything(what: object) -> None:
        ran.append(what)

    async def scene(watch: allswell.Watch) -> None:
        with pytest.raises(Refused, match=r"cannot be read back from JSON.*annotate it with Any"):
            async with allswell.flow("f", run_id="r1", watch=watch):
                await both()
        with pytest.raises(Refused, match=r"what it was called with cannot be written as JSON.*key="):
            async with allswell.flow("f", run_id="r2", watch=watch):
                await anything(object())
        with pytest.raises(Refused, match=r"what it was called with cannot be written as JSON \(JSON has no inf"):
            async with allswell.flow("f", run_id="r3", watch=watch):
                await anything(float("inf"))  # it would have the result of anything(None)
        assert ran == []

    on(url, scene)


# --- steps that end badly -------------------------------------------------------------------------------------------


@pytest.mark.row("F11", "F2")
def test_a_step_that_timed_out_is_not_recorded_and_runs_again(url: str) -> None:
    slow = True

    @allswell.step("slow", timeout="30ms")
    async def wait() -> str:
        ran.append("slow")
        await asyncio.sleep(60 if slow else 0)
        return "done"

    async def scene(watch: allswell.Watch) -> None:
        nonlocal slow

        async def program() -> str:
            async with allswell.flow("f", run_id="r1", watch=watch):
                return await wait()

        with pytest.raises(allswell.ScopeTimeout):
            await program()
        slow = False
        assert await program() == "done"
        assert ran == ["slow", "slow"]

    on(url, scene)


@pytest.mark.row("F9", "F10")
def test_every_timeout_of_a_flow_is_logged(url: str, tmp_path: Path) -> None:
    guarded = allswell.guard("model", attempt_timeout="30ms", retries=1, breaker=False)

    @allswell.step("draft", timeout="10s")
    async def draft() -> str:
        ran.append("draft")
        await guarded.call(asyncio.sleep, 60)
        return "done"

    @allswell.step("hang", timeout="40ms")
    async def hang() -> None:
        await asyncio.sleep(60)

    async def scene(watch: allswell.Watch) -> None:
        async def program() -> None:
            async with allswell.flow("f", run_id="r1", watch=watch):
                with suppress(allswell.ScopeTimeout):
                    await draft()
                await hang()

        with pytest.raises(allswell.ScopeTimeout):
            await program()

    on(url, scene)
    base = tmp_path / ".allswell" / "runs"
    lines = [json.loads(line) for line in next(base.glob("*/f/timeouts.jsonl")).read_text().splitlines()]
    told = [(one["step_id"], one["scope"], one["retry_count"], one["final_action"]) for one in lines]
    assert told == [("draft", "llm_call", 0, "retry"), ("draft", "llm_call", 1, "fail"), ("hang", "step", 0, "fail")]
    for line in lines:
        validate("timeouts_line", line)
        validate("timeout", json.loads(Path(line["recovery_path"]).read_text()))


@pytest.mark.row("F9", "F10")
def test_the_record_of_a_timeout_has_its_own_request_and_the_moment_at_which_it_was(url: str, tmp_path: Path) -> None:
    asked = {}

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.sleep(60)
            raise AssertionError

    async def ask(what: str, limit: str) -> None:
        transport = allswell.guard("model", attempt_timeout=limit, retries=0, breaker=False).transport(Silent())
        async with httpx.AsyncClient(transport=transport) as client:
            await client.post("https://model.test/ask", json={"prompt": what})

    @allswell.step("draft")
    async def draft(what: str) -> None:
        with suppress(httpx.ReadTimeout):
            await ask(what, "30ms")
        asked[what] = datetime.now(UTC)

    @allswell.step("cut", timeout="40ms")
    async def cut() -> None:
        await ask("three", "10s")

    async def scene(watch: allswell.Watch) -> None:
        async with allswell.flow("f", run_id="r1", watch=watch):
            await asyncio.gather(draft("one"), draft("two"))
            with suppress(allswell.ScopeTimeout, httpx.ReadTimeout):
                await cut()
            asked["three"] = datetime.now(UTC)
            with suppress(allswell.ScopeTimeout):
                async with allswell.llm_call("four", timeout="20ms"):
                    await asyncio.sleep(60)
            asked["four"] = datetime.now(UTC)

    on(url, scene)
    base = tmp_path / ".allswell" / "runs"
    lines = [json.loads(line) for line in next(base.glob("*/f/timeouts.jsonl")).read_text().splitlines()]
    told = set()
    for line in lines:
        receipt = json.loads(Path(line["recovery_path"]).read_text())
        (call,) = Path(receipt["context_for_resume"]["transcript_path"]).read_text().splitlines()
        kept = json.loads(call)
        what = kept["service"] if kept["request"] is None else kept["request"]["prompt"]
        told.add((line["step_id"], line["scope"], what))
        assert datetime.fromisoformat(line["timestamp"]) <= asked[what], line
        assert receipt["timeout_event"]["timestamp"] == line["timestamp"]
    calls = {("draft", "llm_call", "one"), ("draft", "llm_call", "two"), ("f", "llm_call", "four")}
    assert told == calls | {("cut", "step", "three")}


def test_a_step_that_a_guard_tries_again_is_one_step(url: str) -> None:
    policy = allswell.GuardPolicy(retry=allswell.RetryPolicy(backoff=1))

    @allswell.step("call")
    @allswell.guard("printer", policy=policy)
    async def call() -> str:
        ran.append("call")
        if len(ran) < 3:
            raise ConnectionError("not yet")
        return "fine"

    async def scene(watch: allswell.Watch) -> None:
        for _ in range(2):
            async with allswell.flow("f", run_id="r1", watch=watch):
                assert await call() == "fine"
        assert len(ran) == 3
        (step,) = await watch.tasks(TaskFilter(role="step"))
        assert len(await watch.attempts(step.task.id)) == 1

    on(url, scene)


@pytest.mark.row("F13")
def test_a_flow_that_is_interrupted_says_so_and_goes_on(url: str) -> None:
    async def scene(watch: allswell.Watch) -> None:
        begun = asyncio.Event()

        async def program(*, hang: bool) -> int:
            async with allswell.flow("f", run_id="r1", watch=watch):
                total = await add(1, 2)
                if hang:
                    begun.set()
                    await asyncio.sleep(60)
                return total

        task = asyncio.create_task(program(hang=True))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (question,) = await watch.questions()
        assert "has stopped: it was interrupted" in question.text
        assert await program(hang=False) == 3
        assert ran == [(1, 2)]

    on(url, scene)
