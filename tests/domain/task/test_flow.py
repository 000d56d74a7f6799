"""Durable flows: who may take one up, what becomes of one that is left, and who may record a step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.lease.claim import grant
from allswell.domain.lease.expiry import Tick
from allswell.domain.lease.model import LeaseRow
from allswell.domain.rules import decide as deciding
from allswell.domain.rules.bounds import check
from allswell.domain.rules.command import AcquireFlow, Ask, Claim, Command, Complete, Fail, NewTask, RecordStep, Release
from allswell.domain.rules.rule import RowSnapshot
from allswell.domain.run.lifecycle import fence, give_up_the_dead, record_step, take_up
from allswell.domain.run.run import Run
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.aggregate import FLOW_LEFT, TaskAggregate, TaskChange, leave, state
from allswell.domain.task.model import Policy, State
from allswell.domain.task.submit import PAYLOAD_MAX, accept
from allswell.errors import LeaseLost, Refused

NOW = Millis(1_700_000_000_000)
FLOW, RUN, ADA, BOB = TaskId("t_flow"), RunId("r_1"), AgentId("ada"), AgentId("bob")
NEW = NewTask(FLOW, "build", RUN, "flow", policy=Policy(timeout=600_000), flow=True)
HOLD = 60_000
THE_RUN = Run(RUN, "build", NOW, None)


def decide(case: TaskAggregate, command: Command, now: Millis) -> TaskChange:
    """The one entrance, for one flow in its run."""
    situation = RowSnapshot(now, {FLOW: case}, runs={RUN: THE_RUN})
    (out,) = deciding.decide(situation, command).outcomes
    return out


def wants(agent: AgentId = BOB, dead: int | None = None, name: str = "build") -> AcquireFlow:
    return AcquireFlow(
        CommandId(f"c.{agent}"), replace(NEW, name=name), agent, HOLD, None if dead is None else Token(dead)
    )


def new() -> TaskAggregate:
    return accept(NEW, 1, None, {}, {FLOW: False}, NOW).case


def held(now: Millis = NOW) -> tuple[TaskAggregate, LeaseRow]:
    case = take_up(new(), None, wants(ADA), now)[0][-1].case
    assert case.lease is not None
    return case, case.lease


def step(lease: LeaseRow, **changed: object) -> RecordStep:
    said = RecordStep(
        CommandId("s.1"), FLOW, lease.token, lease.agent, RUN, TaskId("t_step"), "load", '["a"]', "[1]", 250
    )
    return replace(said, **changed)


# --- taking up --------------------------------------------------------------------------------------------------------


def test_a_new_flow_is_held_at_once() -> None:
    case, lease = held()
    assert state(case) is State.HELD
    assert (lease.agent, lease.token, lease.length, lease.deadline) == (ADA, 1, HOLD, NOW + 600_000)
    assert case.ready is None


def test_the_same_word_again_is_answered_with_the_same_hold() -> None:
    case, lease = held()
    ((again,), _) = take_up(case, None, wants(ADA), Millis(NOW + 5))
    assert again.case.lease == lease


def test_while_somebody_holds_it_nobody_else_does() -> None:
    case, _ = held()
    with pytest.raises(
        Refused, match=r"is running: ada holds it; a holder that dies loses it 60 s from now"
    ) as refused:
        take_up(case, None, wants(), NOW)
    assert refused.value.code == "flow_running"


@pytest.mark.parametrize("token, gone", [(1, True), (2, False), (None, False)])
def test_a_holder_is_given_up_for_dead_by_its_own_token_only(token: int | None, gone: bool) -> None:
    case, _ = held()
    out = give_up_the_dead(case, wants(dead=token), Millis(NOW + 9), THE_RUN)
    assert (out is not None) == gone
    if out is not None:
        assert [attempt.outcome for attempt in out.attempts] == ["agent_died"]
        assert state(out.case) is State.WAITING


def test_running_it_again_withdraws_the_question_and_goes_on_with_the_next_token() -> None:
    case, lease = held()
    left = decide(case, Tick(FLOW, ADA), Millis(NOW + HOLD))
    (question,) = left.questions
    (freed, out), closed = take_up(left.case, question, wants(), Millis(NOW + HOLD + 1))
    assert closed is not None
    assert closed.choice == "withdrawn"
    assert state(freed.case) is State.READY, "step by step, as the table of moves has it"
    assert out.case.lease is not None
    assert (out.case.lease.token, out.case.lease.agent, out.case.waits) == (lease.token + 1, BOB, ())
    assert [event.kind for event in (*freed.events, *out.events)] == ["question_withdrawn", "task_claimed"]


def test_a_flow_that_is_over_or_another_is_refused() -> None:
    case, lease = held()
    done = decide(case, Complete(CommandId("d"), FLOW, lease.token, ADA), NOW).case
    assert take_up(done, None, wants(), NOW) == ((), None)
    skipped = replace(done, task=replace(done.task, state="skipped"))
    for wrong, command, said in (
        (skipped, wants(), "flow_over"),
        (case, wants(name="other"), "other_flow"),
        (replace(case, task=replace(case.task, spec=replace(case.task.spec, flow=False))), wants(), "not_a_flow"),
    ):
        with pytest.raises(Refused) as refused:
            take_up(wrong, None, command, NOW)
        assert refused.value.code == said


# --- left -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("F13")
@pytest.mark.parametrize(
    "ends, why",
    [
        (lambda _: (Tick(FLOW, ADA), NOW + HOLD), "its process died, or was cut off"),
        (
            lambda lease: (Release(CommandId("x"), FLOW, lease.token, ADA, "it was interrupted"), NOW),
            "it was interrupted",
        ),
        (
            lambda lease: (Fail(CommandId("x"), FLOW, lease.token, ADA, Failure(ErrorClass.AUTH, "no key")), NOW),
            "no key",
        ),
    ],
    ids=["lapsed", "released", "failed"],
)
def test_a_flow_that_nobody_runs_asks_a_human_and_is_never_in_the_pool(ends: object, why: str) -> None:
    case, lease = held()
    command, now = ends(lease)  # type: ignore[operator]
    out = decide(case, command, Millis(now))
    assert state(out.case) is State.WAITING
    assert out.case.ready is None
    (question,) = out.questions
    assert (question.kind, [option.key for option in question.options]) == (FLOW_LEFT, ["call_off"])
    assert f"has stopped: {why}." in question.text


def test_at_its_limit_it_is_left_too() -> None:
    case, lease = held()
    renewed = replace(case, lease=replace(lease, renewed_at=Millis(NOW + 590_000)))
    out = decide(renewed, Tick(FLOW, ADA), Millis(NOW + 600_000))
    assert "it reached its limit" in out.questions[0].text
    assert [event.kind for event in out.events].count("question_asked") == 1


def test_a_flow_cannot_wait_without_its_process() -> None:
    case, lease = held()
    said = Ask(CommandId("x"), FLOW, lease.token, ADA, "Which one?")
    with pytest.raises(Refused, match="a flow cannot wait for an answer without its process"):
        decide(case, said, NOW)
    assert decide(case, replace(said, hold=True), NOW).case.lease is not None


def test_a_plain_claim_finds_nothing_of_a_flow_that_was_left() -> None:
    case, lease = held()
    out = decide(case, Release(CommandId("x"), FLOW, lease.token, ADA), NOW)
    assert grant(out.case, Claim(CommandId("y"), BOB), NOW).answer is None
    assert leave.__doc__


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.row("F11")
def test_a_step_is_a_task_in_its_final_state() -> None:
    _, lease = held()
    done = record_step(lease, None, step(lease), 7, Millis(NOW + 1_000))
    assert done is not None
    task, attempt, event = done
    assert (task.state, task.name, task.role, task.run, task.lane) == ("done", "load", "step", RUN, 7)
    assert (task.created_at, task.ended_at) == (NOW + 750, NOW + 1_000)
    assert (attempt.outcome, attempt.agent, attempt.granted_at) == ("done", ADA, NOW + 750)
    assert (event.kind, event.data) == ("step_recorded", {"name": "load", "elapsed_ms": 250})


@pytest.mark.row("O10")
def test_only_the_holder_records() -> None:
    _, lease = held()
    for holder, now, why in (
        (None, NOW, "no agent holds the flow"),
        (replace(lease, token=Token(2), agent=BOB), NOW, "bob has taken the flow up since"),
        (replace(lease, agent=BOB), NOW, "bob has taken the flow up since"),
        (lease, NOW + HOLD, "its time ran out"),
        (lease, NOW + 600_000, "its time ran out"),
    ):
        with pytest.raises(LeaseLost, match=why):
            record_step(holder, None, step(lease), 1, Millis(now))
    fence(lease, step(lease), Millis(NOW + HOLD - 1))


def test_a_step_is_recorded_once_and_the_same_word_is_known() -> None:
    _, lease = held()
    done = record_step(lease, None, step(lease), 1, NOW)
    assert done is not None
    assert record_step(None, done[0], step(lease), 1, NOW) is None  # even when the hold is over by then
    with pytest.raises(Refused, match="is recorded already"):
        record_step(lease, done[0], step(lease, id=CommandId("s.2")), 1, NOW)


@pytest.mark.parametrize(
    "changed, code",
    [
        ({"step": TaskId("x")}, "bad_id"),
        ({"name": ""}, "bad_name"),
        ({"result": "x" * (PAYLOAD_MAX + 1)}, "too_large"),
        ({"payload": "x" * (PAYLOAD_MAX + 1)}, "too_large"),
        ({"result": "a\0b"}, "bad_text"),
    ],
)
def test_what_no_store_can_hold_is_refused(changed: dict[str, object], code: str) -> None:
    _, lease = held()
    with pytest.raises(Refused) as refused:
        check(step(lease, **changed))
    assert refused.value.code == code
