"""One batch of commands: which rows it will touch, and its way from the locks to the commit.

Look for what the rules want to have found, lock every row that the commands name (kind by kind, sorted), read the clock
and the rows, have the core decide the commands in their order, write; then pick claimable tasks for the claims (nothing
waits after that), have the core decide who gets them, write. The order is the whole art; `store/port.py` says why.

Nothing is decided here, and no command is known by its name: what one locks and reads, its rule says
(domain/rules/rule.py).
Each command gets its own answer. A refused one disturbs no other: a decision changes nothing until it is entered.

What two plans say is also what keeps their commands in order (`meets`). Locks alone would not do: two units of work at
once are decided in whichever order the locks are got, and something that does not exist yet has no lock. Of two
submits, the second of which needs the first one's task, the second would be refused; a claim that is repeated with its
id would be granted twice. A plan does not change, so that a thread may decide by it while others are compared with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, assert_never, cast

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, CommandId, Millis, RunId, TaskId, can_name
from allswell.domain.lease.claim import ClaimResult, Granted, HandOut, open_lanes, outside_shut_runs
from allswell.domain.rules.command import Claim, Command
from allswell.domain.rules.decide import decide, names_of
from allswell.domain.rules.rule import ASKING, AwaitedRequest, Decision, LaneKey, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.task.aggregate import RunUnread
from allswell.engine.unit_of_work import CommitEffects, UnitOfWork
from allswell.errors import AllswellError, Bug
from allswell.store.port import Lock, LockKind, RowConflict, RowRequest, Rows, Transaction

Id = TypeVar("Id", bound=str)
Placed = tuple[int, Claim]
"""A claim, and where in its batch it stands."""
_TASKS = ("tasks", "held", "free", "leases", "made")
"""The fields of `ReadSet` that name tasks."""
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


class BatchPlan:
    """Every row that the commands of a batch name, known before anything is locked."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.rules: list[Rule[Any]] = []
        self.found: dict[RowSearch, Sequence[str]] = {}
        self.asking: Sequence[AwaitedRequest] = ()
        self.runs_found: dict[TaskId, RunId] = {}
        self._all: dict[str, dict[Any, None]] = {field: {} for field in ReadSet.__annotations__}
        """By the fields of `ReadSet`: what all commands together name."""
        for rule, names in names_of(commands):
            self.rules.append(rule)
            self._add(names)

    def _add(self, names: ReadSet) -> None:
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

    def meets(self, other: BatchPlan) -> bool:
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

    async def look(self, tx: Transaction, *, careful: bool) -> BatchPlan:
        """Look for what the rules want to have found, and for the runs of tasks: the plan that names it too.

        `careful`: it was decided before, and did not come to an end; so whatever may be concerned is.
        """
        if not any(self._all[field] for field in _LOOKED_FOR):
            return self
        plan: BatchPlan = copy.copy(self)
        plan._all = {field: dict(ids) for field, ids in self._all.items()}
        await plan._look(tx, careful=careful)
        return plan

    async def _look(self, tx: Transaction, *, careful: bool) -> None:
        if self._all["searches"]:
            # In order: two units of work that look for the same claims must not wait for each other in a circle.
            searches = sorted(search for search in self._all["searches"] if can_name(search.of))
            if ASKING in searches:
                searches.remove(ASKING)
                self.asking = await tx.find_asking()
            self.found = {search: await _find(tx, search) for search in searches}
            for command, rule in zip(self.commands, self.rules, strict=True):
                if rule.found is not None:
                    self._add(rule.found(command, self.found))
        tasks = self._named("runs_of", "perhaps_runs_of") if careful else self._named("runs_of")
        if tasks:
            self.runs_found = await tx.find_runs(tasks)
            self._add(ReadSet(runs=self.runs_found.values()))

    async def take(self, tx: Transaction, *, careful: bool) -> tuple[Millis, Rows]:
        """Lock all of it, in order, and read what exists of it. New tasks are looked for only with care."""
        runs, held = self._named("runs", "runs_shared"), self._named("held", "free")
        tasks = self._named("tasks", "held", "free", "made") if careful else self._named("tasks", "held", "free")
        wanted = RowRequest(
            runs=runs,
            services=self._named("services"),
            agents=self._named("agents"),
            health=self._named("health"),
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
            Lock(LockKind.RUN, runs, shared=self.shares_runs),
            Lock(LockKind.SERVICE, wanted.services),
            Lock(LockKind.AGENT, wanted.agents),
            Lock(LockKind.HEALTH, wanted.health),
            Lock(LockKind.QUESTION, wanted.questions),
            Lock(LockKind.TASK, tasks, skip=bool(self._all["free"])),
            Lock(LockKind.LEASE, wanted.leases),
        ]
        locks = [lock for lock in locks if lock.ids]
        if not locks and self._all["made"]:
            wanted.tasks = self._named("made")
            locks = [Lock(LockKind.TASK, wanted.tasks, fresh=True)]
        return await tx.lock_and_read(locks, wanted)

    def reads(self, situation: RowSnapshot) -> RowRequest | None:
        """What only the rows themselves tell to read; None: nothing."""
        wanted = [
            more
            for command, rule in zip(self.commands, self.rules, strict=True)
            if rule.reads is not None and (more := rule.reads(command, situation)) is not None
        ]
        if not wanted:
            return None
        return RowRequest(
            attempts=[attempt for more in wanted for attempt in more.attempts],
            questions=[question for more in wanted for question in more.questions],
        )


