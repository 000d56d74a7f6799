"""Whatever is said, verified and decided about a task, it is done only by a verdict that passed, or a human's word.

And the one rule of audits holds: of failures since a human last decided, fewer than `verify_attempts` send it back, and
that many ask a human.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.lease.audit import AuditVerdict, HumanDecision, after_verdict, failed_audits
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.rules.command import Verified
from allswell.domain.task.aggregate import state
from allswell.domain.task.model import OPEN, Policy, State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import START, Life
from tests.properties.budget import DETERMINISTIC

VERBS = ["claim", "claim", "say_done", "pass", "fail", "fail", "fail_held", "answer", "stale", "wait", "wait_long"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["claim", "say_done", "pass", "fail", "fail", "fail_held", "answer", "stale", "wait", "wait_long"]
        ),
        st.sampled_from(["ann", "bob.1", "bob.2"]),
    ),
    max_size=30,
)


@DETERMINISTIC
@given(STEPS, st.integers(1, 4))
def test_a_task_is_done_by_a_verdict_that_passed_or_by_a_humans_word_and_by_nothing_else(
    steps: list[tuple[str, str]], most: int
) -> None:
    one = Life(policy=Policy(verify=("true",), verify_attempts=most))
    now, rightly = START, False
    history: list[AuditVerdict | HumanDecision] = []
    task = one.case.task.id
    for number, (verb, agent) in enumerate(steps):
        if one.case.task.state != OPEN:
            break
        now = Millis(now + (1_000_000 if verb == "wait_long" else 31_000 if verb == "wait" else 10))
        stands, lease = state(one.case), one.case.lease
        token = Token(one.record.token if lease is None else lease.token)
        holder = AgentId(agent) if lease is None else lease.agent
        id_ = CommandId(f"v{number}")
        if verb.startswith("wait"):
            one.tick_when_due(now)
        elif verb == "claim" and stands is State.READY:
            with suppress(AssertionError):  # it is kept for the agent it was sent back to
                one.claim(agent, now, length=40_000)
        elif verb == "say_done" and lease is not None:
            out = one.complete(now, result='"mine"')
            assert isinstance(out.error, Refused | LeaseLost)
        elif verb in ("pass", "fail", "fail_held"):
            said = Verified(id_, task, token, holder, verb == "pass", "so", by="", hold=verb == "fail_held")
            out = one.do(said, now)
            if out.error is None and verb == "pass":
                rightly = True
            elif isinstance(out.answer, AfterCheck) and lease is not None and out.error is None:
                history.append(AuditVerdict("it", passed=False))
                failed = failed_audits(history, "it")
                assert out.answer == AfterCheck(after_verdict(passed=False, failed=failed, most=most), failed, most)
        elif verb == "stale" and token > 1:
            out = one.do(Verified(id_, task, Token(token - 1), holder, True, "so"), now)
            assert isinstance(out.error, LeaseLost)
        elif verb == "answer" and any(question.closed_at is None for question in one.questions.values()):
            keys = [option.key for option in one.question.options]
            choice = keys[number % len(keys)] if keys[number % len(keys)] != "split" else "skip"
            one.answer(choice, now, text="so it is", id_=f"a{number}")
            rightly = rightly or choice == "accept"
            history.append(HumanDecision())
    assert (one.case.task.state == State.DONE) == rightly
    assert len(one.record.failed_checks) <= most
