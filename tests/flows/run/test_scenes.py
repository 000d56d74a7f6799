"""Flows on virtual time: order and values, what is kept when time runs out at every scope, interrupts, going on."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from allswell.domain.ids import RunId
from allswell.domain.receipts.step import FinalAction, RunVerdict, StepStatus
from allswell.flows.run import plan
from allswell.flows.run.runner import Runner
from allswell.flows.schema import load_flow
from tests.flows.run.stage import HERE, Disk, Play, flow, run, seen
from tests.flows.run.test_files import validate

T = TypeVar("T")
MINUTE = 60


def step(id_: str, function: str, more: str = "", **inputs: object) -> str:
    given = ", ".join(f"{name}: {json.dumps(value)}" for name, value in inputs.items())
    return f"- {{id: {id_}, python: '{HERE}:{function}', inputs: {{{given}}}{more}}}\n"


def held_to_schema(played: Play) -> None:
    """Every file of the run has the published shape."""
    for path in played.base.receipts.glob("*.json"):
        validate("timeout" if path.name.endswith("-timeout.json") else "receipt", json.loads(path.read_text()))
    if played.base.timeouts.exists():
        whole, _, _ = played.base.timeouts.read_text().rpartition("\n")
        for line in whole.splitlines():
            validate("timeouts_line", json.loads(line))


def test_steps_run_in_the_order_of_their_needs_with_values_from_before(tmp_path: Path) -> None:
    text = (
        "inputs: {who: world}\nsteps:\n"
        + step("last", "note", ", needs: [b, m]", of="{{ steps.m.result }}", b="{{ steps.b.result.n.0 }}")
        + step("a", "note", to="{{ inputs.who }}")
        + step("b", "note", ", needs: a", n=["{{ steps.a.result.to }}!", 1])
        + step("m", "note", ", needs: a, matrix: {x: [1, two]}", x="{{ matrix.x }}", text="<{{ matrix.x }}>")
    )

    async def scene(played: Play) -> None:
        summary = await run(played, {"who": "you"})
        assert (summary.verdict, summary.ran) == (RunVerdict.DONE, 5)
        assert set(summary.states.values()) == {"done"}
        assert seen[0] == {"to": "you"}
        assert seen[-1] == {"of": [{"x": 1, "text": "<1>"}, {"x": "two", "text": "<two>"}], "b": "you!"}
        held_to_schema(played)

    flow(tmp_path, text, scene)


def test_steps_that_can_run_at_once_do(tmp_path: Path) -> None:
    text = "steps:\n" + "".join(step(f"s{number}", "sleep", seconds=60) for number in range(10))

    async def scene(played: Play) -> None:
        assert (await run(played)).verdict is RunVerdict.DONE
        assert played.stage.seconds < 65

    flow(tmp_path, text, scene)


def test_receipts_that_come_as_the_last_are_written_are_written_too(tmp_path: Path) -> None:
    """Two that go on at once, again and again: in some turn whoever wrote has ended and is not yet forgotten."""

    async def scene(played: Play) -> None:
        runner = await played.start()
        await runner.run()
        like = runner.ended["a"]

        async def keep_many(step_id: str) -> None:
            for attempt in range(50):
                await played.site.keep(msgspec.structs.replace(like, step_id=step_id, attempt=attempt))

        await asyncio.gather(keep_many("b"), keep_many("c"))
        assert len(played.base.all_receipts()) == 101

    flow(tmp_path, "steps:\n" + step("a", "note"), scene)


def test_a_step_that_is_done_leaves_its_place_while_it_is_written_down(tmp_path: Path) -> None:
    text = "steps:\n" + "".join(step(f"s{number}", "sleep", seconds=1) for number in range(20))

    async def slowly(work: Callable[[], T]) -> T:
        await asyncio.sleep(5)
        return work()

    async def scene(played: Play) -> None:
        runner = await played.start()
        runner.jobs = 1
        played.site.aside = slowly
        active: list[int] = []
        played.site.heard = lambda _: active.append(len(runner.active))
        assert (await runner.run()).verdict is RunVerdict.DONE
        assert max(active) == 3  # one that works, and two that are written down
        assert played.stage.seconds < 80  # and not 20 times 6

    flow(tmp_path, text, scene)


def test_whoever_claims_any_role_is_not_given_a_step_out_of_a_flow(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        await played.start()
        assert await played.stage.watch.claim_many(9, agent="bob") == []
        (lease,) = await played.stage.watch.claim_many(9, agent="bob", roles=["step"])
        assert lease.name == "a"

    flow(tmp_path, "steps:\n" + step("a", "note"), scene)


def test_gates_stand_between_a_step_and_too_many_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "NEEDS_MAX", 10)
    text = (
        "steps:\n"
        + step("many", "note", ", matrix: {n: [" + ", ".join(map(str, range(25))) + "]}", n="{{ matrix.n }}")
        + step("last", "note", ", needs: many", of="{{ steps.many.result }}")
    )

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert (summary.verdict, summary.ran) == (RunVerdict.DONE, 29)
        assert sorted(name for name in summary.states if "+" in name) == ["last+1", "last+2", "last+3"]
        assert seen[-1] == {"of": [{"n": number} for number in range(25)]}
        rows = {row.task.name: row.task.spec.needs for row in await Runner(played.site, played.run).rows()}
        assert [len(rows[name]) for name in ("last+1", "last+2", "last+3", "last")] == [10, 10, 5, 3]

    flow(tmp_path, text, scene)


def test_what_follows_a_failure_is_skipped_and_the_rest_goes_on(tmp_path: Path) -> None:
    text = (
        "steps:\n"
        + step("a", "unspeakable")
        + step("b", "note", ", needs: a")
        + step("c", "note")
        + step("d", "not_a_number")
    )

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.verdict is RunVerdict.FAILED
        assert summary.states == {"a": "failed", "b": "skipped", "c": "done", "d": "failed"}
        assert "JSON has no nan (at score)" in summary.reasons["d"]
        assert "cannot be written as JSON" in summary.reasons["a"]
        assert summary.reasons["b"].startswith("a was failed: what a returned cannot be written as JSON")

    flow(tmp_path, text, scene)


@pytest.mark.row("F4")
def test_a_failure_of_the_network_is_tried_again_after_pauses(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        summary = await run(played)
        assert (summary.verdict, len(seen)) == (RunVerdict.DONE, 3)
        assert played.stage.seconds >= 3  # 1 s, 2 s
        statuses = [(one.attempt, one.status) for one in played.base.all_receipts()]
        assert statuses == [(1, StepStatus.FAILED), (2, StepStatus.FAILED), (3, StepStatus.DONE)]

    flow(tmp_path, "steps:\n" + step("a", "fail", times=2), scene)


@pytest.mark.row("F7")
def test_a_step_that_leaves_by_itself_has_failed_and_is_repeated_within_bounds(tmp_path: Path) -> None:
    """`sys.exit` is its own verdict; what was cancelled or interrupted inside it may go better the next time."""
    ways = {"a": ("0", 1), "b": ("3", 1), "c": ("cancel", 4), "d": ("interrupt", 4)}
    text = "steps:\n" + "".join(step(name, "leave", by=way) for name, (way, _) in ways.items())

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert (summary.verdict, set(summary.states.values())) == (RunVerdict.FAILED, {"failed"})
        for name, (way, times) in ways.items():
            assert seen.count(way) == times, name
            assert sum(one.step_id == name for one in played.base.all_receipts()) == times
        assert "sys.exit(3)" in summary.reasons["b"]
        assert "CancelledError of its own" in summary.reasons["c"]
        assert played.stage.seconds >= 7, "1 s, 2 s, 4 s between two tries"

    flow(tmp_path, text, scene)


# --- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("F9", "F10", "O4")
def test_a_steps_timeout_is_captured_in_order_and_tried_again_until_a_human_is_asked(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 45m}\nsteps:\n"
        + step("plan", "note")
        + step("build", "sleep", ", needs: plan, outputs: [out.txt]", seconds=9e3)
    )
    (tmp_path / "out.txt").write_text("half of it")
    disk = Disk()

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.verdict is RunVerdict.NEEDS_HUMAN
        assert len(summary.questions) == 1
        lines = played.base.all_timeouts()
        assert [(line.step_id, line.scope, line.timeout_ms) for line in lines] == [("build", "step", 600_000)] * 3
        assert [line.retry_count for line in lines] == [0, 1, 2]
        assert [line.final_action for line in lines] == [FinalAction.RETRY, FinalAction.RETRY, FinalAction.ESCALATE]
        assert all(600_000 <= line.elapsed_ms < 606_000 for line in lines)
        own = [json.loads((tmp_path / line.recovery_path).read_text()) for line in lines]
        assert [one["timeout_event"]["timestamp"] for one in own] == [line.timestamp for line in lines]
        assert len({line.recovery_path for line in lines}) == 3, "each attempt has its own"
        latest = played.base.capture("build")
        assert latest is not None
        assert latest.timeout_event.timestamp == lines[-1].timestamp
        phases = {one.phase for one in played.base.all_receipts() if one.step_id == "build"}
        told = {
            one.data["phase"]
            for one in played.base.all_events()
            if one.event == "step_ended" and one.step_id == "build"
        }
        assert phases == told == {"work"}
        held_to_schema(played)

    flow(tmp_path, text, scene, disk)
    of_build = [(name, said) for name, said in disk.written if name in ("build-timeout.json", "timeouts.jsonl")]
    first = of_build[:3]
    assert [name for name, _ in first] == ["build-timeout.json", "build-timeout.json", "timeouts.jsonl"]
    partial, whole = first[0][1], first[1][1]
    assert isinstance(partial, dict)
    assert isinstance(whole, dict)
    assert (partial["status"], partial["partial"], whole["partial"]) == ("timeout", True, False)
    assert whole["last_known_state"] == {
        "step_id": "build",
        "agent_key": "python",
        "phase": "work",
        "progress_indicator": "",
    }
    assert whole["partial_artifacts"] == [{"path": "out.txt", "complete": False, "bytes_written": 10}]
    assert whole["context_for_resume"]["last_successful_checkpoint"] == "plan"


@pytest.mark.row("F11", "O4")
def test_what_a_step_says_of_retries_bounds_its_timeouts_too(tmp_path: Path) -> None:
    """However its attempts end: `retry: 0` is one attempt, `retry: 1` two; a human decides about a timeout beyond."""
    text = (
        "timeouts: {flow: 45m}\nsteps:\n"
        + step("once", "sleep", ", retry: 0", seconds=9e3)
        + step("twice", "fail_then_hang", ", retry: 1")
        + step("mixed", "hang_then_fail", ", retry: {retries: 1, backoff: 1s}")
    )

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.states == {"once": "asked", "twice": "asked", "mixed": "failed"}
        assert Counter(one.step_id for one in played.base.all_receipts()) == {"once": 1, "twice": 2, "mixed": 2}
        actions = {(line.step_id, line.final_action.value) for line in played.base.all_timeouts()}
        assert actions == {("once", "escalate"), ("twice", "escalate"), ("mixed", "retry")}
        assert "has timed out 1 time. " in (await played.stage.watch.questions())[0].text

    flow(tmp_path, text, scene)


@pytest.mark.row("F9", "F10", "F2")
def test_the_flows_own_timeout_ends_its_steps_and_is_told_as_the_flows(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 5m, step: 4m}\nsteps:\n"
        + step("a", "sleep", seconds=200)
        + step("b", "sleep", ", needs: a", seconds=9e3)
    )

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.verdict is RunVerdict.TIMED_OUT
        assert summary.states == {"a": "done", "b": "failed"}
        (line,) = played.base.all_timeouts()
        assert (line.scope, line.timeout_ms, line.final_action) == ("flow", 300_000, FinalAction.FAIL)
        assert 300_000 <= line.elapsed_ms < 306_000
        capture = played.base.capture("b")
        assert capture is not None
        assert (capture.timeout_event.scope, capture.partial) == ("flow", False)
        held_to_schema(played)

    flow(tmp_path, text, scene)


@pytest.mark.row("F9", "F10", "F4")
def test_a_models_timeout_is_captured_and_repeated_as_the_network_is(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.verdict is RunVerdict.FAILED
        lines = played.base.all_timeouts()
        assert [(line.scope, line.timeout_ms) for line in lines] == [("llm_call", 60_000)] * 4
        assert [line.final_action for line in lines] == [FinalAction.RETRY] * 3 + [FinalAction.FAIL]
        assert len(seen) == 4
        for line in lines:
            receipt = json.loads((tmp_path / line.recovery_path).read_text())
            (call,) = (tmp_path / receipt["context_for_resume"]["transcript_path"]).read_text().splitlines()
            assert "llm_call 'draft' reached its limit of 1m" in call
        (row,) = await played.stage.watch.tasks()
        assert row.task.record.reason == "llm_call 'draft' reached its limit of 1m; a network error after 3 retries"
        held_to_schema(played)

    flow(tmp_path, "timeouts: {llm_call: 1m}\nsteps:\n" + step("draft", "call_model", seconds=500), scene)


@pytest.mark.row("F9", "F10")
def test_a_tools_timeout_is_captured_as_the_tools(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        await run(played)
        lines = played.base.all_timeouts()
        assert {(line.scope, line.timeout_ms) for line in lines} == {("tool", 30_000)}
        capture = played.base.capture("look")
        assert capture is not None
        assert capture.timeout_event.scope == "tool"

    flow(tmp_path, "timeouts: {tool: 30s}\nsteps:\n" + step("look", "use_tool", ", retry: 1", seconds=500), scene)


@pytest.mark.row("F12")
def test_an_override_gives_one_step_more_than_the_hard_limit_and_the_flow_still_caps_it(tmp_path: Path) -> None:
    heavy = step("heavy", "sleep", ", timeout_override: 1200000", seconds=1_100)

    async def long_enough(played: Play) -> None:
        assert (await run(played)).verdict is RunVerdict.DONE
        assert 1_100 <= played.stage.seconds < 1_110

    flow(tmp_path, "steps:\n" + heavy, long_enough)

    async def capped(played: Play) -> None:
        assert (await run(played)).verdict is RunVerdict.TIMED_OUT
        assert 900 <= played.stage.seconds < 910

    flow(tmp_path, "timeouts: {flow: 15m}\nsteps:\n" + heavy, capped)


# --- interrupts and going on ------------------------------------------------------------------------------------------


@pytest.mark.row("F13", "F11")
def test_an_interrupt_leaves_a_receipt_and_a_run_that_goes_on_without_repeating_what_is_done(tmp_path: Path) -> None:
    text = (
        "steps:\n" + step("a", "note") + step("b", "sleep", ", needs: a", seconds=60) + step("c", "note", ", needs: b")
    )

    async def scene(played: Play) -> None:
        runner = await played.start()
        asyncio.get_running_loop().call_later(30, runner.interrupt, "SIGINT")
        summary = await runner.run()
        assert summary.verdict is RunVerdict.INTERRUPTED
        assert played.stage.seconds < 36
        statuses = {one.step_id: one.status for one in played.base.all_receipts()}
        assert statuses == {"a": StepStatus.DONE, "b": StepStatus.INTERRUPTED}
        assert seen == [{}, {"seconds": 60}]
        again = await (await played.again()).run()
        assert (again.verdict, again.ran) == (RunVerdict.DONE, 2)
        assert seen == [{}, {"seconds": 60}, {"seconds": 60}, {}]
        held_to_schema(played)

    flow(tmp_path, text, scene)


@pytest.mark.row("F13")
def test_a_second_interrupt_is_immediate_and_still_leaves_receipts(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        runner = await played.start()
        loop = asyncio.get_running_loop()
        loop.call_later(30, runner.interrupt, "SIGINT")
        loop.call_later(30.5, runner.interrupt, "SIGINT")
        assert (await runner.run()).verdict is RunVerdict.INTERRUPTED
        assert played.stage.seconds < 31
        assert [one.status for one in played.base.all_receipts()] == [StepStatus.INTERRUPTED]

    flow(tmp_path, "steps:\n" + step("a", "stubborn"), scene)


@pytest.mark.row("F13")
def test_a_function_whose_step_was_called_off_is_cancelled_and_leaves_a_receipt(tmp_path: Path) -> None:
    async def scene(played: Play) -> None:
        runner = await played.start()
        going_on = asyncio.ensure_future(runner.run())
        await asyncio.sleep(30)
        (row,) = await played.stage.watch.tasks()
        await played.stage.watch.cancel(row.task.id)
        await going_on
        assert played.stage.seconds < 60, "and not the ten minutes that the function would take"
        assert [one.status for one in played.base.all_receipts()] == [StepStatus.LOST]
        held_to_schema(played)

    flow(tmp_path, "steps:\n" + step("a", "sleep", seconds=550), scene)


@pytest.mark.row("F11")
def test_a_run_that_timed_out_goes_on_in_a_new_one_with_its_results(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 5m}\nsteps:\n"
        + step("a", "note", x="kept")
        + step("b", "sleep", ", needs: a, timeout_override: 6m", seconds=200, x="{{ steps.a.result.x }}")
        + step("c", "sleep", ", needs: b", seconds=200)
    )

    async def scene(played: Play) -> None:
        first = await run(played)
        assert (first.verdict, first.states) == (RunVerdict.TIMED_OUT, {"a": "done", "b": "done", "c": "failed"})
        again = await (await played.again()).run()
        assert (again.verdict, again.ran) == (RunVerdict.DONE, 1)
        assert seen == [{"x": "kept"}, {"seconds": 200, "x": "kept"}, {"seconds": 200}, {"seconds": 200}]
        assert len(played.base.record.runs) == 2

    flow(tmp_path, text, scene)


@pytest.mark.row("O9", "F11")
def test_a_humans_answer_is_carried_into_the_run_that_goes_on(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 45m, step: 10m}\nsteps:\n" + step("a", "sleep", seconds=650) + step("b", "note", ", needs: a")
    )

    async def scene(played: Play) -> None:
        first = await run(played)
        (question,) = first.questions
        await played.stage.watch.answer(question, "increase_timeout", timeout="12m")
        again = await (await played.again()).run()
        assert (again.verdict, again.states["b"]) == (RunVerdict.DONE, "done")
        assert played.base.record.runs == (RunId(played.base.record.run),)

    flow(tmp_path, text, scene)


def test_a_step_that_a_human_skipped_stays_skipped_with_all_that_needs_it(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 40m}\nsteps:\n"
        + step("a", "sleep", seconds=9e3)
        + step("b", "note", ", needs: a")
        + step("c", "unspeakable")
    )

    async def scene(played: Play) -> None:
        (question,) = (await run(played)).questions
        await played.stage.watch.answer(question, "skip")
        seen.clear()
        again = await (await played.again()).run()
        assert again.verdict is RunVerdict.FAILED
        assert again.states["c"] == "failed"
        assert seen == []

    flow(tmp_path, text, scene)


@pytest.mark.row("O9", "F11")
def test_a_humans_words_go_along_into_another_run(tmp_path: Path) -> None:
    """The flow's file was changed after the answer, so that what is left is done in another run of the store."""
    text = "timeouts: {flow: 45m, step: 1m}\nsteps:\n" + step("a", "told", go_on=str(tmp_path / "go"))

    async def scene(played: Play) -> None:
        assert (await run(played)).verdict is RunVerdict.NEEDS_HUMAN
        (question,) = await played.stage.watch.questions()
        await played.stage.watch.answer(question.id, "clarify", "the wall shall be red")
        (tmp_path / "go").touch()
        first, played.text = played.run, f"{text}description: another text\n"
        played.flow = load_flow(played.text, "f.yaml", played.settings)[0]
        assert (await (await played.again()).run()).verdict is RunVerdict.DONE
        assert played.run != first
        assert "This is attempt 4." in str(seen[-1])
        assert "the wall shall be red" in str(seen[-1])

    flow(tmp_path, text, scene)


