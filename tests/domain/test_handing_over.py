"""What the next holder is told, in words: the reason, the last check-in, the work, and what humans added."""

import pytest

from allswell.domain.handing_over import in_words
from allswell.domain.names import AgentId
from allswell.domain.task import Handover

ADA = AgentId("ada")


def test_a_first_attempt_is_told_nothing() -> None:
    assert in_words(1, None, ()) == ""


@pytest.mark.row("O4", "O8")
def test_the_reason_the_last_check_in_the_work_and_the_notes() -> None:
    note = "CHECKPOINT: t_1\nCompleted: lexer\nRemaining: parser, tests\nBlockers: no grammar\nEstimated Progress: 40%"
    handover = Handover("agent_timeout", ADA, "", note, 0.4)
    told = in_words(2, handover, ["use the old grammar"], "The work is kept in refs/allswell/t_1/1.")
    assert "This is attempt 2. The last one, by ada, ended because it reached its time limit." in told
    assert "Its last check-in (40% done):\n  CHECKPOINT: t_1" in told
    assert "Go on with: parser, tests" in told
    assert "What blocked it: no grammar" in told
    assert "The work is kept in refs/allswell/t_1/1." in told
    assert told.endswith("Notes from a human, the newest last:\n- use the old grammar")


def test_a_failure_says_its_class_and_its_words() -> None:
    told = in_words(3, Handover("failed:network", ADA, "connection reset"), ())
    assert "ended because it failed (network)." in told
    assert "It said: connection reset" in told


def test_an_answer_to_its_question() -> None:
    assert "A human has answered: yes" in in_words(2, Handover("asked", ADA, "may I?", answer="yes"), ())
