"""What moves with a clock that was set: every moment of what runs, so that none is forgotten when one is added."""

import msgspec
import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, RunId, TaskId, Token
from allswell.domain.lease.clock_change import TOLERATED, moved_lease, moved_run, moved_service, off_by
from allswell.domain.lease.model import LeaseRow, due_at
from allswell.domain.run.run import Run
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow

AT = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
NO_MOMENTS = {"length", "idle", "ask_every", "ask_wait", "grace", "token", "judged", "progress"}


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_all_moments_of_a_lease_move(by: int) -> None:
    moment = Millis(AT)
    lease = LeaseRow(TaskId("t"), Token(1), AgentId("a"), moment, Millis(AT + HOUR), 1, 2, 3, 4, 5, CommandId("c"))
    lease = msgspec.structs.replace(lease, stalled_at=moment, renewed_at=moment, checkin_at=moment, own=moment)
    moved = moved_lease(lease, by)
    for name, value in msgspec.structs.asdict(lease).items():
        shift = by if isinstance(value, int) and name not in NO_MOMENTS else 0
        assert getattr(moved, name) == (value + shift if shift else value), name
    assert due_at(moved) == due_at(lease) + by


def test_a_run_and_a_breaker_move_and_a_reset_stays_if_it_can_be_one() -> None:
    run = moved_run(Run(RunId("r"), "", Millis(AT), Millis(AT + HOUR), stood=5), -HOUR)
    assert (run.created_at, run.limit) == (AT - HOUR, AT + 5)
    row = ServiceRow("s", Service(open_until=Millis(AT + 9), parked_until=Millis(AT + 2 * HOUR)), since=Millis(AT))
    state = moved_service(row, -HOUR, AT - HOUR).state
    assert (state.open_until, state.parked_until) == (AT + 9 - HOUR, AT + 2 * HOUR)
    assert moved_service(row, -365 * DAY, AT - 365 * DAY).state.parked_until == AT + 2 * HOUR - 365 * DAY


def test_what_to_settle_by() -> None:
    assert off_by(AT, AT - TOLERATED, None, 0) is None, "it stands still and catches up"
    assert off_by(AT, AT - HOUR, None, 0) == -HOUR
    assert off_by(AT, AT + HOUR, None, 0) is None, "time has passed"
    assert off_by(AT, AT + HOUR, 0, -HOUR) == -HOUR, "the clocks of one machine tell, however long nobody looked"
    assert off_by(AT, AT + HOUR, 0, HOUR) == HOUR
    assert off_by(AT, AT - HOUR, 0, 1) == -HOUR, "written ahead by somebody else"
