"""Rows as this connection last read or wrote them, so that a busy process need not read its own writes.

Valid for as long as nobody else has committed: `PRAGMA data_version` changes with every commit of another connection
and never with one of ours, and it is asked inside each transaction, when the write lock is already held. A rolled-back
transaction empties the cache. Rows are frozen, so what is handed out cannot be changed behind its back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.lease import Lease
from allswell.domain.names import AgentId, Millis, TaskId
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, Ready, Task, Wait
from allswell.store.port import Changes, Rows

PAYLOAD_MOST = 2_000
"""Characters; a larger payload is read again when it is claimed."""
MOST = 20_000
"""Tasks that are remembered; beyond that the oldest are forgotten."""


class Known(msgspec.Struct, gc=False):
    """What is known of one open task; of its lease and payload, only if the flag or the value says so."""

    task: Task
    lease_known: bool
    payload: str | None = None
    awaited: bool | None = None
    """Whether others wait for it, if that is known."""
    ready: Ready | None = None
    due: Millis | None = None
    apart: bool = True
    """Whether its timer may be in a row of its own; if not, it is in the lease's."""
    waits: tuple[Wait, ...] = ()
    lease: Lease | None = None


class RowCache:
    """The cache of one writing connection."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[TaskId, Known] = {}
        self._agents: dict[AgentId, Agent | None] = {}
        """What is held against agents; None: nothing."""
        self.services: dict[str, ServiceRow] | None = None
        """All that anything is or was held against, if that is known."""
        self.lanes_known = False
        """Whether all lanes that there are have been read."""
        self.last: tuple[int, int] | None = None
        """The moment and the number of the newest event."""

    def begin(self, version: int) -> None:
        """A transaction begins; if anybody else has committed since the last, nothing is known any more."""
        if version != self._version:
            self.clear()
            self._version = version

    def clear(self) -> None:
        """Forget everything: somebody else has written, or a transaction was rolled back."""
        self._known.clear()
        self._agents.clear()
        self.services = None
        self.lanes_known = False
        self.last = None

    def tasks(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Which of these tasks are known to exist, and which must be looked for."""
        known = self._known
        here = [id_ for id_ in ids if id_ in known]
        return (here, []) if len(here) == len(ids) else (here, [id_ for id_ in ids if id_ not in known])

    def leases(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Of which of these tasks a lease is known to exist, and which must be looked for."""
        known = self._known
        here, unknown = [], []
        for id_ in ids:
            row = known.get(TaskId(id_))
            if row is None or not row.lease_known:
                unknown.append(id_)
            elif row.lease is not None:
                here.append(id_)
        return here, unknown

    def give_tasks(self, ids: Sequence[TaskId], found: Rows) -> list[TaskId]:
        """Fill in the tasks that are known; the rest must be read."""
        missing = []
        for id_ in ids:
            row = self._known.get(id_)
            if row is None:
                missing.append(id_)
                continue
            found.tasks[id_] = row.task
            if row.ready is not None:
                found.ready[id_] = row.ready
            if row.due is not None:
                found.timers[id_] = row.due
            if row.waits:
                found.waits[id_] = list(row.waits)
        return missing

    def give_leases(self, ids: Sequence[TaskId], found: Rows) -> list[TaskId]:
        """Fill in the leases that are known; the rest must be read."""
        missing = []
        for id_ in ids:
            row = self._known.get(id_)
            if row is None or not row.lease_known:
                missing.append(id_)
            elif row.lease is not None:
                found.leases[id_] = row.lease
        return missing

    def give_payloads(self, ids: Sequence[TaskId], found: Rows) -> list[TaskId]:
        """Fill in the payloads that are known; the rest must be read."""
        missing = []
        for id_ in ids:
            row = self._known.get(id_)
            if row is None or row.payload is None:
                missing.append(id_)
            else:
                found.payloads[id_] = row.payload
        return missing

    def give_awaited(self, ids: Sequence[TaskId], found: Rows) -> list[TaskId]:
        """Fill in which tasks others wait for, where that is known; the rest must be read."""
        missing = []
        for id_ in ids:
            row = self._known.get(id_)
            if row is None or row.awaited is None:
                missing.append(id_)
            elif row.awaited:
                found.awaited.add(id_)
        return missing

    def give_agents(self, ids: Sequence[AgentId], found: Rows) -> list[AgentId]:
        """Fill in what is held against agents, where that is known; the rest must be read."""
        missing = []
        for id_ in ids:
            if id_ not in self._agents:
                missing.append(id_)
            elif (agent := self._agents[id_]) is not None:
                found.agents[id_] = agent
        return missing

    def learn_agents(self, ids: Iterable[AgentId], found: Rows) -> None:
        """Remember what is held against agents, and against whom there is nothing."""
        if len(self._agents) > MOST:
            self._agents.clear()
        for id_ in ids:
            self._agents[id_] = found.agents.get(id_)

    def timers_apart(self, owners: Sequence[str]) -> list[str]:
        """Those whose timer may stand in a row of its own."""
        known = self._known
        return [owner for owner in owners if (row := known.get(TaskId(owner))) is None or row.apart]

    def learn_awaited(self, ids: Iterable[TaskId], found: Rows) -> None:
        """Remember which tasks others wait for."""
        for id_ in ids:
            row = self._known.get(id_)
            if row is not None:
                row.awaited = id_ in found.awaited

    def learn_tasks(self, ids: Iterable[TaskId], found: Rows) -> None:
        """Remember the open ones among tasks that were read."""
        for id_ in ids:
            task = found.tasks.get(id_)
            if task is not None and task.state == OPEN:
                row = self._known[id_] = Known(task, lease_known=False)
                row.ready = found.ready.get(id_)
                row.due = found.timers.get(id_)
                row.waits = tuple(found.waits.get(id_, ()))
        self._forget_the_oldest()

    def learn_leases(self, ids: Iterable[TaskId], found: Rows) -> None:
        """Remember leases that were read, and that there are none."""
        for id_ in ids:
            row = self._known.get(id_)
            if row is not None:
                row.lease, row.lease_known = found.leases.get(id_), True

    def note(self, changes: Changes) -> None:
        """Follow what was written."""
        known = self._known
        for task, payload in changes.new_tasks:
            known[task.id] = Known(task, True, payload if len(payload) <= PAYLOAD_MOST else None, False)
        for task, _ in changes.tasks:
            if task.state != OPEN:
                known.pop(task.id, None)
            elif (row := known.get(task.id)) is not None:
                row.task = task
        self._note_places(changes)
        for id_, _ in changes.drop_leases:
            if (row := known.get(id_)) is not None:
                row.lease, row.lease_known = None, True
        for lease in (*changes.leases, *changes.new_leases):
            if (row := known.get(lease.task)) is not None:
                row.lease, row.lease_known = lease, True
        for agent in (*changes.agents, *changes.new_agents):
            self._agents[agent.id] = agent
        for gone in changes.drop_agents:
            self._agents[gone] = None
        if changes.services or changes.new_services:
            self.services = None
        self._forget_the_oldest()

    def _note_places(self, changes: Changes) -> None:
        known = self._known
        for left in changes.drop_ready:
            if (row := known.get(left.task)) is not None:
                row.ready = None
        for ready in changes.new_ready:
            if (row := known.get(ready.task)) is not None:
                row.ready = ready
        for owner in changes.drop_timers:
            if (row := known.get(TaskId(owner))) is not None:
                row.due = None
        with_lease = {lease.task for lease in changes.new_leases}
        for owner, due in changes.timers:
            if (row := known.get(TaskId(owner))) is not None:
                row.apart = row.due is not None or owner not in with_lease
                row.due = due
        self._note_waits(changes)

    def _note_waits(self, changes: Changes) -> None:
        known = self._known
        for wait in changes.drop_waits:
            if (row := known.get(wait.task)) is not None:
                row.waits = tuple(other for other in row.waits if other != wait)
            if (row := known.get(TaskId(wait.target))) is not None:
                row.awaited = None  # others may still wait for it
        for wait in changes.new_waits:
            if (row := known.get(wait.task)) is not None:
                row.waits = tuple(sorted((*row.waits, wait)))
            if (row := known.get(TaskId(wait.target))) is not None:
                row.awaited = True

    def _forget_the_oldest(self) -> None:
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
