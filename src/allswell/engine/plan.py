"""Which rows a batch will touch, as the rules of its commands say, so that all can be locked in one order.

What it says of two batches is also what keeps their commands in order (`meets`). Locks alone would not do: two units of
work at once are decided in whichever order the locks are got, and something that does not exist yet has no lock. Of two
submits, the second of which needs the first one's task, the second would be refused; a claim that is repeated with its
id would be granted twice. A plan does not change, so that a thread may decide by it while others are compared with it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, assert_never, cast

from allswell.domain.command import Command
from allswell.domain.decide import names_of
from allswell.domain.names import CommandId, Millis, RunId, TaskId, can_name
from allswell.domain.rule import LaneKey, Names, Rule, Search
from allswell.domain.situation import Situation
from allswell.store.port import Kind, Lock, Rows, Transaction, Wanted

Id = TypeVar("Id", bound=str)
_TASKS = ("tasks", "held", "free", "leases", "made")
"""The fields of `Names` that name tasks."""
_LOOKED_FOR = ("searches", "runs_of", "perhaps_runs_of")


def ordered(ids: Collection[Id]) -> list[Id]:
    """In the one order of locking, each once; an id that nothing can have is left out, and so names nothing."""
    if not ids:
        return []
    each = dict.fromkeys(ids)  # not a set: most come in order already, and are sorted at once then
    try:
        if "".join(each).isprintable():  # all of them at once: nearly always so
            return sorted(each)
    except TypeError:
        pass
    return sorted(filter(can_name, each))


class Plan:
    """Every row that the commands of a batch name, known before anything is locked."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.rules: list[Rule[Any]] = []
        self.found: dict[Search, Sequence[str]] = {}
        self.runs_found: dict[TaskId, RunId] = {}
        self._all: dict[str, dict[Any, None]] = {field: {} for field in Names.__annotations__}
        """By the fields of `Names`: what all commands together name."""
        for rule, names in names_of(commands):
            self.rules.append(rule)
            self._add(names)

    def _add(self, names: Names) -> None:
        for field, ids in cast("Mapping[str, Collection[Any]]", names).items():
            known = self._all[field]
            for id_ in ids:
                known[id_] = None

    @property
    def lanes(self) -> Collection[LaneKey]:
        """The lanes of the tasks that are to be made."""
        return self._all["lanes"]

    @property
    def shares_runs(self) -> bool:
        """Whether its runs are locked so that others may read them too: then none of them may change."""
        return not self._all["runs"]

    def _named(self, *fields: str) -> list[Any]:
        """The ids that stand in any of these fields, in the one order of locking."""
        filled = [ids for field in fields if (ids := self._all[field])]
        return ordered(filled[0] if len(filled) == 1 else [*chain(*filled)])

    def meets(self, other: Plan) -> bool:
        """Whether both name the same thing."""
        mine, its = self._all, other._all
        runs_apart = mine["runs"].keys().isdisjoint((*its["runs"], *its["runs_shared"]))
        runs_apart = runs_apart and its["runs"].keys().isdisjoint(mine["runs_shared"])
        tasks = {id_ for field in _TASKS for id_ in mine[field]}
        return not (
            runs_apart
            and all(tasks.isdisjoint(its[field]) for field in _TASKS)
            and mine["services"].keys().isdisjoint(its["services"])
            and mine["questions"].keys().isdisjoint(its["questions"])
            and mine["searches"].keys().isdisjoint(its["searches"])
        )

    async def look(self, tx: Transaction, *, careful: bool) -> Plan:
        """Look for what the rules want to have found, and for the runs of tasks: the plan that names it too.

        `careful`: it was decided before, and did not come to an end; so whatever may be concerned is.
        """
        if not any(self._all[field] for field in _LOOKED_FOR):
            return self
        plan: Plan = copy.copy(self)
        plan._all = {field: dict(ids) for field, ids in self._all.items()}
        await plan._look(tx, careful=careful)
        return plan

    async def _look(self, tx: Transaction, *, careful: bool) -> None:
        if self._all["searches"]:
            # In order: two units of work that look for the same claims must not wait for each other in a circle.
            searches = sorted(search for search in self._all["searches"] if can_name(search.of))
            self.found = {search: await _find(tx, search) for search in searches}
            for command, rule in zip(self.commands, self.rules, strict=True):
                if rule.found is not None:
                    self._add(rule.found(command, self.found))
        tasks = self._named("runs_of", "perhaps_runs_of") if careful else self._named("runs_of")
        if tasks:
            self.runs_found = await tx.find_runs(tasks)
            self._add(Names(runs=self.runs_found.values()))

    async def take(self, tx: Transaction, *, careful: bool) -> tuple[Millis, Rows]:
        """Lock all of it, in order, and read what exists of it. New tasks are looked for only with care."""
        runs, held = self._named("runs", "runs_shared"), self._named("held", "free")
        tasks = self._named("tasks", "held", "free", "made") if careful else self._named("tasks", "held", "free")
        wanted = Wanted(
            runs=runs,
            services=self._named("services"),
            agents=self._named("agents"),
            questions=self._named("questions"),
            tasks=tasks,
            leases=self._named("held", "free", "leases"),
            awaited=held,
            payloads=self._named("payloads"),
            bars=self._named("bars"),
            expenses=self._named("expenses"),
            whole=True,
        )
        locks = [
            Lock(Kind.RUN, runs, shared=self.shares_runs),
            Lock(Kind.SERVICE, wanted.services),
            Lock(Kind.AGENT, wanted.agents),
            Lock(Kind.QUESTION, wanted.questions),
            Lock(Kind.TASK, tasks, skip=bool(self._all["free"])),
            Lock(Kind.LEASE, wanted.leases),
        ]
        locks = [lock for lock in locks if lock.ids]
        if not locks and self._all["made"]:
            wanted.tasks = self._named("made")
            locks = [Lock(Kind.TASK, wanted.tasks, fresh=True)]
        return await tx.take(locks, wanted)

    def reads(self, situation: Situation) -> Wanted | None:
        """What only the rows themselves tell to read; None: nothing."""
        wanted = [
            more
            for command, rule in zip(self.commands, self.rules, strict=True)
            if rule.reads is not None and (more := rule.reads(command, situation)) is not None
        ]
        if not wanted:
            return None
        return Wanted(
            attempts=[attempt for more in wanted for attempt in more.attempts],
            questions=[question for more in wanted for question in more.questions],
        )


async def _find(tx: Transaction, search: Search) -> Sequence[str]:
    match search.what:
        case "asking":
            return await tx.find_asking()
        case "claimed":
            return await tx.find_claimed(CommandId(search.of))
        case "held":
            return await tx.find_held(RunId(search.of), search.after, search.most)
        case "leases":
            return await tx.find_leases(search.after, search.most)
        case "open":
            return await tx.find_open(RunId(search.of), search.most)
        case "questions":
            return await tx.find_questions(TaskId(search.of))
        case "target":
            return await tx.find_target(TaskId(search.of))
        case "waiting":
            return await tx.find_waiting(search.of, search.most)
        case _:
            assert_never(search.what)
