"""Runs: opened, ended by a caller or by their deadline; services parked for everybody."""

import pytest

from allswell.domain.breaker import Service
from allswell.domain.command import EndRun, OpenRun
from allswell.domain.ending import end_run, open_run, tick_run
from allswell.domain.names import CommandId, Millis, RunId
from allswell.domain.run import Run, Spread
from allswell.domain.service import ServiceRow, park
from allswell.errors import Refused
from tests.domain.life import MINUTE, START, at

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
    assert spread == Spread(RUN, "cancelled", "enough")
    assert [(event.kind, dict(event.data)) for event in events] == [("run_ended", {"reason": "enough"})]


def test_a_deadline_fails_what_is_in_it() -> None:
    run = opened()
    assert tick_run(run, Millis(at(30) - 1)) is None
    ended = tick_run(run, at(30))
    assert ended is not None
    assert ended[1] == Spread(RUN, "failed", "run_timeout")
    assert tick_run(ended[0], at(31)) is None
    assert tick_run(opened(None), at(1_000_000)) is None


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
