"""Agents: who does what and how it is, its ledger, and what is tracked against it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from allswell.domain.agents.status import Presence
from allswell.domain.mesh.health import healthy_at, score
from allswell.domain.mesh.routing import family
from allswell.domain.question import Question
from allswell.engine.status.agents import AgentsOverview, Counters, look, pending_questions, track
from allswell.engine.status.journal import read_health, read_ledger
from allswell.errors import Refused
from allswell.settings import Settings
from allswell.store.views import Views
from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape
from allswell.views.run import SpentShape
from allswell.views.status import has_died


class ExpiryShape(Struct, frozen=True):
    """A request that an agent did not answer in time."""

    request: str = field(name="request_id")
    kind: str
    timeout: int = field(name="timeout_ms")
    at: Moment = field(name="expired_at")


class AgentShape(Struct, frozen=True):
    """One agent; what it does is null while it holds no task.

    `expiries` are the requests that have made it degraded; of one that is not there are none.
    """

    agent: str = field(name="agent_id")
    health: str
    misses: int
    threshold: int
    supervisor: str | None
    kind: str | None
    role: str | None
    evidence: str
    task: str | None = field(name="task_id")
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


class SessionShape(Struct, frozen=True):
    """A session that a human has started, as it was reported."""

    agent: str = field(name="agent_id")
    client: str
    session: str
    folder: str
    host: str
    pid: int
    waits: str
    began_at: Moment


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
        return as_shape(
            one,
            cls,
            pace_ms=one.pace,
            low_context=one.level.low_context,
            paused=one.level.paused,
            paused_until_at=one.level.until,
        )


class AgentsShape(Struct, frozen=True):
    """All of them; `questions` is how many wait for a human."""

    seen_at: Moment
    questions: int
    supervisors: list[SupervisorShape]
    agents: list[AgentShape]

    @classmethod
    def of(cls, crew: AgentsOverview, questions: int) -> AgentsShape:
        """All agents, as they are now."""
        supervisors = [SupervisorShape.of(one) for one in crew.supervisors]
        return cls(moment(crew.now), questions, supervisors, [as_shape(one, AgentShape) for one in crew.members])


async def load_crew(views: Views, settings: Settings) -> AgentsOverview:
    """Every agent that a supervisor has, that holds a task or has missed check-ins, or that these settings name."""
    threshold = int(settings.value("stall_threshold") or 0)
    return await look(views, list(settings.known_agents.values()), threshold, has_died)


# An agent's ledger: what counts for it and against it, what does not, and why.


class LedgerLineShape(Struct, frozen=True):
    """One thing that happened; `idle_ms` is how long the agent was idle by its own fault."""

    at: Moment = field(name="occurred_at")
    weight: Literal["for", "against", "idle", "nothing"]
    what: str
    why: str
    request: str | None = field(name="request_id")
    task: str | None = field(name="task_id")
    idle_ms: int


class LedgerShape(Struct, frozen=True):
    """All of it since a moment; `score` and `degraded` are what routing goes by now.

    Of a long time only the last `events_looked_at` events of the journal were looked at, about; null: all of them.
    """

    agent_id: str
    since_at: Moment
    score: int
    degraded: bool
    healthy_at: Moment | None
    idle_ms: int
    lines: list[LedgerLineShape]
    events_looked_at: int | None


async def load_ledger(views: Views, agent: str, length: int, where: str) -> LedgerShape:
    """What the last so many milliseconds say of an agent, with how it stands now."""
    if length <= 0:
        raise Refused("bad_duration", f"{where} must be more than nothing", where=where)
    now = (await views.view_agenda()).now
    ledger = await read_ledger(views, agent, now - length)
    standing = await read_health(views, family(agent))
    healthy = healthy_at(standing, now)
    return as_shape(
        ledger,
        LedgerShape,
        agent_id=agent,
        since_at=now - length,
        score=score(standing, now),
        degraded=healthy is not None,
        healthy_at=healthy,
        events_looked_at=ledger.cut,
    )


# Timeout tracking and open questions in the words of the document that asked for them (O7, O9).


class PendingQuestionShape(Struct, frozen=True):
    """An open question about a task; each option as it is labelled."""

    task_id: str
    question: str
    options: list[str]
    asked_at: Moment

    @classmethod
    def of(cls, asked: Question) -> PendingQuestionShape:
        """One that is about a task."""
        options = [option.label for option in asked.options]
        return cls(str(asked.task), asked.text, options, moment(asked.asked_at))


class TrackingShape(Struct, frozen=True):
    """What is counted, and what waits for a human."""

    timeout_tracking: Counters
    pending_divine_questions: list[PendingQuestionShape]


async def load_tracking(views: Views) -> TrackingShape:
    """As it stands."""
    pending = [PendingQuestionShape.of(asked) for asked in await pending_questions(views)]
    return TrackingShape(await track(views), pending)
