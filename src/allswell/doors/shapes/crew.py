"""Who does what: every agent, how it is, and which supervisors watch over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment
from allswell.doors.shapes.spent import SpentShape

if TYPE_CHECKING:
    from allswell.domain.presence import Presence
    from allswell.domain.standing import Expiry
    from allswell.engine.explaining.crew import Crew, Member


class ExpiryShape(Struct, frozen=True):
    """A request that an agent did not answer in time."""

    request_id: str
    kind: str
    timeout_ms: int
    expired_at: Moment

    @classmethod
    def of(cls, one: Expiry) -> ExpiryShape:
        """One of them."""
        return cls(one.request, one.kind, one.timeout, moment(one.at))


class AgentShape(Struct, frozen=True):
    """One agent; what it does is null while it holds no task.

    `expiries` are the requests that have made it degraded; of one that is not there are none.
    """

    agent_id: str
    health: str
    misses: int
    threshold: int
    supervisor: str | None
    kind: str | None
    role: str | None
    evidence: str
    task_id: str | None
    name: str | None
    attempt: int | None
    progress: float | None
    note: str | None
    proof_at: Moment | None
    deadline: Moment | None
    remaining_ms: int | None
    waits: str | None
    degraded: bool
    expiries: list[ExpiryShape]
    spent: SpentShape
    """Since midnight UTC."""

    @classmethod
    def of(cls, one: Member) -> AgentShape:
        """One of them."""
        return cls(
            agent_id=one.agent,
            health=one.health,
            misses=one.misses,
            threshold=one.threshold,
            supervisor=one.supervisor,
            kind=one.kind,
            role=one.role,
            evidence=one.evidence,
            task_id=one.task,
            name=one.name,
            attempt=one.attempt,
            progress=one.progress,
            note=one.note,
            proof_at=moment(one.proof_at),
            deadline=moment(one.deadline),
            remaining_ms=one.remaining_ms,
            waits=one.waits,
            degraded=bool(one.degraded),
            expiries=[ExpiryShape.of(expiry) for expiry in one.degraded],
            spent=SpentShape.of(one.spent),
        )


class SupervisorShape(Struct, frozen=True):
    """A supervisor, by the name that it has taken; `paused_until_at` is when it takes new work again."""

    name: str
    host: str
    pid: int
    started_at: Moment
    beaten_at: Moment
    pace_ms: int
    low_context: bool
    paused: bool
    paused_until_at: Moment | None
    stopping: bool
    gone: bool

    @classmethod
    def of(cls, one: Presence) -> SupervisorShape:
        """What it says of itself."""
        return cls(
            name=one.name,
            host=one.host,
            pid=one.pid,
            started_at=moment(one.started_at),
            beaten_at=moment(one.beaten_at),
            pace_ms=one.pace,
            low_context=one.level.low_context,
            paused=one.level.paused,
            paused_until_at=moment(one.level.until),
            stopping=one.stopping,
            gone=one.gone,
        )


class AgentsShape(Struct, frozen=True):
    """All of them; `questions` is how many wait for a human."""

    seen_at: Moment
    questions: int
    supervisors: list[SupervisorShape]
    agents: list[AgentShape]

    @classmethod
    def of(cls, crew: Crew, questions: int) -> AgentsShape:
        """Everybody, as they are now."""
        supervisors = [SupervisorShape.of(one) for one in crew.supervisors]
        return cls(moment(crew.now), questions, supervisors, [AgentShape.of(one) for one in crew.members])
