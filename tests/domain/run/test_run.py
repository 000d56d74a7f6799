"""Runs: opened, ended by a caller or by their deadline; services parked for everybody."""

import pytest

from allswell.domain.ids import CommandId, Millis, RunId
from allswell.domain.lease.expiry import move_limit
from allswell.domain.rules.command import Complete, EndRun, OpenRun
from allswell.domain.rules.decide import decide
from allswell.domain.rules.rule import RowSnapshot
from allswell.domain.run.lifecycle import end_run, open_run, tick_run
from allswell.domain.run.run import Fanout, Run, last_of, start_clock, stop_clock, time_left
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow, park
from allswell.domain.task.aggregate import RunUnread
from allswell.domain.task.model import Policy, State
from allswell.errors import Refused
from tests.domain.life import MINUTE, START, Life, at

RUN = RunId("r_a")


def opened(timeout: int | None = 30 * MINUTE) -> Run:
    limit = None if timeout is None else Millis(timeout)
    return open_run(OpenRun(CommandId("open"), RUN, "build", limit), START)[0]


def test_a_run_s_deadline_counts_from_its_opening() -> None:
    run, events = open_run(OpenRun(CommandId("open"), RUN, "build", Millis(30 * MINUTE)), START)
    assert run.deadline == at(30)
    assert [(event.kind, event.run, dict(event.data)) for event in events] == [
        ("run_opened", RUN, {"name": "build", "deadline": at(30)})
    ]
    assert opened(None).deadline is None


def test_ending_a_run_cancels_what_is_in_it() -> None:
    run, spread, events = end_run(opened(), EndRun(CommandId("end"), RUN, "enough"), at(1))
    assert (run.ended_at, run.reason, run.command) == (at(1), "enough", "end")
    assert spread == Fanout(RUN, "cancelled", "enough")
    assert [(event.kind, dict(event.data)) for event in events] == [("run_ended", {"reason": "enough"})]


def test_a_deadline_fails_what_is_in_it() -> None:
    run = opened()
    assert tick_run(run, Millis(at(30) - 1)) is None
    ended = tick_run(run, at(30))
    assert ended is not None
    assert ended[1] == Fanout(RUN, "failed", "run_timeout")
    assert tick_run(ended[0], at(31)) is None
    assert tick_run(opened(None), at(1_000_000)) is None


def test_a_run_that_has_ended_goes_on_in_one_that_is_opened_after_it() -> None:
    ended, _, _ = end_run(opened(), EndRun(CommandId("end"), RUN, "failed"), at(1))
    after = OpenRun(CommandId("next"), RunId("r_b"), "build", None, RUN)
    made, before = decide(RowSnapshot(at(2), runs={RUN: ended}), after).runs
    assert (made.id, before.continued_in, before.reason) == ("r_b", "r_b", "failed")
    assert before.end_text == "failed, and went on in r_b"
    assert last_of(before, {RUN: before, made.id: made}) == (before, made)
    assert last_of(before, {RUN: before}) == (before,)
    circle = Run(RunId("r_b"), "build", at(2), None, continued_in=RUN)
    assert last_of(before, {RUN: before, circle.id: circle}) == (before, circle)


def test_the_words_of_a_reason_continue_nothing() -> None:
    ended, _, _ = end_run(opened(), EndRun(CommandId("end"), RUN, "went on in r_b"), at(1))
    assert (ended.continued_in, ended.end_text) == (None, "went on in r_b")
    other = Run(RunId("r_b"), "build", at(2), None)
    assert last_of(ended, {RUN: ended, other.id: other}) == (ended,)


def test_a_run_ends_once() -> None:
    run, _, _ = end_run(opened(), EndRun(CommandId("end"), RUN), at(1))
    with pytest.raises(Refused, match="run r_a has already ended: ended"):
        end_run(run, EndRun(CommandId("again"), RUN), at(2))


