"""What time does to a request of the mesh: a delivery expires, it is delivered again, and in the end it blocks (M2).

    delivered --expires--> delivered again --expires, and was the last--> exhausted --> its task is blocked
                                                                            |
                                                               the caller, if it waits, learns of it

A caller that waits comes by itself when the last delivery expires (`MoveOn`, respond.py), and is given something
else to do in the same transaction; for that it has `wait`, and then the task is blocked without it. A request whose
asker no longer holds the task blocks nothing: it is over.

Blocked means: the attempt is over, as `blocked`, which counts as no failure, and the task waits for the request by
name. The request stays open for a late answer: it is delivered anew after `again`, if that was wanted, and given up
after `kept`. However it ends, its task is queued again. While it lasts, an event says so after `escalate`, and again
after each `remind`: by the same timer, so once for all sweepers.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId
from allswell.domain.lease.model import LeaseRow
from allswell.domain.mesh.request import asks_mesh, blocks_by, mesh_asked, time_for, wait_of
from allswell.domain.mesh.routing import agent_of, family
from allswell.domain.notify.delivery import made_words
from allswell.domain.rules.event import Event
from allswell.domain.service.retry import Failure
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, due_of, end_attempt, end_task, event, requeue
from allswell.domain.task.model import OPEN, RequestOrigin, RequestRecord, RequestSpec, State, Task, WaitState
from allswell.domain.task.submit import WEBHOOKS
from allswell.errors import Bug

BLOCKED = "blocked"
"""How an attempt ends whose request was not answered."""
UNANSWERED = "request_timeout"
"""The reason of a request that was not answered."""
_SHOWN = 500
"""Characters of what a receiver said that stand in a reason."""


def passes(
    request: TaskAggregate, asking: TaskAggregate | None, now: Millis, *, waiter: bool = False
) -> list[TaskChange]:
    """All that has fallen due for a request: what becomes of it, and of the task that asked where that is blocked.

    `waiter`: the caller that waits for it is here to learn of its end.
    """
    out = TaskChange(request)
    outcomes = [out]
    while _is_due(out.case, now, waiter=waiter):
        blocked = _go_on(out, asking, now, waiter=waiter)
        if blocked is not None:
            outcomes.append(blocked)
            asking = blocked.case
    if out.case.task.ended_at is None:
        _tell_if_long(out, asking, now)
        is_webhook = out.case.task.role == WEBHOOKS and out.case.lease is None
        out.case = _webhook_at_rest(out.case, now) if is_webhook else _with_timer(out.case)
    return outcomes


def _is_due(case: TaskAggregate, now: Millis, *, waiter: bool) -> bool:
    stand = case.task.record.request
    if stand is None or case.task.ended_at is not None:
        return False
    learns = waiter and not stand.waiting and stand.blocked_at is None and _parts(case)[0].blocks
    return stand.due <= now or learns


def _go_on(out: TaskChange, asking: TaskAggregate | None, now: Millis, *, waiter: bool) -> TaskChange | None:
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
        if lease is not None and not spec.blocks:
            _stand(out, replace(stand, since=now, due=min(Millis(now + spec.kept), lease.deadline), waiting=False))
            _come_to_rest(out, now)  # the asker works on, and hears of a late answer with a check-in
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
    if spec.blocks and asking is not None and (lease is not None or _is_blocked_besides(asking, origin)):
        return _block(out, asking, lease, now)
    if (
        spec.blocks
        and stand.waiting
        and asking is not None
        and asking.task.state == OPEN
        and was_blocked(asking.task, origin)
    ):
        _stand(out, replace(stand, since=now, due=Millis(now + spec.kept), waiting=False))
        _come_to_rest(out, now)  # the task goes on without it, and a late answer is handed to its attempts
        return None
    _give_up(out, now)
    return None


def was_blocked(task: Task, origin: RequestOrigin) -> bool:
    """Whether the attempt that asked was the last to end, because of an unanswered request."""
    last = task.record.handover
    return task.record.token == origin.token and last is not None and last.reason == BLOCKED


def _is_blocked_besides(asking: TaskAggregate, origin: RequestOrigin) -> bool:
    """Whether another request of the same attempt has blocked the task, and still does: then it needs both answers."""
    waits = any(wait.kind == "request" for wait in asking.waits)
    return asking.task.state == OPEN and waits and was_blocked(asking.task, origin)


def _expire(out: TaskChange, stand: RequestRecord, now: Millis) -> None:
    """This delivery was not answered in its time (M3: Timeout)."""
    spec, _, _ = _parts(out.case)
    about = {"attempt": stand.attempt, "timeout_ms": stand.due - stand.since, "default_ms": spec.default}
    _tell(out, "request_expired", **about, against=_against(out.case))
    _stand(out, replace(stand, since=now, due=now, waiting=False))
    if out.case.task.role == WEBHOOKS and out.case.lease is not None:
        # Its poster hangs, or is gone: the next delivery is not kept from its time by that.
        end_attempt(out, UNANSWERED, now, detail="it did not answer in time")


def _against(case: TaskAggregate) -> str:
    """The agent that did not answer: the one it is for, or the holder of what was for a role; else none."""
    to = agent_of(case.task.role)
    if to is not None:
        return family(to)
    return "" if case.lease is None or case.task.role == WEBHOOKS else family(case.lease.agent)


def _deliver(out: TaskChange, attempt: int, last: int, timeout: int, now: Millis) -> None:
    spec, stand, origin = _parts(out.case)
    stand = replace(stand, since=now, due=Millis(now + timeout), attempt=attempt, last=last, waiting=True, listed=())
    _tell(out, "request_delivered", attempt=attempt, timeout_ms=timeout)
    out.unbarred = _passed_over(spec, stand)  # the preferred agents have not answered: all may
    if asks_mesh(spec, stand):
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(out.case.task.id, spec, origin, None))
    _stand(out, stand)
    if out.case.lease is None:
        out.case = requeue(out.case, now)


def _passed_over(spec: RequestSpec, stand: RequestRecord) -> tuple[AgentId, ...]:
    """Those that others were preferred to, without those that have declined it."""
    return tuple(agent for agent in spec.passed_over if agent not in stand.declined)


def _rest(out: TaskChange, now: Millis) -> None:
    """A round of deliveries after the block is over: until the next one, or until it is given up."""
    spec, stand, _ = _parts(out.case)
    end = (stand.blocked_at or now) + spec.kept
    due = end if spec.again is None else min(end, now + spec.again)
    _stand(out, replace(stand, since=now, due=Millis(due), waiting=False))
    _come_to_rest(out, now)


def _come_to_rest(out: TaskChange, now: Millis) -> None:
    """No delivery is under way, and its receiver may still take it up."""
    if out.case.lease is None:
        out.case = requeue(out.case, now)


def _block(out: TaskChange, asking: TaskAggregate, lease: LeaseRow | None, now: Millis) -> TaskChange:
    """The task waits for the request from now on, and its holder is free; without a lease, it is already."""
    spec, stand, origin = _parts(out.case)
    if asks_mesh(spec, replace(stand, last=stand.attempt)):  # what was to be the last delivery came to nothing
        stand = replace(stand, mesh=True)
        out.events.append(mesh_asked(out.case.task.id, spec, origin, None))
    task = out.case.task
    blocked = TaskChange(asking)
    if lease is not None:
        end_attempt(blocked, BLOCKED, now, detail=unanswered(spec.to, task.id, task.name))
    waits = (*asking.waits, WaitState(asking.task.id, "request", task.id))
    blocked.case = requeue(replace(blocked.case, waits=waits), now)
    told = {"request": task.id, "kind": spec.kind, "to": spec.to, "attempts": stand.attempt, "next": ""}
    blocked.events.append(Event("request_blocked", asking.task.id, asking.task.run, origin.agent, origin.token, told))
    _stand(out, replace(stand, blocked_at=now, alert_at=Millis(now + spec.escalate)))
    out.unbarred = _passed_over(spec, stand)
    _rest(out, now)
    out.case = replace(out.case, awaited=True)
    return blocked


def unanswered(to: str, request: TaskId, summary: str) -> str:
    """Why an attempt has ended as blocked."""
    return f"{to} has not answered {request}: {summary}"


def _tell_if_long(out: TaskChange, asking: TaskAggregate | None, now: Millis) -> None:
    """The task has been blocked for long: one event says so, and another at each reminder (M6).

    A sweeper that was away in between writes one event. A task that waits for this no longer needs no event.
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


