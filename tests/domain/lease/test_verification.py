"""Verification: a task is done when the command that verifies it has passed, and not before."""
# ruff: noqa: ANN401 - keywords are handed on to commands, which have types

from __future__ import annotations

from typing import Any

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis
from allswell.domain.lease.audit import AfterAudit
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.question import ACCEPT
from allswell.domain.rules.command import Ask, Verified
from allswell.domain.task.aggregate import TaskChange, state
from allswell.domain.task.model import Policy, broken_rules
from allswell.errors import LeaseLost, Refused
from tests.domain.life import Life, at

CHECKED = Policy(verify=("make", "test"))


def life(**policy: Any) -> Life:
    return Life(policy=Policy(verify=("make", "test"), **policy))


def stands(one: Life) -> str:
    return state(one.case).value


def judge(one: Life, now: Millis, *, passed: bool, id_: str = "", **said: Any) -> TaskChange:
    """A verdict on the attempt that holds the task, or on the last one."""
    lease, record = one.case.lease, one.case.task.record
    token = record.token if lease is None else lease.token
    agent = AgentId("ann") if lease is None else lease.agent
    why = said.pop("why", "exit code 0" if passed else "exit code 2")
    id_ = id_ or f"v{now}"
    return one.do(Verified(CommandId(id_), one.case.task.id, token, agent, passed, why, **said), now)


def test_a_holder_that_says_done_is_refused_until_it_was_verified_and_what_it_brought_is_kept() -> None:
    one = life()
    one.claim("ann", at(0))
    out = one.complete(at(1), result='{"pages": 3}', id_="done")
    assert isinstance(out.error, Refused)
    assert out.error.code == "needs_verification"
    assert "`make test` has passed" in out.error.message
    assert (stands(one), out.result) == ("held", '{"pages": 3}')
    out = judge(one, at(2), passed=True)
    assert (stands(one), out.result) == ("done", None), "no other result takes the place of what it brought"
    assert out.answer == AfterCheck(AfterAudit.ACCEPT, 0, 3)
    assert one.kinds()[-3:] == ["task_said_done", "task_verified", "task_completed"]
    assert one.complete(at(3), result='{"pages": 3}', id_="done", token=1, agent="ann").error is None
    assert judge(one, at(3), passed=True, id_="again").answer == AfterCheck(AfterAudit.ACCEPT, 0, 3)


def test_a_failure_goes_back_with_the_output_and_the_third_asks_a_human() -> None:
    one = life()
    for number in (1, 2):
        one.claim("ann", at(number))
        out = judge(one, at(number), passed=False, said="1 failed", elapsed=7)
        assert out.answer == AfterCheck(AfterAudit.MEND, number, 3)
        assert stands(one) == "ready"
        left = one.case.task.record.handover
        assert left is not None
        first, *rest = left.message.splitlines()
        assert first == f"It said done; `make test` failed (exit code 2), sent back, {number} of 3."
        assert rest == ["It printed last:", "1 failed"]
    one.claim("ann", at(3))
    assert judge(one, at(3), passed=False, said="1 failed").answer == AfterCheck(AfterAudit.ASK, 3, 3)
    assert stands(one) == "waiting"
    assert one.question.kind == "not_verified"
    text = one.question.text
    assert "`make test` failed 3 times, the last time with: exit code 2. What it brought is kept;" in text
    assert text.endswith("How should we proceed? It printed last:\n1 failed")
    assert [option.key for option in one.question.options] == ["accept", "retry", "clarify", "skip"]


@pytest.mark.parametrize(
    "option, text, then",
    [("accept", "", "done"), ("retry", "", "ready"), ("clarify", "x", "ready"), ("skip", "", "skipped")],
)
def test_the_options_act_and_start_the_count_anew(option: str, text: str, then: str) -> None:
    one = life(verify_attempts=1)
    one.claim("ann", at(0))
    one.complete(at(0), result='"mine"')
    judge(one, at(1), passed=False)
    one.answer(option, at(2), text=text)
    assert stands(one) == then
    assert one.case.task.record.failed_checks == ()
    if then == "done":
        assert one.case.task.record.reason == "accepted"
        assert "task_accepted" in one.kinds()
    if text:
        assert one.case.task.record.notes == ("x",)


def test_a_verdict_on_a_lease_that_is_over_counts_for_nothing_and_is_kept() -> None:
    one = life()
    lease = one.claim("ann", at(0), length=60_000)
    said = Verified(CommandId("v"), lease.task, lease.token, lease.agent, True, "exit code 0", result='"mine"')
    out = one.do(said, at(5))
    assert isinstance(out.error, LeaseLost)
    assert (stands(one), one.attempts[1].late) == ("ready", '"mine"')
    one.claim("bob", at(6))
    out = one.do(said, at(7))
    assert isinstance(out.error, LeaseLost)
    assert stands(one) == "held"