@pytest.mark.row("F9", "F10")
@pytest.mark.parametrize(
    "function, inputs, actions, status",
    [
        ("ask_model", {"times": 2}, ["retry", "retry"], "done"),
        ("ask_model", {"times": 3}, ["retry", "retry", "fail"], "failed"),
        ("guarded_call", {"times": 2}, ["retry", "retry"], "done"),
        ("guarded_call", {"times": 3}, ["retry", "retry", "fail"], "failed"),
        ("go_on_after_a_timeout", {}, ["retry", "fail"], "done"),
    ],
)
def test_every_call_whose_time_is_up_is_logged_whatever_follows(
    tmp_path: Path, function: str, inputs: dict[str, int], actions: list[str], status: str
) -> None:
    text = "steps:\n" + step("a", function, ", retry: 0", **inputs)

    async def scene(played: Play) -> None:
        summary = await run(played)
        assert summary.states == {"a": status}
        lines = played.base.all_timeouts()
        assert {(line.scope, line.timeout_ms, line.elapsed_ms) for line in lines} == {("llm_call", 10_000, 10_000)}
        assert [(line.retry_count, line.final_action) for line in lines] == list(enumerate(actions))
        assert len({line.timestamp for line in lines}) == len(lines), "each says when it was"
        assert len({line.recovery_path for line in lines}) == len(lines)
        for line in lines:
            receipt = json.loads((tmp_path / line.recovery_path).read_text())
            assert (receipt["timeout_event"]["scope"], receipt["partial"]) == ("llm_call", False)
            transcript = receipt["context_for_resume"]["transcript_path"]
            said = (tmp_path / transcript).read_text()
            if function == "ask_model":
                assert said.count("hello") == line.retry_count + 1
                assert "hush-hush" not in said
        held_to_schema(played)

    flow(tmp_path, text, scene)


