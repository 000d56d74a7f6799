"""What time does to a request of the mesh: a delivery expires, it is delivered again, and in the end it blocks (M2).

    delivered --expires--> delivered again --expires, and was the last--> exhausted --> its task is blocked
                                                                            |
                                                               the caller, if it waits, learns of it

A caller that waits comes by itself when the last delivery expires (`MoveOn`, responding.py), and is given something
else to do in the same transaction; for that it has `wait`, and then the task is blocked without it. A request whose
asker no longer holds the task blocks nobody: it is over.

Blocked means: the attempt is over, as `blocked`, which is counted against nobody, and the task waits for the request by
name. The request stays open for a late answer: it is delivered anew after `again`, if that was wanted, and given up
after `kept`. However it ends, its task is queued again. While it lasts, that is told after `escalate`, and again after
each `remind`: by the same timer, so once for all who sweep.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.address import WEBHOOKS, agent_of, family
from allswell.domain.case import Case, Outcome, come_to_rest, due_of, end_attempt, end_task, event
from allswell.domain.event import Event
from allswell.domain.lease import Lease
from allswell.domain.names import Millis
from allswell.domain.request import asks_mesh, blocks_by, mesh_asked, time_for, wait_of
from allswell.domain.task import Origin, RequestRecord, RequestSpec, State, Task, Wait
from allswell.errors import Bug

BLOCKED = "blocked"
"""How an attempt ends whose request nobody answered."""
UNANSWERED = "request_timeout"
"""The reason of a request that nobody answered."""


def passes(request: Case, asking: Case | None, now: Millis, *, waiter: bool = False) -> list[Outcome]:
    """All that has fallen due for a request: what becomes of it, and of the task that asked where that is blocked.

    `waiter`: whoever waits for it is here to learn of its end.
    """
    out = Outcome(request)
    outcomes = [out]
    while _is_due(out.case, now, waiter=waiter):
        blocked = _go_on(out, asking, now, waiter=waiter)
        if blocked is not None:
            outcomes.append(blocked)
            asking = blocked.case
    if out.case.task.ended_at is None:
        _tell_if_long(out, asking, now)
        out.case = _with_timer(out.case)
    return outcomes


def _is_due(case: Case, now: Millis, *, waiter: bool) -> bool:
    stand = case.task.record.request
    if stand is None or case.task.ended_at is not None:
        return False
    return stand.due <= now or (waiter and not stand.waiting and stand.blocked_at is None)


def _go_on(out: Outcome, asking: Case | None, now: Millis, *, waiter: bool) -> Outcome | None:
    """One step of the schedule; the outcome of the asking task, where it is blocked by that."""
    spec, stand, origin = _parts(out.case)
    lease = _asking_lease(asking, origin)
    if stand.waiting:
        _expire(out, stand, now)
        if stand.attempt < stand.last and (timeout := time_for(spec, lease, now)) is not None:
            attempt = stand.attempt + 1
            last = attempt if time_for(spec, lease, Millis(now + timeout)) is None else stand.last
            _deliver(out, attempt, last, timeout, now)
            return None
        if stand.blocked_at is not None:
            _rest(out, now)
            return None
        if lease is not None and spec.wait and not waiter:
            until = min(now + wait_of(spec, lease), max(blocks_by(lease), now))
            _stand(out, replace(stand, since=now, due=Millis(until), waiting=False))
            return None
    elif stand.blocked_at is not None:
        if now >= stand.blocked_at + spec.kept:
            _give_up(out, now)
        else:
            last = stand.attempt + 1 + spec.retries
            _deliver(out, stand.attempt + 1, last, spec.timeout, now)
        return None
    if lease is None or asking is None:
        _give_up(out, now)
        return None
    return _block(out, asking, lease, now)


def _expire(out: Outcome, stand: RequestRecord, now: Millis) -> None:
    """Nobody has answered this delivery in its time (M3: Timeout)."""
    spec, _, _ = _parts(out.case)
    about = {"attempt": stand.attempt, "timeout_ms": stand.due - stand.since, "default_ms": spec.default}
    _tell(out, "request_expired", **about, against=_against(out.case))
    _stand(out, replace(stand, since=now, due=now, waiting=False))


def _against(case: Case) -> str:
    """The agent that did not answer: the one it is for, or whoever holds what was for a role; else nobody."""
    to = agent_of(case.task.role)
    if to is not None:
        return family(to)
    return "" if case.lease is None or case.task.role == WEBHOOKS else family(case.lease.agent)


def _deliver(out: Outcome, attempt: int, last: int, timeout: int, now: Millis) -> None:
    spec, stand, origin = _parts(out.case)
    stand = replace(stand, since=now, due=Millis(now + timeout), attempt=attempt, last=last, waiting=True)
    _tell(out, "request_delivered", attempt=attempt, timeout_ms=timeout)
    if asks_mesh(spec, stand):
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(out.case.task.id, spec, origin, None))
    _stand(out, stand)
    if out.case.lease is None:
        out.case = come_to_rest(out.case, now)


def _rest(out: Outcome, now: Millis) -> None:
    """A round of deliveries after the block is over: until the next one, or until it is given up."""
    spec, stand, _ = _parts(out.case)
    end = (stand.blocked_at or now) + spec.kept
    due = end if spec.again is None else min(end, now + spec.again)
    _stand(out, replace(stand, since=now, due=Millis(due), waiting=False))
    if out.case.lease is None:
        out.case = come_to_rest(out.case, now)  # whoever it is for may still take it up


def _block(out: Outcome, asking: Case, lease: Lease, now: Millis) -> Outcome:
    """The task waits for the request from now on, and its holder is free."""
    spec, stand, origin = _parts(out.case)
    if asks_mesh(spec, replace(stand, last=stand.attempt)):  # what was to be the last delivery came to nothing
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(out.case.task.id, spec, origin, None))
    task = out.case.task
    blocked = Outcome(asking)
    end_attempt(blocked, BLOCKED, now, detail=f"{spec.to} has not answered {task.id}: {task.name}")
    waits = (*asking.waits, Wait(asking.task.id, "request", task.id))
    blocked.case = come_to_rest(replace(blocked.case, waits=waits), now)
    told = {"request": task.id, "kind": spec.kind, "to": spec.to, "attempts": stand.attempt, "next": ""}
    blocked.events.append(event(asking.task, "request_blocked", lease, **told))
    _stand(out, replace(stand, blocked_at=now, alert_at=Millis(now + spec.escalate)))
    _rest(out, now)
    out.case = replace(out.case, awaited=True)
    return blocked


def _tell_if_long(out: Outcome, asking: Case | None, now: Millis) -> None:
    """The task has been blocked for long: that is told once, and again when it is time to remind somebody (M6).

    Whoever was away in between tells it once. A task that waits for this no longer is nobody's worry.
    """
    spec, stand, origin = _parts(out.case)
    if stand.alert_at is None or stand.alert_at > now or stand.blocked_at is None:
        return
    request = out.case.task.id
    if asking is None or not any(wait.target == request for wait in asking.waits):
        _stand(out, replace(stand, alert_at=None))
        return
    count = stand.alerts + 1
    about = {"blocked_ms": now - stand.blocked_at, "critical": asking.task.spec.critical, "count": count}
    told = {"request": request, "kind": spec.kind, "to": spec.to, **about}
    out.events.append(Event("task_blocked_long", origin.task, asking.task.run, origin.agent, origin.token, told))
    again = None if spec.remind is None else Millis(now + spec.remind)
    _stand(out, replace(stand, alerts=count, alert_at=again))


def _give_up(out: Outcome, now: Millis) -> None:
    """It is over without an answer."""
    task, lease = out.case.task, out.case.lease
    end_task(out, State.FAILED, UNANSWERED, now)
    out.events.append(event(task, "task_failed", lease, reason=UNANSWERED, message="nobody has answered it"))


def put_off(out: Outcome, now: Millis) -> None:
    """An attempt at a request came to nothing: it is taken up again when it is delivered again."""
    _, stand, _ = _parts(out.case)
    out.case = come_to_rest(out.case, now, until=stand.due if stand.due > now else 0)


# --- the parts --------------------------------------------------------------------------------------------------------


def _parts(case: Case) -> tuple[RequestSpec, RequestRecord, Origin]:
    task = case.task
    spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
    if spec is None or stand is None or origin is None:
        raise Bug(f"{task.id} is no request of the mesh")
    return spec, stand, origin


def _asking_lease(asking: Case | None, origin: Origin) -> Lease | None:
    """The lease that asked, while it lives."""
    lease = None if asking is None else asking.lease
    return lease if lease is not None and lease.token == origin.token else None


def with_stand(task: Task, stand: RequestRecord) -> Task:
    """The request as it stands now."""
    return replace(task, record=replace(task.record, request=stand))


def _stand(out: Outcome, stand: RequestRecord) -> None:
    out.case = replace(out.case, task=with_stand(out.case.task, stand))


def _with_timer(case: Case) -> Case:
    due = case.task.wakes_at if case.lease is None else due_of(case.task, case.lease)
    return case if due == case.due else replace(case, due=due)


def _tell(out: Outcome, kind: str, **more: object) -> None:
    spec, _, origin = _parts(out.case)
    told = {"request": out.case.task.id, "kind": spec.kind, "to": spec.to, **more}
    out.events.append(Event(kind, origin.task, None, origin.agent, origin.token, told))
