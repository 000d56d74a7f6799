"""What a line comes to, decided without a store: who may say what, and what everybody else is told."""

import pytest

from allswell.domain.build.hearing import Rights, Speaker, follow_line
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import Line, MalformedLine, RejectLine, read
from allswell.domain.build.state import (
    AnswerQuestion,
    BuildAudit,
    BuildQuestion,
    BuildStatus,
    BuildStep,
    ClaimMark,
    CollectClaim,
    ComponentStatus,
    GiveVerdict,
    HoldComponent,
    IgnoreLine,
    PastAttempt,
    RequestAudit,
    SayLine,
)
from allswell.domain.ids import Millis, QuestionId, TaskId, Token

FREE = ComponentStatus("Db", "free", task=TaskId("t_db"))
HELD = ComponentStatus("api", "held", (), TaskId("t_api"), "@a", Token(1), ClaimMark(Millis(100), "m1"))
AUDIT = BuildAudit(1, TaskId("t_audit"), "https://x/1", "@a", Token(1))
IN_AUDIT = ComponentStatus("web", "held", (), TaskId("t_web"), "@a", Token(1), audits=(AUDIT,))
ASKED = BuildQuestion(QuestionId("q_1.1"), "What now?", ("retry", "skip"))
STANDING = BuildStatus({one.name: one for one in (FREE, HELD, IN_AUDIT)}, questions=(ASKED,))


def follow(text: str, who: str = "@b", rights: Rights | None = None, *, keyed: bool = True, at: int = 200) -> BuildStep:
    (line,) = read(text)
    assert not isinstance(line, MalformedLine)
    said: Line = line
    speaker = Speaker(who, Millis(at), "m2", keyed)
    return follow_line(STANDING, said, speaker, rights or Rights(humans=["@human"]), BuildLimits())[0]


def why(step: BuildStep) -> str:
    assert isinstance(step, SayLine)
    assert isinstance(step.line, RejectLine)
    return step.line.reason


def test_a_component_is_known_in_small_letters_and_large_ones() -> None:
    assert follow("CLAIM dB") == CollectClaim("Db", "@b", ClaimMark(Millis(200), "m2"))


@pytest.mark.row("C8")
def test_where_keys_are_required_claims_without_one_are_refused() -> None:
    rights = Rights(require_keys=True)
    assert why(follow("CLAIM db", rights=rights, keyed=False)) == "claims need a key here"
    assert isinstance(follow("CLAIM db", rights=rights), CollectClaim)


@pytest.mark.row("C3")
def test_the_same_claim_heard_twice_is_answered_once() -> None:
    granted = follow_line(STANDING, read("CLAIM api")[0], Speaker("@a", Millis(100), "m1"), Rights(), BuildLimits())  # type: ignore[arg-type]
    assert isinstance(granted[0], IgnoreLine)
    assert isinstance(follow("CLAIM api", "@a"), SayLine)  # said again: it has not heard the ACK
    assert why(follow("CLAIM api")) == "already claimed"


@pytest.mark.row("C6")
def test_only_the_holder_speaks_for_a_component() -> None:
    for text in ("PROGRESS api 50%", "BLOCKED api db", "READY api https://x/1", 'ABORT api "x"'):
        assert why(follow(text)) == "you do not have it; @a has it now"
        assert not isinstance(follow(text, "@a"), SayLine)
    assert follow("PROGRESS api 50% half", "@a") == HoldComponent("api", TaskId("t_api"), Token(1), "@a", "half", 0.5)


@pytest.mark.row("C2")
def test_a_newer_ready_takes_the_place_of_one_that_nobody_has_judged() -> None:
    newer = follow("READY web https://x/2", "@a")
    assert isinstance(newer, RequestAudit)
    assert (newer.audit.number, newer.instead_of) == (2, TaskId("t_audit"))
    assert isinstance(follow("READY web https://x/1", "@a"), IgnoreLine)
    assert follow("AUDIT web PASS") == GiveVerdict("web", AUDIT, "@b", passed=True)
    assert isinstance(follow("AUDIT api PASS"), IgnoreLine)


@pytest.mark.row("C7")
def test_only_humans_answer_and_only_what_is_asked() -> None:
    assert follow("ANSWER q_1.1 retry please", "@human") == AnswerQuestion(ASKED.id, "retry", "please", "@human")
    assert isinstance(follow("ANSWER q_1.1 retry"), IgnoreLine)
    assert isinstance(follow("ANSWER q_9.1 retry", "@human"), IgnoreLine)


@pytest.mark.row("C5")
def test_counts_begin_anew_when_a_human_has_decided() -> None:
    def given_back(token: int, outcome: str = "released") -> PastAttempt:
        return PastAttempt(Token(token), "@a", outcome, "aborted: x" if outcome == "released" else "")

    twice = ComponentStatus("x", "free", past=(given_back(1), given_back(2)))
    assert twice.aborts == 2
    decided = ComponentStatus("x", "free", past=(given_back(1), given_back(2), given_back(3, "asked"), given_back(4)))
    assert decided.aborts == 1
