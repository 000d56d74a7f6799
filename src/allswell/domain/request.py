"""A request: what one agent asks of another. It is a task of its own, whose `origin` is the lease that asked.

A **delegation** (O5) is a focused request to an expert, and belongs to the lease that asked:

-   It has `delegation_timeout`, counted from the asking, and never more than the asking attempt has left: an answer
    that comes later would be of no use. The limit holds whether or not an expert has taken it.
-   It is tried once. An expert that fails, stalls, is lost or runs out of time fails the request, and nothing else: no
    human is asked about it, and the asking task goes on and decides for itself.
-   What is delegated cannot be delegated on.

All other kinds are requests of the **mesh** (M1, M2, M5; docs/adr/0052), and outlive the lease that asked:

-   Each kind has a timeout and retries (`KINDS`), and each request may set its own. A retry is a new delivery of the
    same request: it has one id, and is answered once, by the agent it is for or by whoever has the role it is for.
-   Its deliveries are fitted into the asking lease (`time_for`), so that it blocks before that lease's limit.
-   Exhausted, it blocks its task, which then waits for the request by name and for nothing else (redelivery.py). A late
    answer ends the request, and whoever waits for it is queued again.

Whoever asks keeps its own lease meanwhile; that it asked counts as a word of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.address import role_for
from allswell.domain.case import NewRequest, Outcome, event
from allswell.domain.command import Delegate, NewTask, SendRequest
from allswell.domain.duration import LONGEST
from allswell.domain.event import Event
from allswell.domain.lease import Lease
from allswell.domain.meant import nearest
from allswell.domain.names import Millis, RunId, TaskId, asker_of
from allswell.domain.submit import check_task
from allswell.domain.task import Origin, RequestRecord, RequestSpec
from allswell.errors import Refused

DELEGATION = "delegation"
WEBHOOK = "webhook"
EXPIRED = "delegation_timeout"
"""The reason of a delegation that nobody answered in time."""
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
    "collaboration": RequestKind(300_000, 2),
    WEBHOOK: RequestKind(30_000, 3),
}
"""The kinds of the mesh, with the protocol's figures (M1); two retries are three deliveries."""


class Escalation(msgspec.Struct, frozen=True, gc=False):
    """When it is told that a request still blocks its task (M6), in milliseconds."""

    after: int = 3_600_000
    remind: int | None = 86_400_000
    """How often it is told again; None: never."""


ESCALATION = Escalation()


class MeshFigures(msgspec.Struct, frozen=True):
    """What is set about requests between agents."""

    kinds: Mapping[str, RequestKind] = msgspec.field(default_factory=lambda: KINDS)
    escalation: Escalation = ESCALATION
    agents: tuple[str, ...] | None = None
    """Those that are set up here: then a request to an agent that nobody knows is refused."""
    private_webhooks: bool = True
    """Whether webhooks may go to addresses inside; whoever posts them checks that again, when connecting."""
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


# --- requests of the mesh ---------------------------------------------------------------------------------------------


