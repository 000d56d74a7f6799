"""What a human's answer makes of a task, to its edges; and what open questions hold back."""

from __future__ import annotations

from zlib import crc32

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, service_question_id
from allswell.domain.question import (
    BY_AGENT,
    MORE_MONEY,
    MORE_OF_BOTH,
    MORE_TOKENS,
    NOTHING_HELD_BACK,
    AnswerAction,
    Option,
    PausedWork,
    Question,
    held_back,
    note_of,
    options_about_time,
    repeated_idle,
)
from allswell.domain.rules.command import Answer, Cancel
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import REOPENING, ServiceRow, lets_in, open_question
from allswell.domain.task.answer import SUBTASKS_MAX, TEXT_MAX, answer
from allswell.domain.task.model import Policy, State, TaskHistory
from allswell.errors import Refused
from tests.domain.life import MINUTE, Life, at, new, opened


def asked_about(limit_at: Millis | None = None) -> Life:
    """A task that has timed out until a human is asked."""
    life = Life(limit_at=limit_at)
    for number in range(3):
        life.claim(f"agent{number}", at(100 * number))
        life.tick_when_due(at(100 * number + 99))
    assert life.question.waited
    return life


@pytest.mark.parametrize("text, reason", [("", "skipped by a human"), ("not worth it", "not worth it")])
def test_a_skip_says_why(text: str, reason: str) -> None:
    life = asked_about()
    life.answer("skip", at(400), text=text)
    assert life.stands() is State.SKIPPED
    assert [event.data["reason"] for event in life.told("task_skipped")] == [reason]


@pytest.mark.parametrize("count", [1, SUBTASKS_MAX])
def test_a_task_is_split_into_as_few_and_as_many_as_are_allowed(count: int) -> None:
    life = asked_about()
    life.answer("split", at(400), subtasks=tuple(new(f"t_{number:03}") for number in range(count)))
    assert life.stands() is State.SPLIT
    assert len(life.record.replaced_by) == count


@pytest.mark.parametrize("count", [0, SUBTASKS_MAX + 1])
def test_and_into_no_fewer_and_no_more(count: int) -> None:
    life = asked_about()
    with pytest.raises(Refused) as refused:
        life.answer("split", at(400), subtasks=tuple(new(f"t_{number:03}") for number in range(count)))
    assert refused.value.code == "no_subtasks"


def test_with_the_answer_the_clock_of_the_run_goes_on_and_that_is_told() -> None:
    life = asked_about(limit_at=at(1_000))
    assert life.limit is None
    stood = life.run
    assert stood is not None
    assert stood.stands_since is not None
    life.answer("clarify", at(500), text="so and so")
    (told,) = life.told("run_goes_on")
    assert told.data == {"stood_ms": at(500) - stood.stands_since, "deadline": life.limit}


def test_a_cancel_says_no_more_than_a_text_may_hold() -> None:
    life = Life()
    with pytest.raises(Refused) as refused:
        life.do(Cancel(CommandId("c"), TaskId("t_a"), "x" * (TEXT_MAX + 1)), at(1))
    assert refused.value.where == "reason"
    life.do(Cancel(CommandId("c"), TaskId("t_a"), "x" * TEXT_MAX), at(1))
    assert life.stands() is State.CANCELLED


# --- more of something ------------------------------------------------------------------------------------------------


MORE_IDLE = options_about_time(1, 1)[2]


def given(policy: Policy, option: Option, **how: object) -> TaskHistory:
    """The record of a task after an answer to what was asked in passing."""
    asked = Question(QuestionId("q_a.1"), TaskId("t_a"), None, "any", "More?", (option,), at(0), "")
    command = Answer(CommandId("c"), asked.id, option.key, **how)  # type: ignore[arg-type]
    return answer(opened(policy=policy), asked, command, at(1))[0].case.task.record


def refusal(policy: Policy, option: Option, **how: object) -> str:
    with pytest.raises(Refused) as refused:
        given(policy, option, **how)
    return refused.value.code


def test_more_money_is_twice_as_much_or_as_much_as_is_said() -> None:
    some, none = Policy(max_cost=3_000_000), Policy()
    assert given(some, MORE_MONEY).cost_override == 6_000_000
    assert given(some, MORE_MONEY, max_cost=3_000_001).cost_override == 3_000_001
    assert given(none, MORE_MONEY, max_cost=1).cost_override == 1
    assert refusal(some, MORE_MONEY, max_cost=3_000_000) == "not_more"
    assert refusal(none, MORE_MONEY) == "no_cost"


