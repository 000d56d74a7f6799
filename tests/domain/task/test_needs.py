"""News for dependents: what they needed has ended, well, badly, or by being split."""

import pytest
from msgspec.structs import replace

from allswell.domain.ids import RunId, TaskId
from allswell.domain.rules.decide import held_to_table
from allswell.domain.run.run import Fanout
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, state
from allswell.domain.task.fanout import end_with_run, need_ended
from allswell.domain.task.model import OPEN, State
from allswell.domain.task.submit import accept
from tests.domain.life import START, Life, at, new, opened

X, Y, S1, S2 = (TaskId(f"t_{name}") for name in ("x", "y", "s1", "s2"))


def waiting(*needs: TaskId, **fields: object) -> TaskAggregate:
    needed = {need: opened(id_=need).task for need in needs}
    return accept(new(needs=needs, **fields), 1, None, needed, {TaskId("t_a"): False}, START).case  # type: ignore[arg-type]


def news(case: TaskAggregate, ended: TaskId, outcome: str, stand: dict[TaskId, str] | None = None) -> TaskChange:
    stand = stand or {}
    return held_to_table(case, need_ended(case, Fanout(ended, outcome, "why", tuple(stand)), stand, at(1)))


def test_the_last_need_makes_it_ready() -> None:
    one = news(waiting(X, Y), X, "done")
    assert (state(one.case), one.events) == (State.WAITING, [])
    both = news(one.case, Y, "done")
    assert state(both.case) is State.READY
    assert [(event.kind, dict(event.data)) for event in both.events] == [
        ("task_ready", {"reason": "what it needed is there"})
    ]


@pytest.mark.row("O9")
@pytest.mark.parametrize("outcome", ["failed", "cancelled", "skipped"])
def test_a_need_that_ended_badly_skips_it_or_lets_it_run_as_it_is_marked(outcome: str) -> None:
    skipped = news(waiting(X, Y), X, outcome)
    assert state(skipped.case) is State.SKIPPED
    assert skipped.case.task.record.reason == f"t_x was {outcome}: why"
    assert [event.kind for event in skipped.events] == ["task_skipped"]
    assert state(news(waiting(X), X, outcome).case) is State.SKIPPED
    assert state(news(waiting(X, if_need_fails="run"), X, outcome).case) is State.READY
    assert state(news(waiting(X, Y, if_need_fails="run"), X, outcome).case) is State.WAITING


def test_news_that_does_not_concern_it_changes_nothing() -> None:
    case = waiting(X)
    assert news(case, Y, "failed").case is case


@pytest.mark.row("O9")
def test_after_a_split_it_waits_for_all_the_subtasks() -> None:
    out = news(waiting(X, Y), X, "split", {S1: OPEN, S2: OPEN})
    assert sorted(wait.target for wait in out.case.waits) == [S1, S2, Y]
    out = news(news(out.case, S1, "done").case, Y, "done")
    assert state(out.case) is State.WAITING
    assert state(news(out.case, S2, "done").case) is State.READY


@pytest.mark.row("O9")
def test_subtasks_that_ended_meanwhile_count_as_they_ended() -> None:
    assert state(news(waiting(X), X, "split", {S1: "done", S2: "done"}).case) is State.READY
    assert state(news(waiting(X), X, "split", {S1: "done", S2: OPEN}).case) is State.WAITING
    broken = news(waiting(X), X, "split", {S1: "failed", S2: OPEN})
    assert (state(broken.case), broken.case.task.record.reason) == (State.SKIPPED, "t_s1 was failed")


def test_a_skipped_dependent_tells_its_own_dependents() -> None:
    out = news(replace(waiting(X), awaited=True), X, "failed")
    assert out.spread == Fanout(TaskId("t_a"), "skipped", "t_x was failed: why")


def test_a_task_that_nobody_waits_for_spreads_nothing() -> None:
    assert news(waiting(X), X, "failed").spread is None


@pytest.mark.parametrize("outcome, end", [("failed", State.FAILED), ("cancelled", State.CANCELLED)])
def test_a_task_ends_with_its_run_whoever_holds_it(outcome: str, end: State) -> None:
    life = Life()
    life.claim("bob", at(0))
    for case in (life.case, opened(), waiting(X), opened(not_before=at(9))):
        out = held_to_table(case, end_with_run(case, Fanout(RunId("r_a"), outcome, "why"), at(1)))
        assert state(out.case) is end
        assert out.case.task.record.reason == "why"
        assert [event.kind for event in out.events] == [f"task_{end}"]
        assert len(out.attempts) == (case.lease is not None)
