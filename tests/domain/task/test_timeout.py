"""The run limit: the task goes back, is counted, and the third time a human is asked (O4, O9)."""

from typing import Any

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId
from allswell.domain.lease.claim import grant
from allswell.domain.lease.expiry import is_asked_about
from allswell.domain.rules.command import Answer, Claim
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.aggregate import TaskChange
from allswell.domain.task.answer import answer
from allswell.domain.task.model import Policy, State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import MINUTE, Life, at, new

OPTIONS = [
    "Split task into smaller subtasks",
    "Clarify requirements",
    "Increase timeout for this task",
    "Skip task and continue",
]


def timed_out(times: int, life: Life | None = None) -> Life:
    """A task that has reached its limit so many times, a different agent each time."""
    life = life or Life()
    for number in range(times):
        life.claim(f"agent{number}", at(100 * number))
        life.tick_when_due(at(100 * number + 99))
    return life


@pytest.mark.row("O4")
def test_at_the_run_limit_the_task_goes_back_and_is_counted() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.tick_when_due(Millis(at(15) - 1))
    assert life.stands() is State.HELD
    life.events.clear()
    life.tick_when_due(at(15))
    assert life.stands() is State.READY
    timeout, returned = life.events
    assert (timeout.kind, timeout.agent, timeout.task) == ("agent_timeout", "bob", "t_a")
    assert (returned.kind, dict(returned.data)) == ("task_returned", {"reason": "agent_timeout"})
    assert life.record.timeouts == 1
    assert life.case.lease is None


@pytest.mark.row("O4")
@pytest.mark.parametrize("late", [0, 1, 12_345])
def test_the_elapsed_time_is_measured(late: int) -> None:
    life = Life()
    life.claim("bob", at(0))
    life.tick(Millis(at(15) + late))
    assert life.told("agent_timeout")[0].data == {"elapsed_ms": 15 * MINUTE + late}


@pytest.mark.row("O4")
def test_the_third_timeout_asks_a_human_and_the_task_is_not_handed_out_meanwhile() -> None:
    life = timed_out(2)
    assert life.told("task_repeated_timeout") == []
    assert life.stands() is State.READY
    life.claim("agent2", at(200))
    life.tick_when_due(at(299))
    (told,) = life.told("task_repeated_timeout")
    assert (told.task, dict(told.data)) == ("t_a", {"count": 3, "action": "divine_intervention"})
    assert life.stands() is State.WAITING
    assert grant(life.case, Claim(CommandId("c"), AgentId("bob")), at(300)).answer is None
    life.tick(at(100_000))
    assert life.stands() is State.WAITING, "human answers never expire"


@pytest.mark.row("O4")
def test_the_order_of_events_is_the_seeds() -> None:
    life = timed_out(3, Life(policy=Policy(timeout=MINUTE)))
    assert life.kinds()[-4:] == ["agent_timeout", "task_returned", "task_repeated_timeout", "question_asked"]


@pytest.mark.row("O9")
def test_the_question_names_the_task_the_count_the_causes_and_four_options() -> None:
    life = timed_out(3)
    question = life.question
    assert question.text == (
        "Task t_a (A) has timed out 3 times. Possible causes: task too large, unclear requirements, or "
        "infrastructure issue. How should we proceed?"
    )
    assert [option.label for option in question.options] == OPTIONS
    assert (question.task, question.asked_at, question.asked_by) == ("t_a", at(215), "allswell")
    (told,) = life.told("question_asked")
    assert dict(told.data) == {
        "question": question.id,
        "kind": "repeated_timeout",
        "text": question.text,
        "options": OPTIONS,
    }


def reset(out: TaskChange) -> bool:
    record = out.case.task.record
    return (record.timeouts, record.stalls, record.lapses, record.failures) == (0, 0, 0, {})


@pytest.mark.row("O9")
@pytest.mark.parametrize("said", ["clarify", " Clarify Requirements "])
def test_clarifying_adds_the_text_for_the_next_attempt(said: str) -> None:
    life = timed_out(3)
    assert reset(life.answer(said, at(300), text="only the first chapter", by="eve"))
    assert life.stands() is State.READY
    assert life.record.notes == ("only the first chapter",)
    assert life.told("question_answered")[0].data == {"question": "q_a.1", "choice": "clarify", "by": "eve"}
    assert life.kinds()[-2:] == ["question_answered", "task_ready"]


@pytest.mark.row("O9")
def test_increasing_the_timeout_doubles_it_unless_told_how_much() -> None:
    life = timed_out(3)
    assert reset(life.answer("increase_timeout", at(300)))
    assert life.claim("bob", at(300)).deadline == at(330)
    life = timed_out(3)
    life.answer("increase_timeout", at(300), timeout=Millis(20 * MINUTE))
    assert life.record.timeout_override == 20 * MINUTE
    assert life.claim("bob", at(300)).deadline == at(320)


@pytest.mark.row("O9")
def test_skipping_ends_the_task_and_tells_its_dependents() -> None:
    life = timed_out(3)
    assert reset(life.answer("skip", at(300)))
    assert life.stands() is State.SKIPPED
    assert life.spread is not None
    assert (life.spread.id, life.spread.outcome) == ("t_a", "skipped")