@pytest.mark.row("F9")
def test_a_step_whose_time_is_up_keeps_the_request_that_hung_in_a_transcript_of_each_attempt(tmp_path: Path) -> None:
    text = "steps:\n" + step("a", "ask_model", ", timeout_override: 5s, retry: 1", times=9)

    async def scene(played: Play) -> None:
        await run(played)
        lines = played.base.all_timeouts()
        assert [(line.scope, line.timeout_ms) for line in lines] == [("step", 5_000)] * 2
        receipts = [json.loads((tmp_path / line.recovery_path).read_text()) for line in lines]
        first, second = (one["context_for_resume"]["transcript_path"] for one in receipts)
        assert first != second
        for path in (first, second):
            assert (tmp_path / path).read_text().count("hello") == 1
        kept = [one.context_for_resume for one in played.base.all_receipts()]
        assert [one.transcript_path for one in kept if one is not None] == [first, second]

    flow(tmp_path, text, scene)


@pytest.mark.row("F2", "F9")
def test_a_tool_that_ends_after_its_steps_limit_is_a_timeout_of_the_step(tmp_path: Path) -> None:
    text = "steps:\n" + step("a", "end_slowly", ", timeout_override: 10s, retry: 0")

    async def scene(played: Play) -> None:
        await run(played)
        (receipt,) = played.base.all_receipts()
        assert (receipt.status, receipt.error) == (StepStatus.TIMEOUT, "its limit of 10s was reached")
        assert [(line.scope, line.timeout_ms) for line in played.base.all_timeouts()][-1] == ("step", 10_000)

    flow(tmp_path, text, scene)