async def _find(tx: Transaction, search: RowSearch) -> Sequence[str]:
    match search.what:
        case "claimed":
            return await tx.find_claimed(CommandId(search.of))
        case "held":
            return await tx.find_held(RunId(search.of), search.after, search.limit)
        case "leases":
            return await tx.find_leases(search.after, search.limit)
        case "open":
            return await tx.find_open(RunId(search.of), search.limit)
        case "questions":
            return await tx.find_questions(TaskId(search.of))
        case "target":
            return await tx.find_target(TaskId(search.of))
        case "waiting":
            return await tx.find_waiting(search.of, search.limit)
        case "asking":
            raise Bug("who waits for whom is not found as ids")
        case _:
            assert_never(search.what)


# --- from the locks to the commit -------------------------------------------------------------------------------------


class BatchResult(msgspec.Struct):
    """What a unit of work came to: an answer or an error for each command, and what others should know."""

    answers: list[object]
    news: CommitEffects


async def perform(
    tx: Transaction,
    plan: BatchPlan,
    lanes: Mapping[LaneKey, int],
    rng: Callable[[], float],
    *,
    careful: bool = False,
) -> BatchResult:
    """Have a batch decided; the answers, or the errors, in the order of the commands.

    `careful`: it was tried before, so it may have been done, or rows may be concerned that were not read.
    """
    plan = await plan.look(tx, careful=careful)
    now, rows = await plan.take(tx, careful=careful)
    book = UnitOfWork(now, rows, lanes, plan.found, plan.asking, plan.runs_found, shares_runs=plan.shares_runs)
    if (more := plan.reads(book.situation)) is not None:
        book.add(await tx.read(more))
    answers: list[object] = [None] * len(plan.commands)
    claims: list[Placed] = []
    order: Sequence[int] = range(len(answers))
    if any(rule.last for rule in plan.rules):
        order = sorted(order, key=lambda place: plan.rules[place].last)
    for place in order:
        decision = _decided(book, plan.commands[place], rng() if plan.rules[place].chance else 0.0)
        if decision.claim is not None:
            claims.append((place, decision.claim))
        answers[place] = decision.answer if decision.error is None else decision.error
    if len(claims) < len(plan.commands):  # claims have decided nothing yet
        await book.write(tx)
    if claims:
        await _serve(tx, book, claims, answers)
    return BatchResult(answers, book.news)


def _decided(book: UnitOfWork, command: Command, chance: float = 0.0) -> Decision:
    """What a command comes to, entered; where it is refused nothing is, and the decision is the error alone."""
    try:
        decision = decide(book.situation, command, chance)
        book.enter(decision)
    except AllswellError as error:
        return Decision(error=error)
    except RunUnread as unread:
        raise RowConflict(f"the run of {unread} is concerned too, and was not locked") from unread
    except Exception as error:  # noqa: BLE001 - a bug in one decision must not take its neighbours along
        bug = Bug(f"deciding {type(command).__name__} failed: {error!r}")
        bug.__cause__ = error
        return Decision(error=bug)
    return decision


# --- claims, which come last ------------------------------------------------------------------------------------------