@pytest.mark.row("O9")
def test_splitting_replaces_the_task_by_smaller_ones() -> None:
    life = timed_out(3)
    assert reset(life.answer("split", at(300), subtasks=(new("t_b"), new("t_c"))))
    assert life.stands() is State.SPLIT
    assert life.spread is not None
    assert life.spread.replaced_by == (TaskId("t_b"), TaskId("t_c"))
    assert life.told("task_split")[0].data == {"subtasks": ["t_b", "t_c"]}


@pytest.mark.row("O9")
def test_after_an_answer_it_takes_three_more_timeouts_to_ask_again() -> None:
    life = timed_out(3)
    life.answer("clarify", at(299.5), text="again")
    for number in (4, 5, 6):
        life.claim(f"agent{number}", at(100 * number))
        life.tick_when_due(at(100 * number + 99))
        assert len(life.questions) == (2 if number == 6 else 1)
    assert life.question.id == "q_a.2"


@pytest.mark.parametrize(
    "option, how, code",
    [
        ("split", {}, "no_subtasks"),
        ("split", {"subtasks": tuple(new(f"t_{i}") for i in range(101))}, "no_subtasks"),
        ("clarify", {}, "no_text"),
        ("clarify", {"text": "  "}, "no_text"),
        ("clarify", {"text": "x" * 70_000}, "too_large"),
        ("clarify", {"text": "a\0b"}, "bad_text"),
        ("clarify", {"text": "fine", "by": "a\0b"}, "bad_name"),
        ("increase_timeout", {"timeout": Millis(15 * MINUTE)}, "not_longer"),
        ("give up", {}, "unknown_option"),
    ],
)
def test_an_answer_that_cannot_act_is_refused_and_changes_nothing(option: str, how: dict[str, Any], code: str) -> None:
    life = timed_out(3)
    before = life.case
    with pytest.raises(Refused) as caught:
        life.answer(option, at(300), **how)
    assert caught.value.code == code
    assert life.case is before
    assert life.question.closed_at is None


def test_a_closed_question_takes_the_same_answer_again_and_no_other() -> None:
    life = timed_out(3)
    life.answer("clarify", at(300), text="more", id_="first")
    (closed,) = life.questions.values()
    out, same = answer(life.case, closed, Answer(CommandId("first"), closed.id, "clarify", "more"), at(301))
    assert same is closed
    assert out.case is life.case
    with pytest.raises(Refused, match="is closed: clarify"):
        answer(life.case, closed, Answer(CommandId("second"), closed.id, "skip"), at(301))


def test_nothing_is_left_to_decide_about_a_task_that_has_ended() -> None:
    life = timed_out(3)
    life.cancel(at(300))
    with pytest.raises(Refused, match="A is cancelled; there is nothing left to decide"):
        life.answer("skip", at(301))


@pytest.mark.row("O10")
def test_a_late_completion_after_a_timeout_is_refused_recorded_and_kept() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.complete(at(15), result='{"half": true}')
    assert isinstance(life.error, LeaseLost)
    assert life.stands() is State.READY
    assert life.attempts[1].late == '{"half": true}'
    assert life.told("late_result")[0].data == {"verb": "complete"}
    assert life.record.timeouts == 1, "no sweeper had noticed yet; the holder's word did"


def test_a_lease_capped_by_its_run_ends_with_the_run_s_reason() -> None:
    life = Life(limit_at=at(9))
    life.claim("bob", at(0))
    life.tick_when_due(at(9))
    assert life.stands() is State.FAILED
    assert life.record.reason == "run_timeout"
    assert life.told("agent_timeout") == []


@pytest.mark.row("O4")
def test_a_late_sweeper_does_not_take_a_timeout_for_the_run_s_end() -> None:
    life = Life(limit_at=at(20))
    life.claim("bob", at(0))
    life.tick(at(21))
    assert life.told("agent_timeout")[0].data == {"elapsed_ms": 21 * MINUTE}
    assert (life.stands(), life.record.timeouts) == (State.READY, 1)


@pytest.mark.parametrize(
    "what, count, failures, asked",
    [("timeout", 2, 0, False), ("timeout", 3, 0, True), ("timeout", 1, 1, False), ("timeout", 2, 1, True)],
)
def test_a_task_with_a_figure_of_its_own_is_asked_about_after_as_many_bad_ends_as_it_says(
    what: str, count: int, failures: int, asked: bool
) -> None:
    task = Life(policy=Policy(retry=RetryPolicy(timeouts=2))).case.task
    task = replace(task, record=replace(task.record, failures={"network": failures}))
    assert is_asked_about(task, what, count) is asked
    assert is_asked_about(task, "lapse", count) is (count >= 3), "which counts timeouts and nothing else"


def test_a_task_that_has_ended_has_no_timer() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.complete(at(1))
    life.case = replace(life.case, due=at(2))
    out = life.tick(at(2))
    assert (life.case.due, out.events) == (None, [])