@pytest.mark.row("O9", "F11")
def test_a_step_that_was_split_stays_split_when_the_run_goes_on(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 45m, step: 1m}\nsteps:\n"
        + step("a", "sleep", seconds=1e6)
        + step("b", "note", ", needs: a", after="a")
    )

    async def scene(played: Play) -> None:
        watch = played.stage.watch
        assert (await run(played)).verdict is RunVerdict.NEEDS_HUMAN
        (question,) = await watch.questions()
        await watch.answer(question.id, "split", subtasks=[{"name": "a1"}, {"name": "a2"}])
        await watch.sweep_once()
        first, tried = played.run, len(seen)
        runner = await played.again()
        assert played.run == first
        said: list[str] = []
        played.site.heard = lambda line: said.append(f"{line.event} {line.step_id} {line.data.get('text', '')}")
        going_on = asyncio.ensure_future(runner.run())
        for name in ("a1", "a2"):
            lease = await watch.claim(agent="ada", wait=60_000)
            assert lease is not None
            assert lease.name == name
            await asyncio.sleep(5)
            await lease.complete(None)
        summary = await going_on
        assert summary.verdict is RunVerdict.DONE
        assert summary.states == {"a": "split", "a1": "done", "a2": "done", "b": "done"}
        assert seen[tried:] == [{"after": "a"}], "the step itself is not run again"
        assert sum("subtask_waits a" in one and "allswell up" in one for one in said) == 2

    flow(tmp_path, text, scene)


