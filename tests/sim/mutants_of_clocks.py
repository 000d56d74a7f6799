"""Planted bugs about the clocks of runs, and about what comes late."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from allswell.domain.lease import claim, expiry, holder, late, model
from allswell.domain.run import lifecycle, run
from allswell.domain.run.run import Run
from allswell.domain.task import aggregate, fanout
from allswell.engine import engine
from allswell.engine.unit_of_work import BatchPlan, UnitOfWork
from tests.sim.planting import everywhere, mutant


@mutant
def question_does_not_stop_the_clock() -> Iterator[None]:
    with everywhere("stop_clock", lambda row, _: row, aggregate):
        yield


@mutant
def clock_goes_on_with_the_first_answer() -> Iterator[None]:
    right = run.start_clock

    def start_clock(row: Run, now: Any) -> Run:
        return right(replace(row, asked=min(row.asked, 1)), now)

    with everywhere("start_clock", start_clock, aggregate):
        yield


@mutant
def what_is_asked_in_passing_stops_the_clock() -> Iterator[None]:
    right = aggregate.ask

    def ask(out: Any, asked: Any, now: Any, *, wait: bool = True) -> Any:
        question = right(out, asked, now, wait=wait)
        if not wait and out.run is not None:
            out.run = run.stop_clock(out.run, now)
        return question

    async def look(self: BatchPlan, tx: Any, *, careful: bool) -> BatchPlan:
        del careful
        return await right_look(self, tx, careful=True)

    right_look = BatchPlan.look
    with everywhere("ask", ask, *_askers()), patch.object(BatchPlan, "look", look):
        yield


def _askers() -> list[object]:
    from allswell.domain.lease import holder
    from allswell.domain.task import aggregate

    return [aggregate, holder, expiry]


@mutant
def clock_of_a_withdrawn_question_stands_for_ever() -> Iterator[None]:
    with everywhere("resume_clock", lambda row, *_: (row, []), fanout):
        yield


@mutant
def lease_believes_the_limit_that_it_carries() -> Iterator[None]:
    """The run's limit, as the lease has it, never comes later."""
    right = model.bounded

    def bounded(held: Any, limit: Any) -> Any:
        return right(held, limit if held.own is None else min(limit or held.deadline, held.deadline))

    with everywhere("bounded", bounded, expiry):
        yield


@mutant
def lease_is_not_cut_short_again() -> Iterator[None]:
    """What was claimed while the clock stood keeps its own limit, and the run's end is forgotten."""
    right = lifecycle.tick_run
    with (
        everywhere("move_limit", lambda case_, row: aggregate.TaskChange(case_, run=row), fanout),
        everywhere("tick_run", lambda row, now: None if row.stood else right(row, now), lifecycle),
    ):
        yield


@mutant
def timer_of_a_run_is_not_set_again() -> Iterator[None]:
    right = UnitOfWork._flush_runs

    def flush(self: UnitOfWork) -> None:
        known = dict(self._runs)
        right(self)
        moved = {id_ for id_, before in known.items() if before is not None}
        self.changes.timers[:] = [timer for timer in self.changes.timers if timer[0] not in moved]

    with patch.object(UnitOfWork, "_flush_runs", flush):
        yield


@mutant
def claim_reads_the_deadline_as_it_was_set() -> Iterator[None]:
    right = claim.grant

    def grant(case_: Any, claim_: Any, now: Any, row: Run | None) -> Any:
        return right(case_, claim_, now, None if row is None else replace(row, stood=0, stands_since=None))

    with everywhere("grant", grant, claim):
        yield


@mutant
def late_check_in_is_dropped() -> Iterator[None]:
    with everywhere("said_again", lambda *_: None, engine):
        yield


@mutant
def only_the_first_late_word_is_kept() -> Iterator[None]:
    right = late.kept

    def kept(past: Any, command: Any, now: Any) -> Any:
        return None if past.afterwards is not None else right(past, command, now)

    with patch.object(holder, "kept", kept):
        yield
