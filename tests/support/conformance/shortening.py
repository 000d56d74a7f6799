"""The short way to record a step, where a store has one: it writes under the lease that is held, or not at all."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from allswell.domain.ids import Millis, RunId, TaskId, Token
from allswell.domain.lease.model import LeaseRow
from allswell.domain.rules.event import Event, Position
from allswell.domain.task.model import FinishedTask
from allswell.errors import AllswellError
from allswell.store.port import Decide, FastStepWriter, LockKind, Recorded, RowChanges, Store
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place, Skip, write


def _short(store: Store) -> FastStepWriter:
    if not isinstance(store, FastStepWriter):
        raise Skip("this store has no short way")
    return store


def recorded_step(id_: str, token: int = 1) -> Decide:
    """A decision as the core makes it: under this token and within its time, or not at all."""

    def decide(lease: LeaseRow, now: Millis) -> Recorded | None:
        if lease.token != token or lease.stalled_at is not None or lease.deadline < rows.lease("t_flow").deadline:
            return None
        task = replace(rows.task(id_, run="r_1", state="done"), role="step", created_at=now, ended_at=now)
        ended = replace(rows.attempt(id_, 1), late=None)
        told = Event("step_recorded", TaskId(id_), RunId("r_1"), None, None, {"name": rows.TEXT, "elapsed_ms": 1})
        return Recorded(FinishedTask(task, rows.TEXT, rows.TEXT, ended), told, now)

    return decide


def _declines(_lease: LeaseRow, _now: Millis) -> None:
    """A decision that needs more than the lease."""


async def held_flow(store: Store) -> LeaseRow:
    """A flow that is held, for steps to be recorded under."""
    held = rows.lease("t_flow")
    changes = rows.new_tasks(rows.task("t_flow", run="r_1"))
    changes.new_leases, changes.timers = [held], [("t_flow", held.deadline)]
    await write(store, changes)
    return held


async def a_step_takes_the_short_way_under_its_lease(place: Place) -> None:
    """What is there afterwards is what the long way would have left."""
    async with place.store() as store:
        short, held = _short(store), await held_flow(store)
        assert short.record_here(held, recorded_step("t_1"), 10.0)
        assert short.record_here(held, recorded_step("t_2"), 10.0)
        assert await store.view_results(RunId("r_1"), "step", "", 10) == [
            (TaskId("t_1"), rows.TEXT),
            (TaskId("t_2"), rows.TEXT),
        ]
        assert await store.view_payload(TaskId("t_1")) == (rows.TEXT, rows.TEXT)
        assert [attempt.token for attempt in await store.view_attempts(TaskId("t_2"))] == [1]
        told = await store.journal(Position(), 10)
        assert [(entry.event.kind, entry.event.task) for entry in told] == [
            ("step_recorded", "t_1"),
            ("step_recorded", "t_2"),
        ]
        row = await store.view_task(TaskId("t_1"))
        assert row is not None
        assert row.task.ended_at is not None
        assert told[0].at == row.task.ended_at


async def the_short_way_declines_what_is_not_plain(place: Place) -> None:
    """Another holder, none, a stalled one, a step that is there already: neither row nor event is written."""
    async with place.store() as store:
        short, held = _short(store), await held_flow(store)
        assert short.record_here(held, recorded_step("t_1"), 10.0)
        before = await store.journal(Position(), 100)
        stale = replace(held, token=Token(9))
        assert not short.record_here(stale, recorded_step("t_2", token=9), 10.0)
        assert not short.record_here(replace(held, task=TaskId("t_nobody")), recorded_step("t_3"), 10.0)
        assert not short.record_here(held, _declines, 10.0)
        assert not _tried(short, held, recorded_step("t_1"))
        assert await store.journal(Position(), 100) == before
        assert await store.view_results(RunId("r_1"), "step", "", 10) == [(TaskId("t_1"), rows.TEXT)]
        assert short.record_here(held, recorded_step("t_4"), 10.0)  # and it is none the worse for it
        stalled = RowChanges(leases=[replace(held, stalled_at=Millis(AT + 1))])
        await write(store, stalled, {LockKind.TASK: ["t_flow"], LockKind.LEASE: ["t_flow"]})
        assert not short.record_here(held, recorded_step("t_5"), 10.0), (
            "its holder does not know that its time is shorter now"
        )
        assert not short.record_here(held, recorded_step("t_5"), 10.0)
        shorter = RowChanges(leases=[replace(held, deadline=Millis(held.deadline - 1))])
        await write(store, shorter, {LockKind.TASK: ["t_flow"], LockKind.LEASE: ["t_flow"]})
        assert not short.record_here(held, recorded_step("t_6"), 10.0), "its run's limit has moved"


def _tried(short: FastStepWriter, held: LeaseRow, decide: Decide) -> bool:
    try:
        return short.record_here(held, decide, 10.0)
    except AllswellError:
        return False


async def threads_take_the_short_way_too(place: Place) -> None:
    """Whichever they are: the connection is used by one at a time, not by one alone."""
    async with place.store() as store:
        short, held = _short(store), await held_flow(store)
        tried = asyncio.to_thread
        assert await tried(short.record_here, held, recorded_step("t_1"), 10.0)
        assert not await tried(short.record_here, replace(held, token=Token(9)), recorded_step("t_2", token=9), 10.0)
        assert not await tried(short.record_here, held, _declines, 10.0)
        assert await store.view_results(RunId("r_1"), "step", "", 10) == [(TaskId("t_1"), rows.TEXT)]


async def an_event_loop_takes_the_short_way_too(place: Place) -> None:
    """In a thread of the store's, and under the same lease."""
    async with place.store() as store:
        short, held = _short(store), await held_flow(store)
        assert await short.record(held, recorded_step("t_1"))
        assert not await short.record(replace(held, token=Token(9)), recorded_step("t_2", token=9))
        assert not await short.record(held, _declines)
        assert await short.record(held, recorded_step("t_3"))
        assert [id_ for id_, _ in await store.view_results(RunId("r_1"), "step", "", 10)] == ["t_1", "t_3"]


CASES: tuple[Case, ...] = (
    a_step_takes_the_short_way_under_its_lease,
    the_short_way_declines_what_is_not_plain,
    threads_take_the_short_way_too,
    an_event_loop_takes_the_short_way_too,
)