@pytest.mark.row("O9", "F11")
def test_what_is_left_of_a_step_that_was_split_goes_along_into_another_run(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 45m, step: 1m}\nsteps:\n"
        + step("a", "sleep", seconds=1e6)
        + step("b", "note", ", needs: a", after="a")
    )

    async def scene(played: Play) -> None:
        watch = played.stage.watch

        async def part(end: str = "") -> str:
            lease = await watch.claim(agent="ada", wait=60_000, roles=["small"])
            assert lease is not None
            await (lease.fail("it is broken", error_class="validation") if end else lease.complete(None))
            return f"{lease.name} {lease.payload}"

        assert (await run(played)).verdict is RunVerdict.NEEDS_HUMAN
        (question,) = await watch.questions()
        small = [
            {"name": "a", "payload": 1, "role": "small", "priority": 1},  # even under the name of the step itself
            {"name": "b", "payload": 2, "role": "small"},
            {"name": "last", "payload": 3, "role": "small", "needs": ["b"]},
        ]
        await watch.answer(question.id, "split", subtasks=small)
        await watch.sweep_once()
        runs, tried = [played.run], len(seen)
        assert await part() == "a 1"

        played.text += "# the file has changed\n"
        runner = await played.again()
        runs.append(played.run)
        going_on = asyncio.ensure_future(runner.run())
        assert await part("fails") == "b 2"
        assert (await going_on).verdict is RunVerdict.FAILED
        await watch.end_run(played.run, "failed")
        await watch.sweep_once()

        runner = await played.again()
        runs.append(played.run)
        going_on = asyncio.ensure_future(runner.run())
        assert [await part(), await part()] == ["b 2", "last 3"]
        assert (await going_on).verdict is RunVerdict.DONE
        assert len(set(runs)) == 3
        assert seen[tried:] == [{"after": "a"}], (
            "the step itself is not run again, and what follows waited for its parts"
        )

    flow(tmp_path, text, scene)


@pytest.mark.row("O9", "F11")
def test_a_part_that_a_human_skips_is_not_begun_again_and_what_is_left_is_done(tmp_path: Path) -> None:
    text = (
        "timeouts: {flow: 45m, step: 1m}\nsteps:\n"
        + step("a", "sleep", seconds=1e6)
        + step("b", "note", ", needs: a", after="a")
    )

    async def scene(played: Play) -> None:
        watch = played.stage.watch
        await run(played)
        (question,) = await watch.questions()
        await watch.answer(question.id, "split", subtasks=[{"name": "a1", "priority": 1}, {"name": "a2"}])
        await watch.sweep_once()
        lease = await watch.claim(agent="ada")
        assert lease is not None
        await lease.fail("no account", error_class="permanent")
        (question,) = await watch.questions()
        await watch.answer(question.id, "skip")
        await watch.sweep_once()
        tried = len(seen)
        played.text += "# the file has changed\n"
        going_on = asyncio.ensure_future((await played.again()).run())
        lease = await watch.claim(agent="ada", wait=60_000)
        assert lease is not None
        assert lease.name == "a2"
        await lease.complete(None)
        await going_on
        assert seen[tried:] == []

    flow(tmp_path, text, scene)
