"""Dismissing what was seen: it decides nothing, and is only left out of what needs somebody."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.question import Question
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.answer import NONE_HELD, DismissedHolds, holding, is_dismissed
from allswell.domain.task.model import OPEN, Spec, Task, TaskFilter, TaskHistory, WaitState
from allswell.engine.status.verdict import look
from allswell.errors import Refused
from tests.engine.stage import Stage, play
from tests.properties.budget import DETERMINISTIC


def test_a_dismissed_question_stays_open_and_what_waits_for_it_is_counted() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint")
        await watch.submit("dry", needs=[task])
        lease = await watch.claim(agent="ada")
        assert lease is not None
        asked = await lease.ask("Red or blue?")
        assert [need.kind for need in (await look(watch.views)).needs] == ["question"]
        await watch.dismiss(asked, "grace")
        await watch.dismiss(asked, "ada")  # it is dismissed already
        seen = await look(watch.views)
        assert (seen.well, seen.needs, seen.dismissed) == (True, (), DismissedHolds(1, 2))
        question = await watch.question(asked)
        assert question is not None
        assert (question.closed_at, question.dismissed_by) == (None, "grace")
        assert [(one.task, one.data["by"]) for one in await stage.told("question_dismissed")] == [(task, "grace")]
        await watch.answer(asked, "reply", "Red")
        assert (await look(watch.views)).dismissed == NONE_HELD
        with pytest.raises(Refused, match="is closed"):
            await watch.dismiss(asked, "grace")
        with pytest.raises(Refused, match="there is no question"):
            await watch.dismiss("q_nothing.1", "grace")

    play(scene)


def test_a_failed_task_that_was_seen_needs_nobody_and_what_goes_on_cannot_be_dismissed() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("paint", role="run")
        with pytest.raises(Refused, match="paint is ready: there is nothing to dismiss"):
            await watch.dismiss(task, "grace")
        lease = await watch.claim(agent="ada", task=task)
        assert lease is not None
        with pytest.raises(Refused, match="paint is held"):
            await watch.dismiss(task, "grace")
        await lease.release("not now")
        assert [need.kind for need in (await look(watch.views)).needs] == ["stopped"]
        await watch.dismiss(task, "grace")
        assert (await look(watch.views)).well
        lease = await watch.claim(agent="ada", task=task)
        assert lease is not None
        await lease.fail(Failure(ErrorClass.VALIDATION, "no"))
        (row,) = await watch.tasks(TaskFilter())
        assert not is_dismissed(row.task)  # what happened since is news
        assert [need.kind for need in (await look(watch.views)).needs] == ["failed"]
        await watch.dismiss(task, "grace")
        assert (await look(watch.views)).well
        assert [one.data for one in await stage.told("task_dismissed")] == [{"by": "grace"}] * 2

    play(scene)


def asked(number: int, *, dismissed: bool) -> Question:
    at = Millis(1) if dismissed else None
    return Question(QuestionId(f"q_{number}.1"), None, None, "agent", "?", (), Millis(0), "ada", dismissed_at=at)


def waits(number: int, targets: list[str]) -> tuple[Task, tuple[WaitState, ...]]:
    id_ = TaskId(f"t_{number}")
    task = Task(id_, "x", None, "", 1, 0, OPEN, Millis(0), None, Spec(), TaskHistory(), 0)
    return task, tuple(WaitState(id_, "question" if one[0] == "q" else "need", TaskId(one)) for one in targets)


GRAPHS = st.lists(
    st.lists(st.sampled_from(["q_0.1", "q_1.1", "t_0", "t_1", "t_2", "t_3"]), max_size=2), min_size=1, max_size=5
)


@settings(DETERMINISTIC, max_examples=200)
@given(GRAPHS, st.booleans(), st.booleans())
def test_what_dismissed_questions_hold_is_what_can_be_reached_from_them(
    graph: list[list[str]], first: bool, second: bool
) -> None:
    questions = [asked(0, dismissed=first), asked(1, dismissed=second)]
    rows = [waits(number, targets) for number, targets in enumerate(graph)]
    reached = {str(one.id) for one in questions if one.dismissed_at is not None}
    while more := {task.id for task, named in rows if {one.target for one in named} & reached} - reached:
        reached |= more
    held = holding(questions, rows)
    assert held.tasks == len([one for one in reached if one.startswith("t_")])
    assert held.questions <= len([one for one in reached if one.startswith("q_")])
    assert (held.questions == 0) == (held.tasks == 0)
