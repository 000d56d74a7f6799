"""Who does what, and how they are: every agent that a supervisor has, that holds a task, or that has missed check-ins.

What a supervisor sees of its own agents is the best there is; of all others only their leases tell, so what cannot be
known of them is called unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.cost import NOTHING_SPENT, Spent
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.agents.human_session import (
    FORGOTTEN,
    HUMAN_SESSIONS_PREFIX,
    HumanSession,
    read_sessions,
)
from allswell.domain.agents.status import (
    EXPLAINED,
    PRESENCE_PREFIX,
    QUIET,
    SURVIVORS_PREFIX,
    AgentCondition,
    AgentSlot,
    Presence,
    Survivors,
    is_alive,
    named,
    read_all,
    read_survivors,
    word_of,
)
from allswell.domain.build.limits import BUILD_ROLE
from allswell.domain.ids import AgentId, Millis, TaskId
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.lease.model import Agent, ExpiredDelivery, LeaseRow
from allswell.domain.lease.suspension import time_left
from allswell.domain.mesh.health import degraded
from allswell.domain.mesh.routing import family
from allswell.domain.question import Question
from allswell.domain.rules.event import Event
from allswell.domain.service.service import ServiceRow, shut
from allswell.domain.task.model import DEFAULT, TaskFilter, TaskRow
from allswell.errors import Refused
from allswell.store.views import Views

if TYPE_CHECKING:
    from allswell.engine.watch import Watch


PAGE = 1_000
_DAY = 86_400_000
IDLE, ABSENT = "idle", "not running"
BY_HUMAN = "human"
"""The kind of a session that a human has started."""
_RUNNERS = {
    RUN_ROLE: "`allswell run`",
    STEP_ROLE: "the process of its flow",
    BUILD_ROLE: "the coordinator of its build",
}
"""Who renews the leases of tasks that no agent may take."""


class AgentRow(msgspec.Struct, frozen=True):
    """One agent."""

    agent: str
    """Who holds its tasks."""
    health: str
    misses: int
    """Check-ins missed in a row, at most as many as make a stall."""
    threshold: int
    supervisor: str | None = None
    kind: str | None = None
    role: str | None = None
    evidence: str = ""
    task: str | None = None
    name: str | None = None
    attempt: int | None = None
    progress: float | None = None
    note: str | None = None
    proof_at: Millis | None = None
    """The last proof of progress."""
    deadline: Millis | None = None
    remaining_ms: int | None = None
    waits: str | None = None
    waits_until: Millis | None = None
    """When what it waits for is over, where that is known."""
    idle_at: Millis | None = None
    """When it is ended, if it shows no progress before; None: it is not ended for that."""
    expiries: tuple[ExpiredDelivery, ...] = ()
    """The requests that it let expire, if they are too many."""
    spent: Spent = NOTHING_SPENT
    """What its attempts have cost since midnight UTC."""

    @property
    def degraded(self) -> bool:
        """Whether it is asked only if no other agent can serve."""
        return bool(self.expiries)

    @property
    def state(self) -> str:
        """Its health as people see it: with what its provider refuses, or what it repeats."""
        explained = self.health in EXPLAINED and self.evidence
        return f"{self.health}: {self.evidence}" if explained else self.health


class AgentsOverview(msgspec.Struct, frozen=True):
    """All of them, and who watches over them."""

    now: Millis
    supervisors: tuple[Presence, ...]
    members: tuple[AgentRow, ...]


async def presences(store: Views, has_died: Callable[[Presence], bool]) -> list[Presence]:
    """Every supervisor that has left its word; `has_died` says of which it is certain that its process is gone.

    One that was dismissed, and has not spoken since, is as one that has stopped.
    """
    words = read_all((await store.view_kept(PRESENCE_PREFIX)).values())
    found = [msgspec.structs.replace(one, gone=one.gone or bool(one.dismissed_by)) for one in words]
    return [msgspec.structs.replace(one, died=not one.gone and has_died(one)) for one in found]


async def look(
    store: Views,
    specs: Iterable[AgentSpec] = (),
    threshold: int = DEFAULT.stall_threshold,
    has_died: Callable[[Presence], bool] = lambda _one: False,
    most: int | None = None,
) -> AgentsOverview:
    """All agents; `specs` are those that the settings name, `threshold` how many misses make a stall.

    With `most`, at most so many held tasks are looked at.
    """
    now = (await store.view_agenda()).now
    supervisors = await presences(store, has_died)
    accounts = await _accounts(store, supervisors)
    held: dict[str, list[TaskRow]] = {}
    for row in await _held(store, most):
        if row.lease is not None:
            held.setdefault(row.lease.agent, []).append(row)
    agents = await store.view_agents()
    records = {str(agent.id): agent for agent in agents}
    against = degraded(await store.view_health(), now)
    members: dict[tuple[str, str | None], AgentRow] = {}
    for presence in supervisors:
        for post in presence.posts if is_alive(presence, now) else ():
            own = [row for row in held.get(post.holder, ()) if not post.task or row.task.id == post.task]
            member = _posted(post, presence, own[0] if own else None, records, now, threshold)
            member = _with_wait(member, post, presence, accounts, now)
            members[post.holder, member.task or post.task or None] = member
    for agent, rows in held.items():
        for row in rows:
            if (agent, row.task.id) not in members:
                members.pop((agent, None), None)
                members[agent, row.task.id] = _holding(agent, row, records.get(agent), now)
    sessions = await _human_sessions(store, has_died, now)
    members |= {(session.agent, None): _started_by_human(session, threshold) for session in sessions}
    named = {agent for agent, _ in members}
    for agent, record in records.items():
        if agent not in named:
            health = AgentCondition.STALLED.value if record.stalled else AgentCondition.UNKNOWN.value
            members[agent, None] = AgentRow(agent, health, min(record.misses, threshold), threshold)
    watched = {member.agent for member in members.values()} | {
        post.agent for presence in supervisors if is_alive(presence, now) for post in presence.posts
    }
    for spec in specs:
        if spec.name not in watched:
            members[spec.name, None] = AgentRow(spec.name, ABSENT, 0, threshold, None, spec.kind, spec.role)
    spent = await store.view_spent("agent", (), now - now % _DAY)
    paid = [replace(member, spent=spent.get(member.agent, NOTHING_SPENT)) for member in members.values()]
    return AgentsOverview(now, tuple(supervisors), _with_degraded(paid, against, threshold))


async def _human_sessions(store: Views, has_died: Callable[[Presence], bool], now: Millis) -> list[HumanSession]:
    """The sessions that humans have started and that run, as far as is known from here."""
    texts = (await store.view_kept(HUMAN_SESSIONS_PREFIX)).values()
    sessions = [session for text in texts for session in read_sessions(text)]
    return [each for each in sessions if now - each.heard_at < FORGOTTEN and not has_died(each.process)]


def _started_by_human(session: HumanSession, threshold: int) -> AgentRow:
    """A session that no supervisor has, and that no limit ends."""
    condition = AgentCondition.FOR_HUMAN if session.waits else AgentCondition.WORKING
    place = f"started by a human in {session.folder} on {session.host}"
    evidence = f"{session.waits}; {place}" if session.waits else place
    return AgentRow(session.agent, condition.value, 0, threshold, kind=BY_HUMAN, evidence=evidence)


def _with_degraded(
    members: Sequence[AgentRow], against: Mapping[str, tuple[ExpiredDelivery, ...]], threshold: int
) -> tuple[AgentRow, ...]:
    """All agents, with what makes some of them degraded, and with those of which nothing else is known."""
    strangers = sorted(against.keys() - {family(member.agent) for member in members})
    named = [*members, *(AgentRow(name, AgentCondition.UNKNOWN.value, 0, threshold) for name in strangers)]
    return tuple(replace(member, expiries=against.get(family(member.agent), ())) for member in named)


async def _accounts(store: Views, supervisors: Sequence[Presence]) -> dict[str, ServiceRow]:
    """What agents of fleets wait for, if any of them does."""
    waits = any(post.waits for presence in supervisors for post in presence.posts)
    return await store.view_services() if waits else {}


def _with_wait(
    member: AgentRow, post: AgentSlot, presence: Presence, accounts: Mapping[str, ServiceRow], now: Millis
) -> AgentRow:
    """A member with when what it waits for is over: the pause of its fleet, or the parking of its account."""
    if not post.waits:
        return member
    account = accounts.get(post.account)
    closed = None if account is None else shut(account, now)
    until = presence.level.until if presence.level.paused else None if closed is None else closed.until
    return replace(member, waits_until=until)


async def _held(store: Views, most: int | None) -> list[TaskRow]:
    found: list[TaskRow] = []
    size = PAGE if most is None else min(PAGE, most)
    while most is None or len(found) < most:
        after = found[-1].task.id if found else ""
        page = await store.view_tasks(TaskFilter(states=("held",), after=after, limit=size))
        found += page
        if len(page) < size:
            break
    return found


def _posted(
    post: AgentSlot, presence: Presence, row: TaskRow | None, records: dict[str, Agent], now: Millis, threshold: int
) -> AgentRow:
    record = records.get(post.holder)
    lease = None if row is None else row.lease
    own_threshold = threshold if row is None else row.task.spec.policy.stall_threshold
    about = AgentRow(
        post.holder,
        # One that holds a task is not idle: its supervisor has claimed it, and has not said yet how it is.
        post.condition or (IDLE if lease is None else AgentCondition.SPAWNING.value),
        0 if record is None else min(record.misses, own_threshold),
        own_threshold,
        presence.name,
        post.kind,
        post.role,
        post.evidence if post.condition in EXPLAINED else post.remark or post.evidence,
        waits=post.waits or None,
        idle_at=post.idle_at,
    )
    if row is None or lease is None:
        return about
    return replace(
        about,
        task=row.task.id,
        name=row.task.name,
        attempt=lease.token,
        progress=lease.progress,
        note=lease.note or None,
        proof_at=_proof_at(post, lease),
        deadline=lease.limit_at,
        remaining_ms=_left(lease, now),
    )


def _proof_at(post: AgentSlot, lease: LeaseRow) -> Millis | None:
    """The last proof of progress; while its provider is waited for, the supervisor answers check-ins in its place."""
    if lease.checkin_at is None or post.condition == AgentCondition.FOR_PROVIDER:
        return post.proof_at
    return max(lease.checkin_at, post.proof_at or Millis(0))


def _left(lease: LeaseRow, now: int) -> int | None:
    return None if lease.limit_at is None else max(lease.limit_at - now, 0)


def _holding(agent: str, row: TaskRow, record: Agent | None, now: Millis) -> AgentRow:
    """An agent that is known from its lease only."""
    lease = row.lease
    assert lease is not None  # noqa: S101 - the caller has seen it
    health, evidence = AgentCondition.UNKNOWN, "it has not checked in, and no supervisor watches it"
    if row.task.role in _RUNNERS and lease.length is not None and now - lease.renewed_at < lease.length:
        health, evidence = AgentCondition.WORKING, f"{_RUNNERS[row.task.role]} watches it"
    if (stopped := row.task.record.stopped) is not None:
        health, evidence = AgentCondition.STOPPED, f"stopped ({stopped.by}); its limits are paused"
    elif lease.stalled_at is not None:
        health, evidence = AgentCondition.STALLED, "it missed too many check-ins"
    elif row.task.record.refused:
        health, evidence = AgentCondition.FOR_PROVIDER, row.task.record.refused
    elif row.task.record.repeats:
        health, evidence = AgentCondition.REPEATING, row.task.record.repeats
    elif lease.checkin_at is not None and now - lease.checkin_at < QUIET:
        health, evidence = AgentCondition.WORKING, "it has checked in"
    return AgentRow(
        agent,
        health.value,
        0 if record is None else min(record.misses, row.task.spec.policy.stall_threshold),
        row.task.spec.policy.stall_threshold,
        role=row.task.role or None,
        evidence=evidence,
        task=row.task.id,
        name=row.task.name,
        attempt=lease.token,
        progress=lease.progress,
        note=lease.note or None,
        proof_at=lease.checkin_at,
        deadline=lease.limit_at,
        remaining_ms=time_left(row.task, lease, now),
    )


# Timeout tracking and the open questions about tasks (O7, O9), off the rows that decide: there is one truth.

QUESTIONS_MOST = 100_000


class Counters(msgspec.Struct, frozen=True):
    """What is counted: misses by agent, stalled agents, timeouts by open task."""

    checkpoint_misses: dict[str, int]
    stalled_agents: list[str]
    task_timeouts: dict[str, int]


async def pending_questions(store: Views) -> list[Question]:
    """The open questions about tasks, the oldest first; one about a service belongs to no task."""
    return [asked for asked in await store.view_questions(limit=QUESTIONS_MOST) if asked.task is not None]


async def track(store: Views) -> Counters:
    """The counters as they stand; a task that has ended counts nothing any more."""
    agents = await store.view_agents()
    timeouts: dict[str, int] = {}
    after = ""
    while True:
        page = await store.view_tasks(TaskFilter(open=True, after=after, limit=PAGE))
        timeouts |= {str(row.task.id): row.task.record.timeouts for row in page if row.task.record.timeouts}
        if len(page) < PAGE:
            break
        after = page[-1].task.id
    return Counters(
        {str(agent.id): agent.misses for agent in agents},
        [str(agent.id) for agent in agents if agent.stalled],
        timeouts,
    )


# What the store knows of processes that survived their attempts: read for the screens, freed by a human.

StillRun = Callable[[Survivors], Survivors]
"""What is left of them now: on their own machine those that still run, elsewhere what was said last."""


def as_said(survivors: Survivors) -> Survivors:
    """What was said last, for those who cannot look."""
    return survivors


async def view_survivors(views: Views, now: StillRun = as_said) -> list[Survivors]:
    """Every attempt of which something still runs and keeps its folder and slot, the oldest first."""
    words = [read_survivors(text) for text in (await views.view_kept(SURVIVORS_PREFIX)).values()]
    left = [now(one) for one in words if one is not None and one.keeps]
    return sorted((one for one in left if one.keeps), key=lambda one: one.since)


async def free(watch: Watch, pid: int, by: str, *, host: str | None = None) -> Survivors:
    """A human frees the folder and the slot that a process keeps, whether or not it runs; `Refused` if none does."""
    matching = [
        one
        for one in await view_survivors(watch.views)
        if any(process.pid == pid for process in one.processes) and host in (None, one.host)
    ]
    if not matching:
        raise Refused("no_survivor", f"no process {pid} keeps a folder or a slot", where="ID", hint="allswell agents")
    freed = replace(matching[0], freed_by=by)
    key = word_of(freed.holder)
    before = await watch.recall(key)
    if read_survivors(before) != matching[0] or not await watch.swap(key, before, msgspec.json.encode(freed).decode()):
        raise Refused("changed", f"what is known of process {pid} has just changed; try again", where="ID")
    about = {"processes": named(freed.processes), "by": by}
    await watch.notice(Event("survivors_freed", TaskId(freed.task), None, AgentId(freed.holder), data=about))
    return freed