def test_what_was_said_to_be_done_is_not_done_over_again_when_its_holder_is_lost() -> None:
    one = life()
    one.claim("ann", at(0), length=60_000)
    one.complete(at(0), result='"mine"')
    one.tick(at(2))
    assert stands(one) == "waiting"
    assert "has not been run to its end: its holder is gone" in one.question.text
    assert judge(one, at(3), passed=False, by="grace").answer == AfterCheck(AfterAudit.ASK, 0, 3)
    assert stands(one) == "waiting", "an operator's look changes nothing for the worse"
    judge(one, at(4), passed=True, by="grace")
    assert stands(one) == "done"
    assert one.spread is not None, "which withdraws the question"


def test_at_its_limit_too_a_human_is_asked_and_the_limit_is_counted() -> None:
    one = life(timeout=600_000)
    one.claim("ann", at(0))
    one.complete(at(9))
    one.tick(at(10))
    assert stands(one) == "waiting"
    assert one.case.task.record.timeouts == 1
    assert "the limit of its attempt was reached first" in one.question.text


def test_an_operator_verifies_only_what_is_said_to_be_done() -> None:
    one = life()
    one.claim("ann", at(0))
    with pytest.raises(Refused, match="does not say that it is done"):
        judge(one, at(1), passed=True, by="grace")
    other = Life()
    other.claim("ann", at(0))
    with pytest.raises(Refused, match="is not to be verified"):
        judge(other, at(1), passed=True)


def test_a_question_of_the_agents_own_is_not_answered_by_a_verification() -> None:
    one = life()
    lease = one.claim("ann", at(0))
    one.complete(at(0))
    one.do(Ask(CommandId("ask"), lease.task, lease.token, lease.agent, "shall I?"), at(1))
    out = judge(one, at(2), passed=True, by="grace")
    assert isinstance(out.error, LeaseLost)
    assert stands(one) == "waiting"


def test_an_agent_cannot_offer_that_its_own_work_is_accepted() -> None:
    one = life()
    lease = one.claim("ann", at(0))
    with pytest.raises(Refused, match="cannot offer that"):
        one.do(Ask(CommandId("ask"), lease.task, lease.token, lease.agent, "done?", (ACCEPT,)), at(1))


def test_for_half_a_minute_only_its_own_agent_is_given_what_was_sent_back() -> None:
    one = life()
    one.claim("builder.1", at(0))
    judge(one, at(1), passed=False)
    with pytest.raises(AssertionError):
        one.claim("other", at(1))
    one.claim("builder.2", at(1))  # another slot of the same agent
    judge(one, at(2), passed=False)
    one.claim("other", at(2.6))


def test_a_holder_that_verifies_its_own_work_keeps_the_task_and_a_repeated_verdict_counts_once() -> None:
    one = life(verify_attempts=2)
    one.claim("ann", at(0))
    one.complete(at(0), result='"first"')
    for _ in range(2):
        assert judge(one, at(1), passed=False, hold=True, id_="v").answer == AfterCheck(AfterAudit.MEND, 1, 2)
    assert (stands(one), one.case.task.record.said_done) == ("held", None)
    assert judge(one, at(2), passed=False, hold=True, id_="w").answer == AfterCheck(AfterAudit.ASK, 2, 2)
    assert stands(one) == "waiting"
    assert judge(one, at(3), passed=False, id_="w").answer == AfterCheck(AfterAudit.ASK, 2, 2)


def test_a_repeated_verdict_that_sent_it_back_is_answered_as_before() -> None:
    one = life()
    one.claim("ann", at(0))
    one.complete(at(0), id_="done")
    first = judge(one, at(1), passed=False, id_="v").answer
    assert judge(one, at(2), passed=False, id_="v").answer == first
    out = one.complete(at(2), id_="done", token=1, agent="ann")
    assert isinstance(out.error, LeaseLost), "what failed is not done because it is said again"
    assert "sent back" in str(out.error)


def test_a_policy_that_cannot_verify_is_refused() -> None:
    assert not broken_rules(CHECKED)
    for wrong in (
        Policy(verify=("",)),
        Policy(verify=("x" * 5_000,)),
        Policy(verify=("a\0b",)),
        Policy(verify_attempts=0),
        Policy(verify_timeout=0),
    ):
        assert broken_rules(wrong), wrong


def test_what_is_sent_back_is_kept_for_its_agent_only_until_its_next_attempt_has_ended() -> None:
    one = life()
    one.claim("ann", at(0))
    judge(one, at(1), passed=False)
    one.claim("ann", at(1))
    one.release(at(1.1))
    one.claim("bob", at(1.1))