def blocks_by(lease: Lease) -> Millis:
    """The moment by which a request has blocked the task of the asking lease, before that reaches its own limit."""
    return Millis(lease.deadline - min(MARGIN, (lease.deadline - lease.granted_at) // _SHARE))


def wait_of(spec: RequestSpec, lease: Lease) -> int:
    """How long a caller that waits has to come, after the last delivery has expired."""
    return min(spec.wait, (lease.deadline - lease.granted_at) // _SHARE)


def time_for(spec: RequestSpec, lease: Lease | None, now: Millis) -> int | None:
    """How long a delivery that is made now may take; None: no use to make it. `lease` is the asking one, if it lives.

    It has its whole time as long as that fits into the asking lease, and the last one has what is left.
    """
    if lease is None:
        return spec.timeout
    left = blocks_by(lease) - wait_of(spec, lease) - now
    return None if left < max(min(spec.timeout // _SHARE, 1_000), 1) else min(spec.timeout, left)


def send(out: Outcome, lease: Lease, command: SendRequest, now: Millis) -> None:
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
    origin = Origin(task.id, lease.token, lease.agent, command.id)
    if asks_mesh(spec, stand):
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(new.id, spec, origin, task.run))
    out.answer = new.id
    out.request = NewRequest(new, origin, spec=spec, stand=stand)


def asks_mesh(spec: RequestSpec, stand: RequestRecord) -> bool:
    """Whether everybody is asked with this delivery, before the request is given up: once, with the last one.

    A webhook is for a program, and nobody could answer for it.
    """
    return spec.kind != WEBHOOK and not stand.mesh and stand.attempt >= stand.last


def mesh_asked(request: TaskId, spec: RequestSpec, origin: Origin, run: RunId | None) -> Event:
    """What the mesh is told then."""
    told = {"request": request, "kind": spec.kind, "to": spec.to}
    return Event("mesh_asked", origin.task, run, origin.agent, origin.token, told)


def _check_mesh_request(out: Outcome, command: SendRequest) -> None:
    task, new, spec = out.case.task, command.request, command.spec
    check_kind(spec.kind)
    if asker_of(new.id) != task.id:
        raise Refused("bad_id", f"{new.id} is no id of a request of {task.id}", where="id")
    if task.spec.flow:
        text = "a flow cannot wait for an answer without its process; delegate it, or ask a human with hold"
        raise Refused("bad_request", text, where="kind")
    if new.role != role_for(spec.to, spec.kind):
        raise Refused("bad_address", f"{new.id} is for {new.role!r}, and was addressed to {spec.to!r}", where="to")
    if not 0 <= spec.retries <= RETRIES_MAX:
        text = f"a request is delivered again up to {RETRIES_MAX} times, not {spec.retries} times"
        raise Refused("bad_retries", text, where="retries")
    lengths = {"timeout": spec.timeout, "again": spec.again, "kept": spec.kept}
    for where, length in lengths.items():
        if length is not None and not 0 < length <= LONGEST:
            raise Refused("bad_duration", f"{where} ({length} ms) must be positive and at most 366 days", where=where)
    check_task(new, prefix="m_")


# --- delegations ------------------------------------------------------------------------------------------------------


def delegate(out: Outcome, lease: Lease, command: Delegate, now: Millis) -> None:
    """Hand a request to an expert; the task that it makes is accepted by the caller, in the same transaction."""
    task = out.case.task
    new = command.request
    if task.spec.origin is not None:
        text = f"{task.name} was delegated to {lease.agent} by {task.spec.origin.agent}, and cannot be delegated on"
        raise Refused("cannot_delegate", text, where="task")
    if not new.role:
        raise Refused("no_role", "a request needs the role of the expert it is for", where="role")
    if new.needs or new.run is not None or new.not_before is not None:
        text = "a request is for now: it has no needs, no run and no moment to begin at"
        raise Refused("bad_request", text, where="request")
    if command.timeout <= 0:
        raise Refused("bad_duration", f"a request needs a positive timeout, not {command.timeout} ms", where="timeout")
    check_task(new)
    limit = Millis(min(now + command.timeout, lease.deadline))
    told = {"request": new.id, "kind": DELEGATION, "to": new.role, "timeout_ms": limit - now}
    out.events.append(event(task, "request_sent", lease, **told))
    out.answer = new.id
    origin = Origin(task.id, lease.token, lease.agent, command.id)
    out.request = NewRequest(_once(new, limit - now), origin, limit)


def _once(new: NewTask, timeout: int) -> NewTask:
    """The request with the time it really has, and a single attempt."""
    retry = replace(new.policy.retry, retries=0, max_attempts=1)
    idle = new.policy.idle
    policy = replace(new.policy, timeout=timeout, idle=None if idle is None else min(idle, timeout), retry=retry)
    return replace(new, policy=policy)
