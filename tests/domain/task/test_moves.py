"""The table of moves is the specification, and every decision is held to it."""

import pytest
from msgspec.structs import replace

from allswell.domain.ids import QuestionId, TaskId, question_id, task_of_question
from allswell.domain.lease.expiry import Tick
from allswell.domain.rules.decide import decide, held_to_table
from allswell.domain.rules.rule import RowSnapshot
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, end_attempt, state
from allswell.domain.task.model import BEGINNINGS, ENDS, MOVES, State, WaitState, rank
from allswell.errors import Bug
from tests.domain.life import Life, at, opened


def case_in(wanted: State) -> TaskAggregate:
    """A case that stands there."""
    if wanted in ENDS:
        ended = opened()
        return replace(ended, task=replace(ended.task, state=wanted.value, ended_at=at(1)), ready=None)
    if wanted is State.HELD:
        life = Life()
        life.claim("bob", at(0))
        return life.case
    if wanted is State.DELAYED:
        return opened(not_before=at(9))
    if wanted is State.WAITING:
        waiting = opened()
        return replace(waiting, ready=None, waits=(WaitState(waiting.task.id, "need", TaskId("t_x")),))
    return opened()


def test_the_table_names_every_state_and_ends_stay_ended() -> None:
    assert set(MOVES) == set(State)
    assert {one for one, moves in MOVES.items() if not moves} == set(ENDS)


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_a_decision_is_held_to_the_table(old: State, new: State) -> None:
    before, after = case_in(old), case_in(new)
    assert (state(before), state(after)) == (old, new)
    if new is old or new in MOVES[old]:
        assert held_to_table(before, TaskChange(after)).case is after
    else:
        with pytest.raises(Bug, match=f"from {old} to {new}, which no rule allows"):
            held_to_table(before, TaskChange(after))


@pytest.mark.parametrize("new", State)
def test_a_new_task_begins_where_the_table_says(new: State) -> None:
    begun = TaskChange(case_in(new))
    if new in BEGINNINGS:
        assert held_to_table(None, begun) is begun
    else:
        with pytest.raises(Bug, match=f"would begin as {new}, which no rule allows"):
            held_to_table(None, begun)


@pytest.mark.parametrize("end", ENDS)
def test_time_changes_nothing_about_what_has_ended(end: State) -> None:
    case = case_in(end)
    (out,) = decide(RowSnapshot(at(1_000), {case.task.id: case}), Tick(case.task.id)).outcomes
    assert (state(out.case), out.events) == (end, [])


def test_an_open_task_that_stands_nowhere_is_a_bug() -> None:
    with pytest.raises(Bug, match="has no state"):
        state(replace(opened(), ready=None))


def test_an_attempt_that_is_not_there_cannot_end() -> None:
    with pytest.raises(Bug, match="has no attempt to end"):
        end_attempt(TaskChange(opened()), "done", at(1))


def test_higher_priority_goes_first_then_the_older() -> None:
    assert rank(5, at(9)) < rank(4, at(0)) < rank(4, at(1))


def test_a_question_s_id_tells_its_task() -> None:
    assert question_id(TaskId("t_a.b"), 12) == "q_a.b.12"
    assert task_of_question(QuestionId("q_a.b.12")) == "t_a.b"
