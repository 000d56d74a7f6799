"""The rule for a verdict: a word about a lease, as any other; or an operator's, about work that waits for a human."""

from __future__ import annotations

from allswell.domain.case import Case, Outcome
from allswell.domain.command import Verified
from allswell.domain.decision import Decision
from allswell.domain.names import QuestionId
from allswell.domain.rule import Names, Reads, Rule
from allswell.domain.situation import Situation
from allswell.domain.verification import NOT_VERIFIED, before, claims_to_be_done, judge_claim, verify_of
from allswell.domain.word import past_of, say


def verified(situation: Situation, command: Verified) -> Decision:
    """Decide a verdict."""
    case = situation.case(command.task)
    task = case.task
    said_before = before(task, situation.attempts.get((task.id, command.token)), command)
    if said_before is not None:
        return Decision(said_before)
    if not (
        _waits(situation, case) and verify_of(task) and claims_to_be_done(task) and task.record.token == command.token
    ):
        return say(situation, command)
    out = Outcome(case, run=situation.run_of(task))
    judge_claim(out, command.agent, command, situation.now)
    return Decision(out.answer, outcomes=(out,))


def _waits(situation: Situation, case: Case) -> bool:
    """Whether a task waits for a human to say what shall become of work that was not verified."""
    asked = [situation.questions.get(question) for question in _asked(case)]
    return case.lease is None and any(one is not None and one.kind == NOT_VERIFIED for one in asked)


def _asked(case: Case) -> list[QuestionId]:
    return [QuestionId(wait.target) for wait in case.waits if wait.kind == "question"]


def _reads(command: Verified, situation: Situation) -> Reads | None:
    """The attempt that it is about, and the questions that the task waits for."""
    case, past = situation.cases.get(command.task), past_of(command, situation)
    if case is None or past is None:
        return past
    return Reads(past.attempts, _asked(case))


def _names(command: Verified) -> Names:
    task = (command.task,)
    return Names(held=task, agents=(command.agent,), runs_of=task)


RULES = (Rule(Verified, verified, _names, reads=_reads),)
