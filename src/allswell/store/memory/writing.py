"""Entering changes into a transaction's draft, with the checks that a real table makes.

A new row's key is locked first, as a unique index does it: whoever makes the same row at the same time waits until the
first has ended, and then either makes it or finds it taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from allswell.domain.journal import Entry, Position
from allswell.domain.names import TaskId
from allswell.domain.task import Wait
from allswell.errors import Bug
from allswell.store.memory.database import Database
from allswell.store.memory.locks import Row
from allswell.store.memory.tables import Draft, Layer
from allswell.store.port import Changes, Kind

K = TypeVar("K")
V = TypeVar("V")


def insertions(changes: Changes) -> Iterator[tuple[Row, bool]]:
    """The keys that these changes make, each with whether it must be new."""
    for run in changes.new_runs:
        yield (Kind.RUN, run.id), True
    for service in changes.new_services:
        yield (Kind.SERVICE, service.id), True
    for agent in changes.new_agents:
        yield (Kind.AGENT, agent.id), agent.id not in changes.drop_agents
    for agent in changes.agents:
        yield (Kind.AGENT, agent.id), False
    for dropped in changes.drop_agents:
        yield (Kind.AGENT, dropped), False
    for question in changes.new_questions:
        yield (Kind.QUESTION, question.id), True
    for task, _ in changes.new_tasks:
        yield (Kind.TASK, task.id), True
    for made in changes.recorded:
        yield (Kind.TASK, made.task.id), True
    if changes.new_leases:
        ended = {task for task, _ in changes.drop_leases}
        for lease in changes.new_leases:
            yield (Kind.LEASE, lease.task), lease.task not in ended
    for spread in changes.new_spreads:
        yield (Kind.SPREAD, spread.id), spread.id not in changes.drop_spreads


def enter(changes: Changes, draft: Draft, base: Database, xid: int) -> list[Entry]:
    """Write into the draft; the journal's new entries are returned."""
    _enter_around(changes, draft, base)
    _enter_tasks(changes, draft)
    _enter_leases(changes, draft)
    _enter_places(changes, draft)
    _enter_waits(changes, draft)
    _enter_expenses(changes, draft)
    return [Entry(Position(xid, base.next_event_id()), changes.at, event) for event in changes.events]


def _enter_around(changes: Changes, draft: Draft, base: Database) -> None:
    for run in changes.new_runs:
        _insert(draft.runs, run.id, run)
    for run in changes.runs:
        _update(draft.runs, run.id, run)
    for service in changes.new_services:
        _insert(draft.services, service.id, service)
    for service in changes.services:
        _update(draft.services, service.id, service)
    for id_ in changes.drop_agents:
        _drop(draft, draft.agents, Kind.AGENT, id_)
    for agent in changes.new_agents:
        _insert(draft.agents, agent.id, agent)
    for agent in changes.agents:
        draft.agents.put(agent.id, agent)
    for dropped in changes.drop_spreads:
        _drop(draft, draft.spreads, Kind.SPREAD, dropped)
    for spread in changes.new_spreads:
        _insert(draft.spreads, spread.id, (base.next_spread(), spread))


def _enter_tasks(changes: Changes, draft: Draft) -> None:
    for question in changes.new_questions:
        _insert(draft.questions, question.id, question)
    for question in changes.questions:
        _update(draft.questions, question.id, question)
    for task, payload in changes.new_tasks:
        _insert(draft.tasks, task.id, task)
        draft.payloads.put(task.id, payload)
    for made in changes.recorded:
        _insert(draft.tasks, made.task.id, made.task)
        draft.payloads.put(made.task.id, made.payload)
        draft.results.put(made.task.id, made.result)
        _insert(draft.attempts, (made.task.id, made.attempt.token), made.attempt)
    for task in changes.moved.tasks if changes.moved is not None else ():
        _update(draft.tasks, task.id, task)
    for task, result in changes.tasks:
        _update(draft.tasks, task.id, task)
        if result is not None:
            draft.results.put(task.id, result)


def _enter_leases(changes: Changes, draft: Draft) -> None:
    for held, token in changes.drop_leases:
        _fence(draft, held, token)
        _drop(draft, draft.leases, Kind.LEASE, held)
    moved = [] if changes.moved is None else changes.moved.leases
    for lease in (*changes.leases, *moved):
        _fence(draft, lease.task, lease.token)
        draft.leases.put(lease.task, lease)
    for lease in changes.new_leases:
        _insert(draft.leases, lease.task, lease)
    for attempt in changes.new_attempts:
        _insert(draft.attempts, (attempt.task, attempt.token), attempt)
    for attempt in changes.late_attempts:
        key = (attempt.task, attempt.token)
        known = draft.attempts.get(key)
        if known is None:
            raise Bug(f"attempt {key} does not exist, so nothing can be late on it")
        draft.attempts.put(key, replace(known, late=attempt.late, afterwards=attempt.afterwards))


def _enter_places(changes: Changes, draft: Draft) -> None:
    for dropped in changes.drop_ready:
        if draft.ready.get(dropped.task) != dropped:
            raise Bug(f"task {dropped.task} is not ready at that rank, so it cannot be taken from the pool")
        draft.ready.put(dropped.task, None)
    for ready in changes.new_ready:
        _insert(draft.ready, ready.task, ready)
    for owner in changes.drop_timers:
        draft.timers.put(owner, None)
    for owner, due in changes.timers:
        draft.timers.put(owner, due)
    for bar in changes.new_bars:
        barred = draft.bars.get(bar.task) or frozenset()
        if bar.agent in barred:
            raise Bug(f"agent {bar.agent} is barred from task {bar.task} already")
        draft.bars.put(bar.task, barred | {bar.agent})


def _enter_expenses(changes: Changes, draft: Draft) -> None:
    for row in changes.expenses:
        others = [one for one in draft.expenses.get(row.task) or () if one.token != row.token]
        draft.expenses.put(row.task, tuple(sorted([*others, row], key=lambda one: one.token)))


def _enter_waits(changes: Changes, draft: Draft) -> None:
    changed: dict[TaskId, dict[Wait, None]] = {}
    for wait in (*changes.drop_waits, *changes.new_waits):
        if wait.task not in changed:
            changed[wait.task] = dict.fromkeys(draft.waits.get(wait.task) or ())
    for wait in changes.drop_waits:
        changed[wait.task].pop(wait, None)
    for wait in changes.new_waits:
        if wait in changed[wait.task]:
            raise Bug(f"task {wait.task} waits for {wait.target} already")
        changed[wait.task][wait] = None
    for task, waits in changed.items():
        draft.put_waits(task, tuple(sorted(waits)))


def _insert(layer: Layer[K, V], key: K, row: V) -> None:
    """Make a row whose absence is certain: its key is locked, and whoever was quicker has been found."""
    if layer.get(key) is not None:
        raise Bug(f"{layer.name} {key} exists already")
    layer.put(key, row)


def _update(layer: Layer[K, V], key: K, row: V) -> None:
    if layer.get(key) is None:
        raise Bug(f"{layer.name} {key} does not exist, so it cannot be changed")
    layer.put(key, row)


def _drop(draft: Draft, layer: Layer[K, V], kind: Kind, key: K) -> None:
    layer.put(key, None)
    draft.dropped[(kind, str(key))] = None


def _fence(draft: Draft, task: TaskId, token: int) -> None:
    current = draft.leases.get(task)
    if current is None or current.token != token:
        stands = "nobody holds it" if current is None else f"its token is {current.token}"
        raise Bug(f"a write with token {token} on task {task}: {stands}")
