"""The state of the whole watch at one look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.build import BuildGlanceShape
from allswell.doors.shapes.moment import Moment, moment
from allswell.doors.shapes.named import named
from allswell.doors.shapes.worker import QueueShape
from allswell.engine.explaining.overview import Concern

if TYPE_CHECKING:
    from allswell.domain.build.glance import BuildGlance
    from allswell.engine.explaining.overview import Need, Overview
    from allswell.worker.presence import QueueSeen


class NeedShape(Struct, frozen=True):
    """One thing that needs somebody, and what to type."""

    kind: Concern
    task_id: str | None
    run_id: str | None
    question_id: str | None
    agent_id: str | None
    what: str
    command: str
    since_at: Moment | None

    @classmethod
    def of(cls, need: Need) -> NeedShape:
        """One need; only that of a stalled agent is an agent's."""
        stalled = need.kind == "stalled"
        return cls(
            kind=need.kind,
            agent_id=need.id if stalled else None,
            what=need.what,
            command=need.command,
            since_at=moment(need.since),
            **named("" if stalled else need.id),
        )


class DismissedHoldShape(Struct, frozen=True):
    """How many dismissed questions hold how many open tasks."""

    questions: int
    tasks: int


class StatusShape(Struct, frozen=True):
    """Whether all is well; `there` is false, and all else empty, where there is no store yet."""

    store: str
    there: bool
    well: bool
    seen_at: Moment | None
    counts: dict[str, int]
    next_due_at: Moment | None
    needs: list[NeedShape]
    dismissed: DismissedHoldShape
    queues: list[QueueShape]
    """Of messages, in the store's database."""
    builds: list[BuildGlanceShape]
    """Those that are not over, the first few."""

    @classmethod
    def of(
        cls, store: str, seen: Overview, queues: Sequence[QueueSeen] = (), builds: Sequence[BuildGlance] = ()
    ) -> StatusShape:
        """What is to be seen in a store."""
        needs = [NeedShape.of(need) for need in seen.needs]
        shown = [QueueShape.of(queue) for queue in queues]
        held = DismissedHoldShape(seen.dismissed.questions, seen.dismissed.tasks)
        glances = [BuildGlanceShape.of(build) for build in builds]
        return cls(
            store, True, seen.well, moment(seen.now), seen.counts, moment(seen.next_due), needs, held, shown, glances
        )

    @classmethod
    def of_none(cls, store: str) -> StatusShape:
        """There is no store yet, so nothing is amiss in it."""
        return cls(
            store,
            there=False,
            well=True,
            seen_at=None,
            counts={},
            next_due_at=None,
            needs=[],
            dismissed=DismissedHoldShape(0, 0),
            queues=[],
            builds=[],
        )