def _give_up(out: TaskChange, now: Millis) -> None:
    """It is over without an answer."""
    task, lease = out.case.task, out.case.lease
    end_task(out, State.FAILED, UNANSWERED, now)
    out.events.append(event(task, "task_failed", lease, reason=UNANSWERED, message="no agent has answered it"))


def put_off(out: TaskChange, now: Millis) -> None:
    """An attempt at a request came to nothing: it is taken up again when it is delivered again."""
    _, stand, _ = _parts(out.case)
    if out.case.task.role == WEBHOOKS:
        out.case = _webhook_at_rest(out.case, now)
    else:
        out.case = requeue(out.case, now, until=stand.due if stand.due > now else 0)


def _webhook_at_rest(case: TaskAggregate, now: Millis) -> TaskAggregate:
    """A webhook that no poster has: each delivery is taken up once, and not before its receiver wants it."""
    _, stand, _ = _parts(case)
    if stand.waiting and stand.posted < stand.attempt:
        return requeue(case, now, until=stand.not_before or 0)
    return requeue(case, now, until=max(stand.due, now + 1))


def refused_for_good(out: TaskChange, failure: Failure, now: Millis, command: CommandId) -> None:
    """A webhook's receiver will never take it."""
    reason = f"{failure.message[:_SHOWN]}; it is not posted again"
    task, lease = out.case.task, out.case.lease
    end_task(out, State.FAILED, reason, now, command=command)
    out.events.append(event(task, "task_failed", lease, reason=reason, message=failure.message))


