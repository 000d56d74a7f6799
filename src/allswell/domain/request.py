"""A request: what one agent asks of another, tied to the lease of the one who asks.

The first kind is the **delegation** (O5): a focused request to an expert. It is a task like any other, so whoever has
the role can claim it, is watched, and is fenced; what makes it a request is its `origin`, the lease that asked. From
that follows:

-   It has `delegation_timeout`, counted from the asking, and never more than the asking attempt has left: an answer
    that comes later would be of no use. The limit holds whether or not an expert has taken it.
-   It is tried once. An expert that fails, stalls, is lost or runs out of time fails the request, and nothing else: no
    human is asked about it, and the asking task goes on and decides for itself.
-   What is delegated cannot be delegated on.

Whoever asks keeps its own lease meanwhile; that it asked counts as a word of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.case import Outcome, event
from allswell.domain.command import Delegate, NewTask
from allswell.domain.lease import Lease
from allswell.domain.names import Millis
from allswell.domain.submit import check_task
from allswell.domain.task import Origin
from allswell.errors import Refused

DELEGATION = "delegation"
EXPIRED = "delegation_timeout"
"""The reason of a request that nobody answered in time."""


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
    out.request = (_once(new, limit - now), limit, Origin(task.id, lease.token, lease.agent, command.id))


def _once(new: NewTask, timeout: int) -> NewTask:
    """The request with the time it really has, and a single attempt."""
    retry = replace(new.policy.retry, retries=0, max_attempts=1)
    idle = new.policy.idle
    policy = replace(new.policy, timeout=timeout, idle=None if idle is None else min(idle, timeout), retry=retry)
    return replace(new, policy=policy)
