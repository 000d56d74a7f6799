"""Rows as this connection last read or wrote them, so that a busy process need not read its own writes.

Valid for as long as nobody else has committed: `PRAGMA data_version` changes with every commit of another connection
and never with one of ours, and it is asked inside each transaction, when the write lock is already held. A rolled-back
transaction empties the cache. What is kept is frozen, so what is handed out cannot be changed behind its back.

Of an open task the whole case is kept: it is what decisions are made on, and they leave the next one
(`RowChanges.cases`).
Whether others wait for the task is the one thing that rows of other tasks tell, so that may be unsure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import filterfalse, islice

from msgspec.structs import replace

from allswell.domain.ids import AgentId, TaskId
from allswell.domain.lease.clock_change import ClockAdjustment
from allswell.domain.lease.model import Agent
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import TaskAggregate
from allswell.domain.task.model import OPEN
from allswell.store.port import RowChanges, Rows

PAYLOAD_MOST = 2_000
"""Characters; a larger payload is read again when it is claimed."""
MOST = 20_000
"""Tasks that are remembered; beyond that the oldest are forgotten."""


class RowCache:
    """The cache of one writing connection."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._cases: dict[TaskId, TaskAggregate] = {}
        self._unsure: set[TaskId] = set()
        """Those of which it is not known whether others wait for them."""
        self._payloads: dict[TaskId, str] = {}
        self._apart: set[str] = set()
        """Those of them whose timer may be in a row of its own; that of the others is in the lease's."""
        self._agents: dict[AgentId, Agent | None] = {}
        """What is held against agents; None: nothing."""
        self.services: dict[str, ServiceRow] | None = None
        """All that anything is or was held against, if that is known."""
        self.lanes_known = False
        """Whether all lanes that there are have been read."""
        self.last: tuple[int, int, ClockAdjustment] | None = None
        """The moment and the number of the newest event, and whether the clock is being settled."""

    def begin(self, version: int) -> None:
        """A transaction begins; if anybody else has committed since the last, nothing is known any more."""
        if version != self._version:
            self.clear()
            self._version = version

    def clear(self) -> None:
        """Forget everything: somebody else has written, or a transaction was rolled back."""
        for known in (self._cases, self._unsure, self._payloads, self._apart, self._agents):
            known.clear()
        self.services = None
        self.lanes_known = False
        self.last = None

    # --- what is known ------------------------------------------------------------------------------------------------

    def tasks(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Which of these tasks are known to exist, and which must be looked for."""
        known = self._cases
        here = [id_ for id_ in ids if id_ in known]
        return (here, []) if len(here) == len(ids) else (here, [id_ for id_ in ids if id_ not in known])

    def leases(self, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Of which of these tasks a lease is known to exist, and which must be looked for."""
        here, unknown = [], []
        for id_ in ids:
            case = self._cases.get(TaskId(id_))
            if case is None:
                unknown.append(id_)
            elif case.lease is not None:
                here.append(id_)
        return here, unknown

    def give_cases(self, ids: Sequence[TaskId], fetched: Rows) -> list[TaskId]:
        """Fill in the tasks that are known, each as a whole; the rest must be read."""
        known = self._cases
        fetched.cases = {id_: known[id_] for id_ in ids if id_ in known}
        return [] if len(fetched.cases) == len(ids) else [id_ for id_ in ids if id_ not in known]

    def give_tasks(self, ids: Sequence[TaskId], fetched: Rows) -> list[TaskId]:
        """Fill in the tasks that are known, row by row; the rest must be read."""
        missing = []
        for id_ in ids:
            case = self._cases.get(id_)
            if case is None:
                missing.append(id_)
                continue
            fetched.tasks[id_] = case.task
            if case.ready is not None:
                fetched.ready[id_] = case.ready
            if case.due is not None:
                fetched.timers[id_] = case.due
            if case.waits:
                fetched.waits[id_] = list(case.waits)
        return missing

    def give_leases(self, ids: Sequence[TaskId], fetched: Rows) -> list[TaskId]:
        """Fill in the leases that are known, unless a whole case has it; the rest must be read."""
        missing = []
        for id_ in ids:
            case = self._cases.get(id_)
            if case is None:
                missing.append(id_)
            elif case.lease is not None:
                fetched.leases[id_] = case.lease
        return missing

    def give_payloads(self, ids: Sequence[TaskId], fetched: Rows) -> list[TaskId]:
        """Fill in the payloads that are known; the rest must be read."""
        known = self._payloads
        fetched.payloads = {id_: known[id_] for id_ in ids if id_ in known}
        return [] if len(fetched.payloads) == len(ids) else [id_ for id_ in ids if id_ not in known]

    def unsure(self, ids: Sequence[TaskId]) -> list[TaskId]:
        """Those of which it must be read whether others wait for them."""
        unsure = [*filterfalse(self._cases.__contains__, ids)]
        return unsure + [id_ for id_ in ids if id_ in self._unsure] if self._unsure else unsure

    def give_awaited(self, ids: Sequence[TaskId], fetched: Rows) -> None:
        """Fill in for which tasks others wait."""
        known = self._cases
        fetched.awaited.update([id_ for id_ in ids if (case := known.get(id_)) is not None and case.awaited])

    def give_agents(self, ids: Sequence[AgentId], fetched: Rows) -> list[AgentId]:
        """Fill in what is held against agents, where that is known; the rest must be read."""
        missing = []
        for id_ in ids:
            if id_ not in self._agents:
                missing.append(id_)
            elif (agent := self._agents[id_]) is not None:
                fetched.agents[id_] = agent
        return missing

    def take_apart(self, owners: Sequence[str]) -> list[str]:
        """Those whose timer may stand in a row of its own; once these are deleted, none does."""
        apart = [*filterfalse(self._cases.__contains__, owners)]
        if self._apart:
            apart += [owner for owner in owners if owner in self._apart and owner in self._cases]
            self._apart.difference_update(apart)
        return apart

    # --- what was read ------------------------------------------------------------------------------------------------

    def learn_tasks(self, ids: Iterable[TaskId], leases: Iterable[TaskId], fetched: Rows) -> None:
        """Remember the open ones among tasks that were read, where it is known who holds them."""
        looked_for = {*leases}
        for id_ in ids:
            task = fetched.tasks.get(id_)
            if task is None or task.state != OPEN or not (id_ in looked_for or id_ in fetched.ready):
                continue
            waits = tuple(fetched.waits.get(id_, ()))
            self._cases[id_] = TaskAggregate(
                task, fetched.leases.get(id_), fetched.ready.get(id_), fetched.timers.get(id_), waits
            )
            self._unsure.add(id_)
            self._apart.add(id_)
        self._forget_the_oldest()

    def learn_awaited(self, ids: Iterable[TaskId], fetched: Rows) -> None:
        """Remember for which tasks others wait."""
        for id_ in ids:
            case = self._cases.get(id_)
            if case is None:
                continue
            self._unsure.discard(id_)
            if case.awaited is not (id_ in fetched.awaited):
                self._cases[id_] = replace(case, awaited=not case.awaited)
            if id_ in fetched.cases:
                fetched.cases[id_] = self._cases[id_]

    def learn_agents(self, ids: Iterable[AgentId], fetched: Rows) -> None:
        """Remember what is held against agents, and against whom there is nothing."""
        if len(self._agents) > MOST:
            self._agents.clear()
        for id_ in ids:
            self._agents[id_] = fetched.agents.get(id_)

    # --- what was written ---------------------------------------------------------------------------------------------

    def note(self, changes: RowChanges) -> None:
        """Follow what was written."""
        if changes.cases:
            self._adopt(changes)
        else:
            self._forget(_touched(changes))
            for lease in changes.leases:
                if (held := self._cases.get(lease.task)) is not None:
                    self._cases[lease.task] = replace(held, lease=lease)
        if changes.new_waits or changes.drop_waits:
            targets = {TaskId(wait.target) for wait in (*changes.new_waits, *changes.drop_waits)}
            self._unsure |= targets & self._cases.keys()
        for agent in (*changes.agents, *changes.new_agents):
            self._agents[agent.id] = agent
        for gone in changes.drop_agents:
            self._agents[gone] = None
        if changes.services or changes.new_services:
            self.services = None

    def _adopt(self, changes: RowChanges) -> None:
        """Remember the cases that decisions have left, if they began with all of the task's rows."""
        known, cases = self._cases, changes.cases
        if self._apart:
            self._apart.difference_update([lease.task for lease in changes.new_leases])
        for task, payload in changes.new_tasks:
            known[task.id] = cases[task.id]
            if len(payload) <= PAYLOAD_MOST:
                self._payloads[task.id] = payload
        if not all(map(known.__contains__, cases)):
            cases = {id_: case for id_, case in cases.items() if id_ in known}
        known.update(cases)
        over = [id_ for id_, case in cases.items() if case.task.state != OPEN or case.agent or case.past]
        self._forget(over)
        self._forget_the_oldest()

    def set_apart(self, timers: Iterable[tuple[str, int]]) -> None:
        """Remember that these timers were put in rows of their own."""
        self._apart.update([owner for owner, _ in timers])

    def _forget(self, ids: Sequence[TaskId]) -> None:
        for id_ in ids:
            self._cases.pop(id_, None)
            self._payloads.pop(id_, None)
        self._unsure.difference_update(ids)
        self._apart.difference_update(ids)

    def _forget_the_oldest(self) -> None:
        if len(self._cases) > MOST:
            self._forget([*islice(self._cases, len(self._cases) - MOST)])


def _touched(changes: RowChanges) -> list[TaskId]:
    """The tasks whose rows are written by one who leaves no cases."""
    return [
        *[task.id for task, _ in changes.new_tasks],
        *[task.id for task, _ in changes.tasks],
        *[ready.task for ready in (*changes.new_ready, *changes.drop_ready)],
        *[TaskId(owner) for owner in changes.drop_timers],
        *[TaskId(owner) for owner, _ in changes.timers],
        *[wait.task for wait in (*changes.new_waits, *changes.drop_waits)],
        *[lease.task for lease in changes.new_leases],
        *[task for task, _ in changes.drop_leases],
    ]
