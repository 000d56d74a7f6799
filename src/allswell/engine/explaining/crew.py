"""Who does what, and how they are: every agent that a supervisor has, that holds a task, or that has missed check-ins.

What a supervisor sees of its own agents is the best there is; of all others only their leases tell, so what cannot be
known of them is called unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.address import family
from allswell.domain.checkin import Agent
from allswell.domain.condition import QUIET, Condition
from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.fleet import AgentSpec
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis
from allswell.domain.policy import DEFAULT
from allswell.domain.presence import PREFIX, Post, Presence, is_alive
from allswell.domain.service import ServiceRow, shut
from allswell.domain.standing import Expiry, degraded
from allswell.store.views import Views

PAGE = 1_000
_DAY = 86_400_000
IDLE, ABSENT = "idle", "not running"


class Member(msgspec.Struct, frozen=True):
    """One agent."""

    agent: str
    """Who holds its tasks."""
    health: str
    misses: int
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
    """When it is ended, if it shows no progress before; None: nobody ends it for that."""
    degraded: tuple[Expiry, ...] = ()
    """The requests that it let expire, if they are too many: it is asked only where nobody else can serve."""
    spent: Spent = NOTHING_SPENT
    """What its attempts have cost since midnight UTC."""


class Crew(msgspec.Struct, frozen=True):
    """All of them, and who watches over them."""

    now: Millis
    supervisors: tuple[Presence, ...]
    members: tuple[Member, ...]


async def presences(store: Views, has_died: Callable[[Presence], bool]) -> list[Presence]:
    """Every supervisor that has left its word; `has_died` says of which it is certain that its process is gone."""
    found = [msgspec.json.decode(text, type=Presence) for text in (await store.view_kept(PREFIX)).values()]
    return [msgspec.structs.replace(one, died=not one.gone and has_died(one)) for one in found]


async def look(
    store: Views,
    specs: Iterable[AgentSpec] = (),
    threshold: int = DEFAULT.stall_threshold,
    has_died: Callable[[Presence], bool] = lambda _one: False,
    most: int | None = None,
) -> Crew:
    """Everybody; `specs` are those that the settings name, `threshold` how many misses make a stall.

    With `most`, no more than so many tasks are looked at that somebody holds.
    """
    now = (await store.view_agenda()).now
    supervisors = await presences(store, has_died)
    accounts = await _accounts(store, supervisors)
    held: dict[str, list[TaskRow]] = {}
    for row in await _held(store, most):
        if row.lease is not None:
            held.setdefault(row.lease.agent, []).append(row)
    agents = await store.view_agents()
    records = {str(agent.id): agent for agent in agents if not agent.standing}
    against = degraded(agents, now)
    members: dict[tuple[str, str | None], Member] = {}
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
    named = {agent for agent, _ in members}
    for agent, record in records.items():
        if agent not in named:
            health = Condition.STALLED.value if record.stalled else Condition.UNKNOWN.value
            members[agent, None] = Member(agent, health, record.misses, threshold)
    watched = {member.agent for member in members.values()} | {
        post.agent for presence in supervisors if is_alive(presence, now) for post in presence.posts
    }
    for spec in specs:
        if spec.name not in watched:
            members[spec.name, None] = Member(spec.name, ABSENT, 0, threshold, None, spec.kind, spec.role)
    spent = await store.view_spent("agent", (), now - now % _DAY)
    paid = [replace(member, spent=spent.get(member.agent, NOTHING_SPENT)) for member in members.values()]
    return Crew(now, tuple(supervisors), _with_degraded(paid, against, threshold))


def _with_degraded(
    members: Sequence[Member], against: Mapping[str, tuple[Expiry, ...]], threshold: int
) -> tuple[Member, ...]:
    """Everybody, with what makes those degraded that are, and with those of whom nothing else is known."""
    strangers = sorted(against.keys() - {family(member.agent) for member in members})
    named = [*members, *(Member(name, Condition.UNKNOWN.value, 0, threshold) for name in strangers)]
    return tuple(replace(member, degraded=against.get(family(member.agent), ())) for member in named)


async def _accounts(store: Views, supervisors: Sequence[Presence]) -> dict[str, ServiceRow]:
    """What agents of fleets wait for, if any of them does."""
    waits = any(post.waits for presence in supervisors for post in presence.posts)
    return await store.view_services() if waits else {}


def _with_wait(
    member: Member, post: Post, presence: Presence, accounts: Mapping[str, ServiceRow], now: Millis
) -> Member:
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
    post: Post, presence: Presence, row: TaskRow | None, records: dict[str, Agent], now: Millis, threshold: int
) -> Member:
    record = records.get(post.holder)
    misses = 0 if record is None else record.misses
    lease = None if row is None else row.lease
    about = Member(
        post.holder,
        post.condition or IDLE,
        misses,
        threshold if row is None else row.task.spec.policy.stall_threshold,
        presence.name,
        post.kind,
        post.role,
        post.evidence,
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
        proof_at=post.proof_at if lease.checkin_at is None else max(lease.checkin_at, post.proof_at or 0),
        deadline=lease.deadline,
        remaining_ms=max(lease.deadline - now, 0),
    )


def _holding(agent: str, row: TaskRow, record: Agent | None, now: Millis) -> Member:
    """Somebody of whom only the lease tells."""
    lease = row.lease
    assert lease is not None  # noqa: S101 - the caller has seen it
    health, evidence = Condition.UNKNOWN, "nobody here watches it"
    if lease.stalled_at is not None:
        health, evidence = Condition.STALLED, "it missed too many check-ins"
    elif lease.checkin_at is not None and now - lease.checkin_at < QUIET:
        health, evidence = Condition.WORKING, "it has checked in"
    return Member(
        agent,
        health.value,
        0 if record is None else record.misses,
        row.task.spec.policy.stall_threshold,
        role=row.task.role or None,
        evidence=evidence,
        task=row.task.id,
        name=row.task.name,
        attempt=lease.token,
        progress=lease.progress,
        note=lease.note or None,
        proof_at=lease.checkin_at,
        deadline=lease.deadline,
        remaining_ms=max(lease.deadline - now, 0),
    )
