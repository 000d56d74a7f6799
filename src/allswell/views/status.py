"""The state of the whole watch at one look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.agents.status import Presence, Survivors
from allswell.domain.build.state import BuildGlance
from allswell.domain.ids import Millis
from allswell.domain.service.breaker import BreakerState, stand
from allswell.domain.service.service import ServiceRow, parked_until, question_about
from allswell.domain.task.answer import NONE_HELD, DismissedHolds
from allswell.engine.status.explanation import upcoming
from allswell.engine.status.overview import Board, BoardLine
from allswell.engine.status.verdict import Kind, LocalFacts, Verdict, VerdictItem, VerdictLevel, look
from allswell.errors import Refused
from allswell.settings import Settings
from allswell.store.views import Views
from allswell.timing.clock import Clock
from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape, named
from allswell.views.run import BuildGlanceShape
from allswell.views.worker import QueueShape

if TYPE_CHECKING:
    from allswell.views.artifacts import Artifacts


class NeedShape(Struct, frozen=True):
    """One thing to know, and what to type: `command` mends it, `look` tells more about it."""

    kind: Kind
    task_id: str | None
    run_id: str | None
    question_id: str | None
    agent_id: str | None
    what: str
    command: str
    since_at: Moment | None
    level: VerdictLevel
    about: str
    """The name or id of what it is about: a supervisor, a service, a role, or one of those above."""
    look: str
    evidence: list[str]
    ends_at: Moment | None
    """When it ends by itself."""
    then: str | None
    """What happens then."""

    @classmethod
    def of(cls, need: VerdictItem) -> NeedShape:
        """One concern."""
        agent = need.kind in ("stalled", "missed")
        return as_shape(
            need,
            cls,
            agent_id=need.id if agent else None,
            about=need.id,
            since_at=need.since,
            ends_at=None if need.ends is None else need.ends.at,
            then=None if need.ends is None else need.ends.what,
            **named("" if agent else need.id),
        )

    def concern(self) -> VerdictItem:
        """The concern that it tells, as it is shown elsewhere."""
        ends = None if self.then is None else upcoming(self.ends_at, self.then)
        since = None if self.since_at is None else Millis(self.since_at)
        return VerdictItem(
            self.kind, self.about, self.level, self.what, self.command, since, self.look, tuple(self.evidence), ends
        )


class StatusShape(Struct, frozen=True):
    """Whether all is well; `there` is false, and all else empty, where there is no store yet.

    `verdict` is the worst level of `needs` (broken, or a human is needed) and `waiting` (it ends by itself); `well` is
    true where nothing is broken and nothing needs a human.
    """

    store: str
    there: bool
    well: bool
    seen_at: Moment | None
    counts: dict[str, int]
    next_due_at: Moment | None
    needs: list[NeedShape]
    dismissed: DismissedHolds
    queues: list[QueueShape]
    """Of messages, in the store's database."""
    builds: list[BuildGlanceShape]
    """Those that are not over, the first few."""
    verdict: VerdictLevel
    headline: str
    waiting: list[NeedShape]

    @classmethod
    def of(
        cls, store: str, seen: Verdict, queues: Sequence[QueueShape] = (), builds: Sequence[BuildGlance] = ()
    ) -> StatusShape:
        """What is to be seen in a store."""
        return as_shape(
            seen,
            cls,
            store=store,
            there=True,
            seen_at=seen.now,
            next_due_at=seen.next_due,
            needs=[NeedShape.of(one) for one in seen.needs],
            waiting=[NeedShape.of(one) for one in seen.waiting],
            queues=queues,
            builds=[BuildGlanceShape.of(build) for build in builds],
            verdict=seen.level,
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
            dismissed=NONE_HELD,
            queues=[],
            builds=[],
            verdict=VerdictLevel.WELL,
            headline="Nothing here yet.",
            waiting=[],
        )


async def load_status(
    views: Views, artifacts: Artifacts, place: LocalFacts
) -> tuple[Verdict, list[QueueShape], list[BuildGlance]]:
    """The verdict on the watch, the queues beside its store, and the builds that are not over."""
    seen = await look(views, place)
    builds: list[BuildGlance] = []
    if seen.counts.get("held") or seen.counts.get("ready"):  # the task of a build is held by its coordinator, or ready
        from allswell.build.overview import glance_at_builds

        with suppress(Refused):  # an agent's key does not see what the watch keeps about a build
            builds = await glance_at_builds(views)
    return seen, await artifacts.queues(), builds


# The board: open tasks as short lines, those that need a human first.


class BoardShape(Struct, frozen=True):
    """All open tasks as a table, those that need a human first."""

    status: StatusShape
    tasks: tuple[BoardLine, ...]

    @classmethod
    def of(cls, store: str, seen: Board) -> BoardShape:
        """The board of a store."""
        return cls(StatusShape.of(store, seen.verdict), seen.lines)


# From where the verdict on a watch is made: this machine with its settings. A module of its own, to import little.
#
# The server of a store sees what its clients cannot, its disk for example. So a client over HTTP takes the server's
# verdict, and adds the supervisors of its own machine that it knows to be dead.


def has_died(presence: Presence) -> bool:
    """Whether a supervisor of this machine is gone; asked only where there is one that has not said good-bye."""
    from allswell.runtime.supervisor.presence import has_died as is_gone

    return is_gone(presence)


def still_running(left: Survivors) -> Survivors:
    """Which processes that survived their attempt still run, as far as it can be seen from this machine."""
    from allswell.runtime.attempt.orphans import still_running as now

    return now(left)


def place_here(
    settings: Settings,
    folder: Path | None,
    *,
    clock: Clock | None = None,
    reports: Callable[[], Awaitable[Sequence[VerdictItem]]] | None = None,
) -> LocalFacts:
    """This machine with these settings; `folder` is ours beside the store."""
    return LocalFacts(
        settings.tolerance(),
        has_died,
        still_running,
        folder,
        tuple(settings.known_agents.values()),
        frozenset(settings.told or {}),
        settings.pause_on_question,
        clock,
        tuple(map(str, settings.problems)),
        reports,
    )


# A service that guards call: how its breaker stands, and what has been asked about it.


class ServiceShape(Struct, frozen=True):
    """One service; it said that it is back at `parked_until_at`, and our own pause ends at `open_until_at`."""

    service: str
    breaker: BreakerState
    failures: int
    open_until_at: Moment | None
    parked_until_at: Moment | None
    since_at: Moment | None
    question_id: str | None

    @classmethod
    def of(cls, row: ServiceRow, now: int) -> ServiceShape:
        """How it stands now."""
        state = row.state
        return cls(
            service=row.id,
            breaker=stand(state, now),
            failures=state.failures,
            open_until_at=moment(state.open_until),
            parked_until_at=moment(parked_until(row, Millis(now))),
            since_at=moment(row.since or None),
            question_id=question_about(row),
        )


class ServicesShape(Struct, frozen=True):
    """Every service that something is or was held against."""

    services: list[ServiceShape]


class UnparkedShape(Struct, frozen=True):
    """A service that can be called again, and who decided that."""

    service: str
    by: str
