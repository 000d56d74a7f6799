"""A request: what one agent asks of another. It is a task of its own, whose `origin` is the lease that asked.

A **delegation** (O5) is a focused request to an expert, and belongs to the lease that asked:

-   It has `delegation_timeout`, counted from the asking, and never more than the asking attempt has left: an answer
    that comes later would be of no use. The limit holds whether or not an expert has taken it.
-   It is tried once. An expert that fails, stalls, is lost or runs out of time fails the request, and nothing else: no
    human is asked about it, and the asking task goes on and decides for itself.
-   What is delegated cannot be delegated on.

All other kinds are requests of the **mesh** (M1, M2, M5; docs/adr/0052), and outlive the lease that asked:

-   Each kind has a timeout and retries (`KINDS`), and each request may set its own. A retry is a new delivery of the
    same request: it has one id, and is answered once, by the agent it is for or by one with the role it is for.
-   Its deliveries are fitted into the asking lease (`time_for`), so that it blocks before that lease's limit.
-   Exhausted, it blocks its task, which then waits for the request by name and for nothing else (delivery.py). A late
  answer ends the request, and the task that waits for it is queued again.

The asking agent keeps its lease meanwhile; that it asked counts as a check-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import LONGEST, show
from allswell.domain.ids import Millis, RunId, TaskId, Token, asker_of, is_request
from allswell.domain.lease.claim import COMMAND_ROLES
from allswell.domain.lease.model import LeaseRow
from allswell.domain.mesh.routing import agent_of, family, is_agent, role_for, role_of
from allswell.domain.rules.command import Delegate, NewTask, SendRequest
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.task.aggregate import NewRequest, TaskAggregate, TaskChange, event
from allswell.domain.task.model import OPEN, RequestOrigin, RequestRecord, RequestSpec, Task
from allswell.domain.task.submit import check_task, describe_cycle
from allswell.domain.values import nearest
from allswell.errors import Refused

DELEGATION = "delegation"
WEBHOOK = "webhook"
COLLABORATION = "collaboration"
EXPIRED = "delegation_timeout"
"""The reason of a delegation that was not answered in time."""
RETRIES_MAX = 100
MARGIN = 5_000
"""Milliseconds before the asking lease's limit by which a request has blocked its task; of a short one, a tenth."""
_SHARE = 10
"""A delivery that could have less than this part of its time is not made any more."""


class RequestKind(msgspec.Struct, frozen=True, gc=False):
    """What requests of a kind have that set nothing by themselves."""

    timeout: int
    retries: int


KINDS: Mapping[str, RequestKind] = {
    "handoff": RequestKind(300_000, 2),
    "status_check": RequestKind(120_000, 1),
    COLLABORATION: RequestKind(300_000, 2),
    WEBHOOK: RequestKind(30_000, 3),
}
"""The kinds of the mesh, with the protocol's figures (M1); two retries are three deliveries."""


class Escalation(msgspec.Struct, frozen=True, gc=False):
    """When an event says that a request still blocks its task (M6), in milliseconds."""

    after: int = 3_600_000
    remind: int | None = 86_400_000
    """How often another event says so; None: never."""


ESCALATION = Escalation()


class MeshFigures(msgspec.Struct, frozen=True):
    """What is set about requests between agents."""

    kinds: Mapping[str, RequestKind] = msgspec.field(default_factory=lambda: KINDS)
    escalation: Escalation = ESCALATION
    agents: tuple[str, ...] | None = None
    """Those that are set up here: then a request to an unknown agent is refused."""
    private_webhooks: bool = True
    """Whether webhooks may go to addresses inside; the sender checks that again, when connecting."""
    webhook_secrets: Mapping[str, Sequence[str]] | None = None
    """By host, the variables with its secrets: then a webhook that could not be signed is refused."""


FIGURES = MeshFigures()


def check_kind(kind: str) -> None:
    """Refuse a kind that there is not."""
    known = (*KINDS, DELEGATION)
    if kind not in known:
        near = nearest(kind, known)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
        raise Refused("unknown_kind", f"there is no kind of request {kind!r}; {hint}", where="kind")