def delivery_made(out: TaskChange) -> list[Event]:
    """That a webhook was delivered after all, where its first delivery was in vain (M9)."""
    task, origin, stand = out.case.task, out.case.task.spec.origin, out.case.task.record.request
    if task.role != WEBHOOKS or task.state != State.DONE or origin is None or stand is None or stand.attempt == 1:
        return []
    tries = stand.attempt - 1
    told = {"sink": _parts(out.case)[0].to, "delivery": task.id, "tries": tries, "says": made_words(tries)}
    return [Event("delivery_made", origin.task, None, origin.agent, origin.token, told)]


def left_alone(case: TaskAggregate, until: Millis) -> TaskAggregate:
    """A webhook whose receiver asks to be left alone until then."""
    _, stand, _ = _parts(case)
    return replace(case, task=with_stand(case.task, replace(stand, not_before=until)))


# --- the parts --------------------------------------------------------------------------------------------------------


def _parts(case: TaskAggregate) -> tuple[RequestSpec, RequestRecord, RequestOrigin]:
    task = case.task
    spec, stand, origin = task.spec.request, task.record.request, task.spec.origin
    if spec is None or stand is None or origin is None:
        raise Bug(f"{task.id} is not a request of the mesh")
    return spec, stand, origin


def _asking_lease(asking: TaskAggregate | None, origin: RequestOrigin) -> LeaseRow | None:
    """The lease that asked, while it lives."""
    lease = None if asking is None else asking.lease
    return lease if lease is not None and lease.token == origin.token else None


def with_stand(task: Task, stand: RequestRecord) -> Task:
    """The request as it stands now."""
    return replace(task, record=replace(task.record, request=stand))


def _stand(out: TaskChange, stand: RequestRecord) -> None:
    out.case = replace(out.case, task=with_stand(out.case.task, stand))


def _with_timer(case: TaskAggregate) -> TaskAggregate:
    due = case.task.wakes_at if case.lease is None else due_of(case.task, case.lease)
    return case if due == case.due else replace(case, due=due)


def _tell(out: TaskChange, kind: str, **more: object) -> None:
    spec, _, origin = _parts(out.case)
    told = {"request": out.case.task.id, "kind": spec.kind, "to": spec.to, **more}
    out.events.append(Event(kind, origin.task, None, origin.agent, origin.token, told))
