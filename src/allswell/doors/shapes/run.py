"""A run: tasks with one common deadline and purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.run import went_on_in
from allswell.doors.shapes.moment import Moment, moment
from allswell.doors.shapes.spent import SpentShape

if TYPE_CHECKING:
    from allswell.domain.run import Run


class RunShape(Struct, frozen=True):
    """A run. It went on in `next_run_id`, if in any; `flow_run_id` names the folder of its flow, if it has one."""

    run_id: str
    name: str
    created_at: Moment
    deadline: Moment | None
    stands_since_at: Moment | None
    stood_ms: int
    ended_at: Moment | None
    reason: str | None
    next_run_id: str | None
    flow_run_id: str | None
    spent: SpentShape

    @classmethod
    def of(cls, told: Run, last: Run | None = None, flow: str | None = None, spent: Spent = NOTHING_SPENT) -> RunShape:
        """A run; with the last one in which it went on, how it all stands."""
        last = last or told
        return cls(
            run_id=told.id,
            name=told.name,
            created_at=moment(told.created_at),
            deadline=None if last.deadline is None else moment(last.deadline + last.stood),
            stands_since_at=moment(last.stands_since),
            stood_ms=last.stood,
            ended_at=moment(last.ended_at),
            reason=last.reason or None,
            next_run_id=went_on_in(told),
            flow_run_id=flow,
            spent=SpentShape.of(spent),
        )


class RunsShape(Struct, frozen=True):
    """Runs, the newest first."""

    runs: list[RunShape]