def check_delegation(role: str, retries: int | None, again: int | None, also: str) -> None:
    """Refuse what a delegation does not have: it is tried once, by an expert of its role."""
    if retries is not None or again is not None or also:
        text = f"{role} is a role, and a delegation to it is tried once: no retries and no other role; or name a kind"
        raise Refused("usage", text, where="kind")


# --- requests of the mesh ---------------------------------------------------------------------------------------------


def blocks_by(lease: LeaseRow) -> Millis:
    """The moment by which a request has blocked the task of the asking lease, before that reaches its own limit."""
    return Millis(lease.deadline - min(MARGIN, (lease.deadline - lease.granted_at) // _SHARE))


def wait_of(spec: RequestSpec, lease: LeaseRow) -> int:
    """How long a caller that waits has to come, after the last delivery has expired."""
    return min(spec.wait, (lease.deadline - lease.granted_at) // _SHARE)


def time_for(spec: RequestSpec, lease: LeaseRow | None, now: Millis) -> int | None:
    """How long a delivery that is made now may take; None: no use to make it. `lease` is the asking one, if it lives.

    It has its whole time as long as that fits into the asking lease, and the last one has what is left.
    """
    if lease is None:
        return spec.timeout
    left = blocks_by(lease) - wait_of(spec, lease) - now
    return None if left < max(min(spec.timeout // _SHARE, 1_000), 1) else min(spec.timeout, left)


def send(out: TaskChange, lease: LeaseRow, command: SendRequest, now: Millis) -> None:
    """Ask another agent; the task that this makes is accepted by the caller, in the same transaction."""
    task, new, spec = out.case.task, command.request, command.spec
    _check_mesh_request(out, command)
    timeout = time_for(spec, lease, now)
    if timeout is None:
        text = f"{task.name} ends in {(lease.deadline - now) / 1_000:g} s: no answer could come before that"
        raise Refused("no_time", text, where="timeout")
    told: dict[str, object] = {"request": new.id, "kind": spec.kind, "to": spec.to, "timeout_ms": timeout}
    out.events.append(event(task, "request_sent", lease, **told))
    due = Millis(now + timeout)
    stand = RequestRecord(now, due, last=1 if time_for(spec, lease, due) is None else 1 + spec.retries)
    origin = RequestOrigin(task.id, lease.token, lease.agent, command.id)
    if asks_mesh(spec, stand):
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(new.id, spec, origin, task.run))
    out.answer = new.id
    out.request = NewRequest(new, origin, spec=spec, stand=stand)


def asks_mesh(spec: RequestSpec, stand: RequestRecord) -> bool:
    """Whether all agents are asked with this delivery, before the request is given up: once, with the last one.

    A webhook is for a program, and no other could answer for it.
    """
    return spec.kind != WEBHOOK and not stand.mesh and stand.attempt >= stand.last


def mesh_asked(request: TaskId, spec: RequestSpec, origin: RequestOrigin, run: RunId | None) -> Event:
    """The message to the mesh then."""
    told = {"request": request, "kind": spec.kind, "to": spec.to}
    return Event("mesh_asked", origin.task, run, origin.agent, origin.token, told)


def check_request(new: NewTask) -> None:
    """Refuse what is wrong with the task of a request by itself."""
    check_task(new, prefix="m_")
    _check_for_now(new)


def check_delegated(new: NewTask) -> None:
    """Refuse what is wrong with the task of a delegation by itself."""
    check_task(new)
    _check_for_now(new)


def _check_for_now(new: NewTask) -> None:
    """A request is for now, and belongs to nothing but the task that asks.

    Else an agent that may ask could use others' services, say what a human has said, end others' runs, or take the
    place of a later submission under a key that can be guessed.
    """
    for field in ("needs", "run", "not_before", "services", "critical", "carried", "keyed"):
        if getattr(new, field):
            text = f"a request has no {field}: it is for now, and belongs to nothing but the task that asks"
            raise Refused("bad_request", text, where=field)
    if new.role in COMMAND_ROLES:  # `allswell run --resume` would run the command in its payload
        text = f"a request cannot be for {new.role!r}: no agent has that role, its tasks are commands of `allswell`"
        raise Refused("bad_role", text, where="role")


def _check_mesh_request(out: TaskChange, command: SendRequest) -> None:
    task, new, spec = out.case.task, command.request, command.spec
    check_kind(spec.kind)
    if asker_of(new.id) != task.id:
        raise Refused("bad_id", f"{new.id} is not an id of a request of {task.id}", where="id")
    if task.spec.flow:
        text = "a flow cannot wait for an answer without its process; delegate it, or ask a human with hold"
        raise Refused("bad_request", text, where="kind")
    if new.role != role_for(spec.to, spec.kind):
        raise Refused("bad_address", f"{new.id} is for {new.role!r}, and was addressed to {spec.to!r}", where="to")
    lengths = {"timeout": spec.timeout, "again": spec.again, "kept": spec.kept}
    for where, length in lengths.items():
        if length is not None and not 0 < length <= LONGEST:
            raise Refused("bad_duration", f"{where} ({length} ms) must be positive and at most 366 days", where=where)


# --- delegations ------------------------------------------------------------------------------------------------------


def delegate(out: TaskChange, lease: LeaseRow, command: Delegate, now: Millis) -> None:
    """Hand a request to an expert; the task that it makes is accepted by the caller, in the same transaction."""
    task = out.case.task
    new = command.request
    if task.spec.origin is not None:
        text = f"{task.name} was delegated to {lease.agent} by {task.spec.origin.agent}, and cannot be delegated on"
        raise Refused("cannot_delegate", text, where="task")
    if not new.role:
        raise Refused("no_role", "a request needs the role of the expert it is for", where="role")
    limit = Millis(min(now + command.timeout, lease.deadline))
    told = {"request": new.id, "kind": DELEGATION, "to": new.role, "timeout_ms": limit - now}
    out.events.append(event(task, "request_sent", lease, **told))
    out.answer = new.id
    origin = RequestOrigin(task.id, lease.token, lease.agent, command.id)
    out.request = NewRequest(_once(new, limit - now), origin, limit)


def _once(new: NewTask, timeout: int) -> NewTask:
    """The request with the time it really has, and a single attempt."""
    retry = replace(new.policy.retry, retries=0, max_attempts=1)
    idle = new.policy.idle
    policy = replace(new.policy, timeout=timeout, idle=None if idle is None else min(idle, timeout), retry=retry)
    return replace(new, policy=policy)


# What an agent is asked, as it reads it.


class InboxItem(msgspec.Struct, frozen=True):
    """A request that waits for an answer."""

    request_id: TaskId
    kind: str
    sender: str
    """The agent that asks."""
    to: str
    summary: str
    payload: Any
    task: TaskId
    """The task for which it asks."""
    attempt: int
    """How often it was delivered."""
    expires_at: Millis | None
    """Until when this delivery can be answered in time; None: it is late already, and an answer still counts."""
    asked_at: Millis
    age: int = 0
    """Milliseconds since it was asked, when it was listed."""
    mesh: bool = False
    """Whether it is addressed to another, and all agents were asked for help."""
    new: bool = True
    """Whether this delivery was not listed to the agent before."""


def told_to_agent(item: InboxItem, left: int | None, *, has_more: bool) -> str:
    """The message to an agent at work about a request, for all its channels; `left` are milliseconds.

    `has_more` is whether it has a payload.
    """
    late = "it was not answered in time, and an answer still counts" if left is None else f"{show(left)} left"
    text = item.summary if not has_more else f"{item.summary} (`allswell inbox` has the rest)"
    about = f"({item.kind} {item.request_id}; {late}): {text}"
    answer = f"`allswell respond {item.request_id} 'your answer'`"
    if item.mesh:
        return f"{item.sender} asks all agents, because {item.to} has not answered {about} If you can help: {answer}."
    declines = f"or `allswell decline {item.request_id} 'why'`"
    return f"{item.sender} asks you {about} Answer with {answer}, {declines}, then go on with your own task."


# Agents that wait for each other in a circle: each would wait for an answer that the next is too busy to give (M6).
#
# An agent waits for others while a delivery of its request is under way and it holds the task for which it asked. Once
# its task is blocked, or its lease is lost, it does not wait; and an agent that asks without waiting never does. An
# agent that asks at the same time waits for the end of the other's unit of work (`Search("asking")`), so of two
# requests that would close a circle together, the second one sees the first.
#
# A request can be answered by each of the holders that are known for it: the slots of an agent, or those that have a
# role. It closes a circle only if all of them wait themselves, for answers that none but those who wait could give: a
# free slot, or one more who has the role, is the way out.


def awaited_requests(
    requests: Iterable[Task], tokens_of: Callable[[Sequence[TaskId]], Mapping[TaskId, Token]]
) -> list[AwaitedRequest]:
    """Who waits for whom, of a store's open requests; `tokens_of` are those of the leases on tasks."""
    waiting = [(one, task.spec.origin) for task in requests if (one := _awaited(task)) is not None]
    tokens = tokens_of([origin.task for _, origin in waiting if origin is not None]) if waiting else {}
    return sorted(one for one, origin in waiting if origin is not None and tokens.get(origin.task) == origin.token)


def _awaited(task: Task) -> AwaitedRequest | None:
    """An open request as its asker waits for it; None: its asker does not wait."""
    spec, origin, stand = task.spec.request, task.spec.origin, task.record.request
    if task.state != OPEN or spec is None or origin is None or stand is None or not spec.blocks:
        return None
    if not stand.waiting or stand.blocked_at is not None:
        return None
    can_answer = asked_of(task.role, spec.to, spec.asked)
    return AwaitedRequest(task.id, origin.agent, tuple(can_answer)) if can_answer else None


def asked_of(role: str, to: str, known: Sequence[str]) -> Sequence[str]:
    """Who can answer a request: those that are known, or the agent by its name; of a role that no agent has, none."""
    if known or role_of(to) is not None:
        return known
    agent = agent_of(role)
    return () if agent is None else (agent,)


def refuse_circle(
    asker: str, can_answer: Sequence[str], awaited: Iterable[AwaitedRequest], cases: Mapping[TaskId, TaskAggregate]
) -> None:
    """Refuse a request that would close a circle. What this unit of work has changed itself counts as it is now."""
    stored = {request.id: request for request in awaited}
    here = {id_: _awaited(case.task) for id_, case in cases.items() if is_request(id_)}
    waits: dict[str, list[Sequence[str]]] = {}
    for id_, request in {**stored, **here}.items():
        if request is None:
            continue
        asking = cases.get(asker_of(id_))
        held = id_ in stored if asking is None else asking.lease is not None and asking.lease.agent == request.asker
        if held:
            waits.setdefault(request.asker, []).append(request.can_answer)
    waits.setdefault(asker, []).append(can_answer)
    stuck = set(waits)
    while freed := {holder for holder in stuck if not any(_all_stuck(others, stuck) for others in waits[holder])}:
        stuck -= freed
    if asker not in stuck or not can_answer or not _all_stuck(can_answer, stuck):
        return
    text = f"these agents would wait for each other in a circle: {describe_cycle(_members(asker, waits, stuck))}"
    raise Refused("circle", f"{text}; go on without this answer, or ask another", where="to")


def _all_stuck(others: Sequence[str], stuck: set[str]) -> bool:
    return bool(others) and all(_is_stuck(other, stuck) is not None for other in others)


def _is_stuck(other: str, stuck: set[str]) -> str | None:
    """The holder of that name that waits; of an agent by its name, any."""
    if other in stuck:
        return other
    return next((holder for holder in sorted(stuck) if is_agent(holder, other)), None)


def _members(asker: str, waits: Mapping[str, Sequence[Sequence[str]]], stuck: set[str]) -> list[str]:
    """The members in the order in which they would wait for each other, by their names in the settings."""
    way = [asker]
    while True:
        others = next(others for others in reversed(waits[way[-1]]) if _all_stuck(others, stuck))
        following = next(holder for other in others if (holder := _is_stuck(other, stuck)) is not None)
        if following in way:
            return list(dict.fromkeys(map(family, way[way.index(following) :])))
        way.append(following)