async def _serve(tx: Transaction, book: UnitOfWork, claims: Sequence[Placed], answers: list[object]) -> None:
    """Hand out tasks: first those that a claim names, then, for all others, what the store picks."""
    lanes, services = await tx.lanes()
    named: list[tuple[int, Claim, list[int]]] = []
    groups: dict[tuple[tuple[int, ...], tuple[RunId, ...]], list[Placed]] = {}
    first: dict[str, int] = {}
    repeated: list[tuple[int, int]] = []
    for place, claim in claims:
        if claim.id != NO_COMMAND and first.setdefault(claim.id, place) != place:
            repeated.append((place, first[claim.id]))  # it came twice in this batch
            continue
        among = open_lanes(claim, lanes, services, book.now)
        bounded = outside_shut_runs(claim, services, book.now)
        if bounded.task is not None:
            named.append((place, bounded, among))
        else:
            groups.setdefault((tuple(among), bounded.outside), []).append((place, bounded))
    if named:
        await _serve_named(tx, book, named, answers)
    for (open_to_all, outside), members in groups.items():
        await _serve_from(tx, book, open_to_all, outside, members, answers)
    for place, earlier in repeated:
        answers[place] = answers[earlier]


async def _serve_named(
    tx: Transaction, book: UnitOfWork, claims: Sequence[tuple[int, Claim, list[int]]], answers: list[object]
) -> None:
    """Serve the claims that name their task; its rows were locked with all others."""
    there = {claim.task: None for _, claim, _ in claims if claim.task is not None and claim.task in book.cases}
    await _load(tx, book, [*there], bars=True)
    for place, claim, among in claims:
        decision = _decided(book, HandOut(claim, () if claim.task is None else (claim.task,), among, key=claim.key))
        answers[place] = decision.error if decision.error is not None else _handed(decision).granted
    await book.write(tx)


async def _serve_from(
    tx: Transaction,
    book: UnitOfWork,
    among: tuple[int, ...],
    outside: tuple[RunId, ...],
    claims: Sequence[Placed],
    answers: list[object],
) -> None:
    """Claims that may be served from the same lanes share one pick."""
    given: dict[int, list[Granted]] = {}
    for place, _ in claims:
        answers[place] = given[place] = []
    agents = {claim.agent for _, claim in claims}
    alone = claims[0][1].agent if len(agents) == 1 else None
    left: Sequence[TaskId] = []
    if among:
        left = await tx.pick(among, sum(claim.count for _, claim in claims), alone, outside)
    await _load(tx, book, left, bars=alone is None)
    shared = alone is None
    for place, claim in claims:
        left = _hand_out(book, HandOut(claim, left, among, further=shared, key=claim.key), given[place])
    for place, claim in claims:
        missing = claim.count - len(given[place])
        if missing <= 0 or not shared or not (left or claim.after):
            continue
        more: Sequence[TaskId] = ()
        if left:
            # What is left is barred for this agent; look further down its lanes for it alone.
            await book.write(tx)
            more = [id_ for id_ in await tx.pick(among, missing, claim.agent, outside) if id_ not in book.cases]
            await _load(tx, book, more, bars=False)
        _hand_out(book, HandOut(replace(claim, count=missing), more, among, key=claim.key), given[place])
    await book.write(tx)  # or the next pick would find what this one has handed out


def _hand_out(book: UnitOfWork, command: HandOut, given: list[Granted]) -> Sequence[TaskId]:
    """Have what was picked handed out to one claim; what is left of it for others."""
    decision = _decided(book, command)
    if decision.error is not None:
        raise decision.error
    handed = _handed(decision)
    given += handed.granted
    return handed.left


def _handed(decision: Decision) -> ClaimResult:
    handed = decision.answer
    assert isinstance(handed, ClaimResult)  # noqa: S101 - for the type checker
    return handed


async def _load(tx: Transaction, book: UnitOfWork, picked: Sequence[TaskId], *, bars: bool) -> None:
    """Read what was picked, and who may not have it: needed only where the pick was not for one agent alone."""
    if not picked:
        return
    fresh = [id_ for id_ in picked if id_ not in book.cases]
    book.add(await tx.read(RowRequest(tasks=fresh, payloads=picked, bars=picked if bars else (), whole=True)))
    runs = {run: None for id_ in picked if (run := book.cases[id_].task.run) is not None}
    if runs:
        book.see_runs(await tx.runs(list(runs)))