def test_more_tokens_are_twice_as_many_or_as_many_as_are_said_and_both_limits_are_raised_at_once() -> None:
    some, none, both = Policy(max_tokens=3_000), Policy(), Policy(max_cost=3_000_000, max_tokens=3_000)
    assert given(some, MORE_TOKENS).tokens_override == 6_000
    assert given(some, MORE_TOKENS, max_tokens=3_001).tokens_override == 3_001
    assert given(none, MORE_TOKENS, max_tokens=1).tokens_override == 1
    assert refusal(some, MORE_TOKENS, max_tokens=3_000) == "not_more"
    assert refusal(none, MORE_TOKENS) == "no_tokens"
    raised = given(both, MORE_OF_BOTH, max_tokens=4_000)
    assert (raised.cost_override, raised.tokens_override) == (6_000_000, 4_000)


def test_more_idle_is_twice_as_long_or_as_long_as_is_said() -> None:
    some, none = Policy(idle=5 * MINUTE), Policy()
    assert given(some, MORE_IDLE).idle_override == 10 * MINUTE
    assert given(some, MORE_IDLE, timeout=5 * MINUTE + 1).idle_override == 5 * MINUTE + 1
    assert given(none, MORE_IDLE, timeout=1).idle_override == 1
    assert refusal(some, MORE_IDLE, timeout=5 * MINUTE) == "not_longer"
    assert refusal(none, MORE_IDLE) == "no_timeout"


# --- what questions say, and hold back --------------------------------------------------------------------------------


def test_a_question_about_idleness_names_the_task_once_and_counts_in_words() -> None:
    named = repeated_idle(TaskId("t_1"), "build", 1, 1, None, "")
    assert named.startswith("Task t_1 (build) has shown no progress once. ")
    nameless = repeated_idle(TaskId("t_1"), "t_1", 2, 1, 60_000, "")
    assert nameless.startswith("Task t_1 has timed out or shown no progress 2 times, the last time for 1m. ")


def test_more_is_offered_of_what_ran_out() -> None:
    def more(timeouts: int, idles: int) -> list[str]:
        return [option.key for option in options_about_time(timeouts, idles) if option.key.startswith("increase")]

    assert more(1, 0) == ["increase_timeout"]
    assert more(1, 1) == ["increase_idle"]
    assert more(2, 1) == ["increase_timeout", "increase_idle"]


def question(number: int, *, task: str | None = "t_1", run: str | None = None, closed: bool = False) -> Question:
    return Question(
        QuestionId(f"q_{number}.1"),
        None if task is None else TaskId(task),
        None if run is None else RunId(run),
        "repeated_timeout",
        "What now?",
        (),
        at(0),
        "",
        closed_at=at(1) if closed else None,
    )


def test_what_open_questions_hold_back() -> None:
    of_runs = [question(1, run="r_b"), question(2, run="r_a"), question(3, run="r_b"), question(4)]
    assert held_back("task", of_runs) == NOTHING_HELD_BACK
    assert held_back("run", of_runs) == PausedWork(runs=(RunId("r_a"), RunId("r_b")))
    assert held_back("all", of_runs) == PausedWork(everything=True)


@pytest.mark.parametrize("pause", ["run", "all"])
def test_what_is_closed_or_about_a_service_holds_back_nothing(pause: str) -> None:
    over = [question(1, run="r_a", closed=True), question(2, task=None, run="r_a")]
    assert held_back(pause, over) == NOTHING_HELD_BACK  # type: ignore[arg-type]
    assert held_back(pause, []) == NOTHING_HELD_BACK  # type: ignore[arg-type]


@pytest.mark.parametrize("length, recalled", [(200, "x" * 200), (201, "x" * 200 + "…")])
def test_as_much_of_a_question_is_recalled_as_tells_which_it_was(length: int, recalled: str) -> None:
    by_agent = Question(QuestionId("q_1.1"), TaskId("t_1"), None, BY_AGENT, "x" * length, (), at(0), "ann")
    chosen = Option("left", "Turn left", AnswerAction.RETRY)
    assert note_of(by_agent, chosen, "") == (
        f"A human chose this option:\n> left (Turn left)\nThe agent had asked:\n> {recalled}"
    )


# --- services ---------------------------------------------------------------------------------------------------------


def test_the_question_about_failures_is_the_one_that_was_asked_about_them() -> None:
    """Others may have been asked since, about what only a human can mend."""
    asked = Service(asked=True)
    assert open_question(ServiceRow("api", asked, questions=3, failing=2)) == service_question_id("api", 2)
    assert open_question(ServiceRow("api", asked, questions=3)) == service_question_id("api", 3)
    assert open_question(ServiceRow("api", questions=3, failing=2)) is None


def test_agents_come_back_one_by_one_each_at_its_own_moment() -> None:
    row = ServiceRow("api", Service(parked_until=at(0)))
    moment = at(0) + crc32(b"api ann") % REOPENING
    assert not lets_in(row, AgentId("ann"), Millis(moment - 1))
    assert lets_in(row, AgentId("ann"), Millis(moment))
    assert lets_in(ServiceRow("api"), AgentId("ann"), Millis(0)), "what was never shut does not reopen"