@pytest.mark.parametrize("reason, code", [("a\0b", "bad_text"), ("x" * 20_000, "too_large")])
def test_a_reason_that_no_store_can_hold_is_refused(reason: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        end_run(opened(), EndRun(CommandId("end"), RUN, reason), at(1))
    assert caught.value.code == code


@pytest.mark.row("F5")
def test_a_parked_service_is_never_released_early() -> None:
    def parked(moment: int) -> ServiceRow:
        return ServiceRow("api", Service(parked_until=at(moment)))

    assert park(ServiceRow("api"), at(5)) == parked(5)
    assert park(parked(9), at(5)) == parked(9)
    assert park(parked(3), at(5)) == parked(5)


@pytest.mark.row("O9")
def test_the_clock_stands_while_a_question_is_open_and_overlaps_count_once() -> None:
    run = stop_clock(opened(), at(10))
    assert (run.limit, run.asked, run.stands_since, time_left(run, at(500))) == (None, 1, at(10), 20 * MINUTE)
    assert tick_run(run, at(500)) is None
    run = start_clock(stop_clock(run, at(15)), at(20))
    assert (run.limit, run.asked, run.moves) == (None, 1, 1), "one of two is still open"
    run = start_clock(run, at(40))
    assert (run.limit, run.asked, run.stands_since, run.stood, run.moves) == (at(60), 0, None, 30 * MINUTE, 2)
    assert time_left(run, at(45)) == 15 * MINUTE
    run = start_clock(stop_clock(run, at(50)), at(55))
    assert (run.limit, run.stood) == (at(65), 35 * MINUTE)
    assert tick_run(run, Millis(at(65) - 1)) is None
    assert tick_run(run, at(65)) is not None


def test_a_question_that_is_asked_too_late_leaves_no_time_and_never_less() -> None:
    run = start_clock(stop_clock(opened(), at(31)), at(90))
    assert (run.limit, time_left(run, at(90))) == (at(90), 0)
    assert start_clock(run, at(99)) is run
    assert time_left(opened(None), at(1)) is None
    free = opened(None)
    assert stop_clock(free, at(1)) is free, "a run without a deadline has no clock"


def test_a_third_timeout_that_ties_with_the_run_s_end_asks() -> None:
    life = Life(limit_at=at(45))
    for number in range(3):
        life.claim("bob", at(15 * number))
        life.tick(at(15 * (number + 1)))
    assert (life.stands(), life.record.timeouts) == (State.WAITING, 3)
    assert life.run is not None
    assert (life.run.stands_since, tick_run(life.run, at(46))) == (at(45), None)
    assert [event.kind for event in life.events[-2:]] == ["question_asked", "run_stands"]


@pytest.mark.parametrize("clock", ["idle", "lapse"])
def test_whatever_ties_with_the_run_s_end_speaks_before_it(clock: str) -> None:
    life = Life(limit_at=at(12), policy=Policy(idle=4 * MINUTE if clock == "idle" else None))
    length = 4 * MINUTE if clock == "lapse" else None
    for number in range(3):
        life.claim("bob", at(4 * number), length=length)
        life.tick(at(4 * (number + 1)))
    assert life.stands() is State.WAITING
    assert life.run is not None
    assert life.run.limit is None


def test_a_lease_that_reaches_its_run_s_limit_looks_at_the_run_first() -> None:
    life = Life(limit_at=at(9))
    lease = life.claim("bob", at(0))
    assert (lease.deadline, lease.own) == (at(9), at(15))
    assert life.run is not None
    life.run = stop_clock(life.run, at(5))
    life.tick(at(9))
    assert (life.lease.deadline, life.lease.own, life.case.due) == (at(15), None, at(10.5))
    assert life.told("limit_moved")[0].data == {"deadline": at(15)}
    life.run = start_clock(life.run, at(11))
    moved = move_limit(life.case, life.run).case.lease
    assert moved is not None
    assert (moved.deadline, moved.own) == (at(15), None), "15 minutes of its own: the run's limit of now is no nearer"
    life.run = Run(life.run.id, "run", START, at(9), stood=4 * MINUTE)
    moved = move_limit(life.case, life.run).case.lease
    assert moved is not None
    assert (moved.deadline, moved.own) == (at(13), at(15))
    life.tick_when_due(at(30))
    assert life.record.timeouts == 1, "its own limit"


def test_a_word_that_turns_out_to_need_the_run_says_so() -> None:
    life = Life(limit_at=at(9))
    life.claim("bob", at(0))
    done = Complete(CommandId("c"), life.lease.task, life.lease.token, life.lease.agent)
    cases = {life.lease.task: life.case}
    assert decide(RowSnapshot(at(8), cases), done).error is None
    with pytest.raises(RunUnread):
        decide(RowSnapshot(at(9), cases), done)
