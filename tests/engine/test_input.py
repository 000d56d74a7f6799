"""Bad input at the Python API: a clear error, and nothing is changed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from allswell import LeaseLost, Option, Policy, Refused, Watch
from allswell.domain.ids import AgentId, CommandId, TaskId, Token
from allswell.domain.question import AnswerAction
from allswell.domain.rules.command import Ask, CheckIn, Complete, EndIdle, Fail, RecordReceipt, Recover, Release
from allswell.domain.service.retry import Failure
from tests.engine.stage import Stage, play

Call = Callable[[Watch], Awaitable[object]]
BIG = "x" * (1 << 20)
NOBODY = TaskId("t_nobody")
UNSTORABLE = ["a\0b", "a\nb", "\ud800"]

BAD_SUBMISSIONS: dict[str, tuple[Call, str, str]] = {
    "payload over 1 MiB": (lambda w: w.submit("a", payload=BIG), "too_large", "payload of a is larger than 1048576"),
    "payload that is not JSON": (
        lambda w: w.submit("a", payload={1, object()}),
        "not_json",
        "cannot be written as JSON",
    ),
    "payload with a number that JSON does not have": (
        lambda w: w.submit("a", payload={"scores": [1.0, None, float("nan")]}),
        "not_json",
        "payload of 'a' cannot be written as JSON: JSON has no nan (at scores.2)",
    ),
    "payload with a lone surrogate": (lambda w: w.submit("a", payload="\ud800"), "not_json", "payload of 'a'"),
    "name with a control character": (
        lambda w: w.submit("a\x1b"),
        "bad_name",
        "control character U+001B at position 1",
    ),
    "no name": (lambda w: w.submit(""), "bad_name", "name must not be empty"),
    "name that is not text": (lambda w: w.submit_many([{"name": 5}]), "bad_name", "task number 1 has no name"),
    "negative priority": (lambda w: w.submit("a", priority=-1), "bad_priority", "it must be 0 to 1000000"),
    "fractional priority": (lambda w: w.submit_many([{"name": "a", "priority": 1.5}]), "bad_field", "Expected `int`"),
    "unknown need": (
        lambda w: w.submit("a", needs=["t_nobody"]),
        "unknown_need",
        "needs t_nobody, which does not exist",
    ),
    "need that no store can hold": (lambda w: w.submit("a", needs=["t_\0"]), "unknown_need", "which does not exist"),
    "needs as a string": (lambda w: w.submit("a", needs="t_nobody"), "bad_field", "needs of 'a' must be a list"),
    "needs of needs": (lambda w: w.submit_many([{"name": "a", "needs": [["b"]]}]), "bad_field", "list of names"),
    "unknown run": (lambda w: w.submit("a", run="r_nobody"), "unknown_run", "there is no run r_nobody"),
    "unknown field": (
        lambda w: w.submit_many([{"name": "a", "prioritty": 1}]),
        "unknown_field",
        "a task has no field 'prioritty'; did you mean 'priority'?",
    ),
    "field like none": (
        lambda w: w.submit_many([{"name": "a", "zzz": 1}]),
        "unknown_field",
        "a task has no field 'zzz'",
    ),
    "bad duration": (lambda w: w.submit("a", timeout="soon"), "bad_duration", "timeout 'soon' is not a duration"),
    "impossible policy": (lambda w: w.submit("a", timeout=0), "bad_policy", "timeout (0 ms) must be positive"),
    "policy that is none": (lambda w: w.submit_many([{"name": "a", "policy": "x"}]), "bad_field", "Expected `object`"),
    "policy of wrong types": (
        lambda w: w.submit("a", policy=Policy(timeout="5m")),  # type: ignore[arg-type]
        "bad_field",
        "Expected `int | null`",
    ),
    "retries in words": (lambda w: w.submit_many([{"name": "a", "retries": "two"}]), "bad_field", "Expected `int`"),
    "role that is a list": (lambda w: w.submit_many([{"name": "a", "role": ["x"]}]), "bad_field", "Expected `str`"),
    "time in microseconds": (lambda w: w.submit("a", not_before=10**15), "bad_time", "milliseconds since 1970"),
    "unknown choice": (
        lambda w: w.submit_many([{"name": "a", "if_need_fails": "cry"}]),
        "bad_field",
        "Invalid enum value 'cry'",
    ),
    "cycle": (
        lambda w: w.submit_many([{"name": "A", "needs": ["B"]}, {"name": "B", "needs": ["A"]}]),
        "cycle",
        "dependency cycle detected: A <-> B",
    ),
    "cycle of three": (
        lambda w: w.submit_many([{"name": a, "needs": [b]} for a, b in ("AB", "BC", "CA")]),
        "cycle",
        "dependency cycle detected: A -> B -> C -> A",
    ),
    "key taken by another": (lambda w: w.submit("other", key="k"), "id_taken", "exists already and is a different one"),
    "one bad of many": (
        lambda w: w.submit_many([{"name": "a"}, {"name": "b", "priority": -1}]),
        "bad_priority",
        "priority of b is -1",
    ),
    "the same key twice": (
        lambda w: w.submit_many([{"name": "a", "key": "j"}, {"name": "b", "key": "j"}]),
        "duplicate_id",
        "b and a have the same id",
    ),
}

BAD_CALLS: dict[str, tuple[Call, str, str]] = {
    "cancel of nothing": (lambda w: w.cancel("t_nobody"), "unknown_task", "there is no task t_nobody"),
    "cancel with NUL": (lambda w: w.cancel("t_\0"), "unknown_task", "there is no task"),
    "end of no run": (lambda w: w.end_run("r_nobody"), "unknown_run", "there is no run r_nobody"),
    "run without a name": (lambda w: w.open_run(" "), "bad_name", "name must not be empty"),
    "run with a bad timeout": (lambda w: w.open_run("r", timeout=-1), "bad_duration", "between 0 and 366 days"),
    "answer to nothing": (
        lambda w: w.answer("q_nobody.1", "skip"),
        "unknown_question",
        "there is no question q_nobody.1",
    ),
    "answer to no id": (lambda w: w.answer("what", "skip"), "unknown_question", "there is no question what"),
    "claim by nobody": (lambda w: w.claim(agent=""), "bad_name", "agent must not be empty"),
    "claim by a control character": (lambda w: w.claim(agent="a\0"), "bad_name", "control character U+0000"),
    "claim of none": (lambda w: w.claim_many(0, agent="a"), "bad_count", "1 to 10000 tasks, not 0"),
    "claim too short": (lambda w: w.claim(agent="a", lease=50), "bad_lease", "a lease of 50 ms is too short"),
    "claim with a bad wait": (lambda w: w.claim(agent="a", wait="soon"), "bad_duration", "wait 'soon'"),
    "claim with a wait in seconds": (
        lambda w: w.claim(agent="a", wait=0.5),  # type: ignore[arg-type]
        "bad_duration",
        "wait must be milliseconds, a string such as '15m', or a timedelta",
    ),
    "claim with a bad id": (
        lambda w: w.claim(agent="a", command="\0"),
        "bad_name",
        "command has the control character",
    ),
    "claim with a long id": (lambda w: w.claim(agent="a", command="x" * 201), "bad_name", "at most 200"),
}


@pytest.mark.parametrize("name", [*BAD_SUBMISSIONS, *BAD_CALLS])
def test_bad_input_is_refused_clearly_and_nothing_is_changed(name: str) -> None:
    call, code, words = {**BAD_SUBMISSIONS, **BAD_CALLS}[name]

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("first", key="k")
        before, lanes = stage.contents(), dict(stage.store.database.lanes)
        with pytest.raises(Refused) as caught:
            await call(stage.watch)
        assert caught.value.code == code
        assert words in caught.value.message
        assert stage.contents() == before
        assert stage.store.database.lanes == lanes

    play(scene)


@pytest.mark.parametrize("field", ["role", "services", "barred"])
@pytest.mark.parametrize("text", UNSTORABLE)
def test_names_that_no_store_can_hold_reach_none(field: str, text: str) -> None:
    async def scene(stage: Stage) -> None:
        before = stage.contents()
        with pytest.raises(Refused, match="control character"):
            await stage.watch.submit_many([{"name": "a", field: text if field == "role" else [text]}])
        assert stage.contents() == before
        assert [lane for lane in stage.store.database.lanes if text in str(lane)] == []

    play(scene)


@pytest.mark.parametrize("task", [NOBODY, *map(TaskId, UNSTORABLE)])
@pytest.mark.parametrize("agent", ["bob", "a\0"])
def test_a_holder_of_nothing_is_refused(task: TaskId, agent: str) -> None:
    id_, token, who = CommandId("c"), Token(1), AgentId(agent)

    async def scene(stage: Stage) -> None:
        engine = stage.watch._engine
        before = stage.contents()
        for command in (
            Complete(id_, task, token, who),
            Fail(id_, task, token, who, Failure()),
            Release(id_, task, token, who),
            Recover(id_, task, token, who),
            EndIdle(id_, task, token, who),
            RecordReceipt(id_, task, token, who, "rc_a.1", "idle"),
            Ask(id_, task, token, who, "why?"),
        ):
            with pytest.raises(Refused, match="there is no task") as caught:
                await engine.do(command)
            assert caught.value.code == "unknown_task"
        with pytest.raises(LeaseLost, match="no agent holds the task"):
            await engine.check_in(CheckIn(task, token, who))
        assert stage.contents() == before

    play(scene)


@pytest.mark.parametrize("token, agent", [(0, "bob"), (2, "bob"), (1, "eve"), (1, "a\0")])
def test_a_wrong_token_or_agent_changes_nothing(token: int, agent: str) -> None:
    id_, tok, who = CommandId("c"), Token(token), AgentId(agent)

    async def scene(stage: Stage) -> None:
        task = await stage.watch.submit("a")
        await stage.watch.claim(agent="bob")
        before = stage.contents()
        for command in (
            Complete(id_, task, tok, who),
            Fail(id_, task, tok, who, Failure()),
            Release(id_, task, tok, who),
            Recover(id_, task, tok, who),
            EndIdle(id_, task, tok, who),
            RecordReceipt(id_, task, tok, who, "rc_a.1", "idle"),
            Ask(id_, task, tok, who, "why?"),
        ):
            with pytest.raises(LeaseLost):
                await stage.watch._engine.do(command)
        with pytest.raises(LeaseLost):
            await stage.watch._engine.check_in(CheckIn(task, tok, who))
        assert stage.contents() == before

    play(scene)


def test_a_holder_s_bad_input_is_refused_and_its_lease_goes_on() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit("a", services=["api"])
        lease = await stage.watch.claim(agent="bob")
        assert lease is not None
        before = stage.contents()
        same = (Option("a", "A", AnswerAction.RETRY), Option("a", "B", AnswerAction.SKIP))
        for call, code in (
            (lambda: lease.complete(BIG), "too_large"),
            (lambda: lease.complete({object()}), "not_json"),
            (lambda: lease.complete(float), "not_json"),
            (lambda: lease.complete(float("inf")), "not_json"),
            (lambda: lease.delegate("expert", "b", payload=[float("-inf")]), "not_json"),
            (lambda: lease.checkin(progress=float("nan")), "bad_progress"),
            (lambda: lease.fail(Failure(message="x" * 20_000)), "too_large"),
            (lambda: lease.fail("bad", error_class="sad"), "bad_class"),
            (lambda: lease.fail("bad", retry_after="soon"), "bad_duration"),
            (
                lambda: lease.fail("bad", error_class="rate_limit", retry_after="10m", services=["a\0"]),
                "bad_name",
            ),
            (lambda: lease.release("x" * 20_000), "too_large"),
            (lambda: lease.release(delay="-1s"), "bad_duration"),
            (lambda: lease.ask(" "), "bad_question"),
            (lambda: lease.ask("why?", same), "bad_question"),
            (lambda: lease.checkin("x" * 20_000), "too_large"),
            (lambda: lease.checkin(progress=2), "bad_progress"),
        ):
            with pytest.raises(Refused) as caught:
                await call()
            assert caught.value.code == code
        assert stage.contents() == before
        await lease.complete()

    play(scene)


def test_one_bad_caller_among_many_spoils_nobody_s_batch() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        calls = [call for call, _, _ in BAD_SUBMISSIONS.values()]
        good = [watch.submit(f"good {number}") for number in range(20)]
        answers = await asyncio.gather(*good, *(call(watch) for call in calls), return_exceptions=True)
        assert all(isinstance(answer, str) for answer in answers[:20])
        # Nobody has the key here, so the one that would take it is welcome.
        assert sum(isinstance(answer, Refused) for answer in answers[20:]) == len(calls) - 1

    play(scene)
