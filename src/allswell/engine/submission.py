"""From what a caller says of a new task to the task as the core takes it: ids, policies, durations, JSON text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.duration import parse
from allswell.domain.ids import Millis, RunId, TaskId, can_name
from allswell.domain.rules.command import NewTask
from allswell.domain.run.run import Run
from allswell.domain.task.model import DEFAULT, Policy, State, Task, TaskFilter
from allswell.domain.task.resubmit import ResubmittedTask
from allswell.domain.task.submit import check_name, check_needs, check_task
from allswell.domain.values import command_of, nearest, to_json
from allswell.engine.budget import money
from allswell.engine.ids import SPELLED, Ids, run_for_key, task_for_key
from allswell.engine.lookup import find_run, find_task
from allswell.errors import AWAY, AllswellError, Refused, Unavailable, unavailable_outward
from allswell.store.views import Views


class SubmissionFields(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """What a caller may say of a new task; what is `Any` here is looked at by name."""

    name: str
    payload: Any = None
    role: str = ""
    priority: int = 0
    services: Any = ()
    needs: Any = ()
    barred: Any = ()
    run: RunId | None = None
    not_before: Millis | None = None
    critical: bool = False
    if_need_fails: Literal["skip", "run"] = "skip"
    policy: Any = None
    timeout: Any = None
    idle: Any = None
    retries: Any = None
    max_cost_usd: Any = None
    max_tokens: Any = None
    verify: Any = None
    key: Any = None


def _listed(value: object, where: str) -> tuple[Any, ...]:
    """A list of names without repetitions, in order; a string is not a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Refused("bad_field", f"{where} must be a list", where=where)
    names = []
    for name in value:
        if not isinstance(name, str):
            raise Refused("bad_field", f"{where} must be a list of names, and {name!r} is not", where=where)
        names.append(name)
    return tuple(dict.fromkeys(names))


def _what_is_wrong(given: Mapping[str, Any], place: int, error: msgspec.ValidationError) -> Refused:
    """The error for a task that could not be read, in words of the caller's."""
    wrong = _wrong_form(given, place, error)
    wrong.place = place
    return wrong


def _wrong_form(given: Mapping[str, Any], place: int, error: msgspec.ValidationError) -> Refused:
    name = given.get("name")
    if not isinstance(name, str):
        return Refused("bad_name", f"task number {place + 1} has no name", where="name")
    for field in given:
        if field not in SubmissionFields.__struct_fields__:
            near = nearest(str(field), SubmissionFields.__struct_fields__)
            hint = f"; did you mean {near!r}?" if near else ""
            return Refused("unknown_field", f"a task has no field {field!r}{hint}", where=str(field))
    return Refused("bad_field", f"task {name!r}: {error}", where=name)


class TaskMaker:
    """Makes tasks of forms, with the ids and the policies of one watch."""

    def __init__(self, ids: Ids, policies: Mapping[str, Policy]) -> None:
        self._ids = ids
        self._policies = policies
        self._default = policies.get("", DEFAULT)

    def _new_task(self, form: SubmissionFields) -> NewTask:
        name, key = form.name, form.key
        return NewTask(
            self._ids.task() if key is None else task_for_key(str(key)),
            name,
            form.run,
            form.role,
            # Sorted: one lane, however they were listed.
            tuple(sorted(_listed(form.services, f"services of {name!r}"))) if form.services != () else (),
            form.priority,
            _listed(form.needs, f"needs of {name!r}") if form.needs != () else (),
            _listed(form.barred, f"barred of {name!r}") if form.barred != () else (),
            "null" if form.payload is None else to_json(form.payload, f"payload of {name!r}"),
            form.not_before,
            form.critical,
            form.if_need_fails,
            self._policy(form),
            key is not None,
        )

    def _policy(self, form: SubmissionFields) -> Policy:
        """The task's own policy, or its role's, or the default; with what the task sets by itself."""
        if form.policy is None:
            policy = self._policies.get(form.role, self._default)
        else:
            policy = msgspec.convert(msgspec.to_builtins(form.policy), Policy)
        if form.timeout is form.idle is form.retries is form.max_cost_usd is form.max_tokens is form.verify is None:
            return policy
        changed: dict[str, Any] = {}
        if form.timeout is not None:
            changed["timeout"] = parse(form.timeout, where="timeout")
        if form.idle is not None:
            changed["idle"] = parse(form.idle, where="idle")
        if form.max_cost_usd is not None:
            changed["max_cost"] = money(msgspec.convert(form.max_cost_usd, float), "max_cost_usd")
        if form.max_tokens is not None:
            changed["max_tokens"] = msgspec.convert(form.max_tokens, int)
        if form.verify is not None:
            changed["verify"] = command_of(form.verify, "verify")
        if form.retries is not None:
            retries = msgspec.convert(form.retries, int)
            changed["retry"] = msgspec.structs.replace(policy.retry, retries=retries)
        return msgspec.structs.replace(policy, **changed)

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._policies.get(role, self._default)

    def new_tasks(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings; their needs stand as they were named."""
        made = []
        for place, given in enumerate(tasks):
            try:
                made.append(
                    self._new_task(msgspec.convert(given if isinstance(given, dict) else dict(given), SubmissionFields))
                )
            except msgspec.ValidationError as error:
                raise _what_is_wrong(given, place, error) from None
            except Refused as refused:
                refused.place = place
                raise
        return tuple(made)


# Which run a new task joins: the one that is open under a name, or else a new one.
#
# A name stands for one open run at a time. The id of a new run follows from its name and from the last run that had it,
# so that two who open "night" in the same moment open the same run. Nothing is opened before all that is to be
# submitted has been looked at: a mistake leaves no empty run behind.


class RunLookup:
    """The runs that tasks which are handed over together join; each is looked up once."""

    def __init__(self, views: Views, timeout: int | None) -> None:
        self._views = views
        self._timeout = timeout
        self._runs: list[Run] | None = None
        self.found: dict[str, RunId] = {}
        """Every run by what it was called."""
        self.missing: dict[str, str] = {}
        """Those that have to be opened, and under which keys."""

    async def find(self, text: str) -> RunId:
        """The id of the run that a name or an id means; that of a new one where no open run has this name."""
        if text not in self.found:
            self.found[text] = await self._look(text)
        return self.found[text]

    async def _look(self, text: str) -> RunId:
        if self._runs is None:
            self._runs = await self._views.view_runs()
        named = [run for run in self._runs if run.name == text]
        if text.startswith("r_") or any(run.ended_at is None for run in named):
            return await find_run(self._views, text)
        check_name(text, "run")
        key = f"{text}\0{named[0].id if named else ''}"
        self.missing[text] = key
        return run_for_key(key)

    def check(self) -> None:
        """Refuse a timeout that no run could get."""
        if self._timeout is not None and not self.found:
            raise Refused("no_run", "a run_timeout is a run's, and no task names a run", where="run_timeout")

    async def open(self, open_run: Callable[[str, int | None, str], Awaitable[RunId]]) -> None:
        """Open the runs that are new, each with its name, its timeout and its key."""
        for name, key in self.missing.items():
            await open_run(name, self._timeout, key)


# Which task is meant where a need is named: by its id, as a fellow, or as the only task of that name.
#
# In this order. An id is what a store has under it. Fellows are tasks that are handed over together; the first of a
# name is meant. Otherwise it is the only task in the store that has the name, open or ended; if there are several, or
# none, the error lists them, or names the nearest.

_ID = re.compile(f"t_{SPELLED}")


async def is_id(views: Views, need: str) -> bool:
    """Whether the store has a task under this id."""
    return need.startswith("t_") and can_name(need) and await views.view_task(TaskId(need)) is not None


async def meant(views: Views, need: str, fellows: Mapping[str, TaskId]) -> TaskId:
    """The task that a need names; `Refused` if none has the name, or more than one."""
    if await is_id(views, need):
        return TaskId(need)
    return fellows[need] if need in fellows else await find_task(views, need, "needs")


async def with_ids(views: Views, tasks: Sequence[NewTask]) -> tuple[NewTask, ...]:
    """Tasks that are handed over in one piece, with ids where names stood.

    What is spelled as an id is not looked for: if there is no such task, the core says so, and refuses them all.
    """
    own = {new.id for new in tasks}
    fellows: dict[str, TaskId] = {}
    if len(tasks) > 1:  # one that comes alone may need an older task of its name
        for new in tasks:
            fellows.setdefault(new.name, new.id)
    found: dict[str, TaskId] = {}
    for place, new in enumerate(tasks):
        for need in new.needs:
            if need in found:
                continue
            if need in own or _ID.fullmatch(need):
                found[need] = TaskId(need)
                continue
            try:
                found[need] = await meant(views, need, fellows)
            except Refused as refused:
                if refused.code == "unknown_task" and need.startswith("t_"):
                    found[need] = TaskId(need)
                    continue
                refused.place = place
                raise
    return tuple(with_found(new, found) for new in tasks)


def with_found(new: NewTask, found: Mapping[str, TaskId]) -> NewTask:
    """A task with the ids that were found for its needs."""
    return replace(new, needs=tuple(dict.fromkeys(found[need] for need in new.needs))) if new.needs else new


# Any number of tasks, handed over in parcels: all are looked at before the first is.
#
# So a mistake in task 900,000 leaves nothing behind. A parcel is accepted whole or not at all. Of very many, no more
# than a parcel is held at once: they are gone through twice, once to check and once to submit, and kept are only the
# names that others need and a mark for each key. That works as long as a task needs only those before it; where it
# needs one behind it, the order is found among all of them, and they are held.

Fields = Mapping[str, Any]
PARCEL = 1_000
FEW = 10_000
"""So many tasks are simply held: to look at each twice would take longer."""


class Submitted(msgspec.Struct, frozen=True):
    """What was handed over."""

    count: int
    runs: dict[str, RunId]
    """The runs that were joined, by what each was called."""
    opened: tuple[str, ...]
    """Those of them that are new."""


class BulkSubmission:
    """One submission of any number of tasks."""

    def __init__(
        self,
        maker: TaskMaker,
        views: Views,
        joining: RunLookup,
        *,
        submit: Callable[[Sequence[NewTask]], Awaitable[None]],
        open_run: Callable[[str, int | None, str], Awaitable[RunId]],
        told: Callable[[Sequence[TaskId]], None],
        progress: Callable[[int, int | None], None],
    ) -> None:
        self._maker = maker
        self._views = views
        self._joining = joining
        self._submit = submit
        self._open_run = open_run
        self._told = told
        self._progress = progress
        self._needed: dict[str, TaskId] = {}
        """What was found in the store for names that are needed."""
        self._first: dict[str, int] = {}
        """Names of fellows that are needed, and where the first of each stands."""

    async def submit(self, tasks: Iterable[Fields]) -> Submitted:
        """Look at all of them, then hand them over."""
        few: Sequence[Fields] = list(islice(tasks, FEW + 1))
        if len(few) <= FEW:
            count = await self._submit_held(few)
        else:
            few = ()
            total = await self._survey(tasks)
            count = await (self._submit_held(list(tasks)) if total is None else self._stream(tasks, total))
        return Submitted(count, self._joining.found, tuple(self._joining.missing))

    # --- held ---------------------------------------------------------------------------------------------------------

    async def _submit_held(self, tasks: Sequence[Fields]) -> int:
        made = [await self._joined(new, place) for place, new in enumerate(self._maker.new_tasks(tasks))]
        for place, new in enumerate(made):
            with _placed(place):
                check_task(new)
        fellows: dict[str, TaskId] = {}
        if len(made) > 1:  # one that comes alone may need an older task of its name
            for new in made:
                fellows.setdefault(new.name, new.id)
        found: dict[str, TaskId] = {}
        for place, new in enumerate(made):
            with _placed(place):
                for need in new.needs:
                    if need not in found:
                        found[need] = await meant(self._views, need, fellows)
        made = [with_found(new, found) for new in made]
        check_needs(made)
        self._joining.check()
        await self._joining.open(self._open_run)
        ordered = _ordered(made) if len(made) > PARCEL else made
        for start in range(0, len(ordered), PARCEL):
            await self._send(ordered[start : start + PARCEL], start, len(made))
        if made:
            self._told([new.id for new in made])
        return len(made)

    # --- streamed -----------------------------------------------------------------------------------------------------

    async def _survey(self, tasks: Iterable[Fields]) -> int | None:
        """Look at every task, one after the other; how many there are, or None where they have to be put in order."""
        total, keys = 0, set[int]()
        needy: list[tuple[int, tuple[str, ...]]] = []
        for place, fields in enumerate(tasks):
            with _placed(place):
                (new,) = self._maker.new_tasks([fields])
                check_task(await self._joined(new, place))
                if new.needs:
                    needy.append((place, new.needs))
                if new.keyed:
                    _add_key(keys, new)
            total += 1
            if total % PARCEL == 0:
                self._progress(total, None)
                await asyncio.sleep(0)
        if needy:
            await self._find_first(tasks, {need for _, needs in needy for need in needs})
        for place, needs in needy:
            with _placed(place):
                for need in needs:
                    if need not in self._needed and need not in self._first:
                        self._needed[need] = await meant(self._views, need, {})
        if any(self._first.get(need, -1) >= place for place, needs in needy for need in needs):
            return None
        self._joining.check()
        return total

    async def _find_first(self, tasks: Iterable[Fields], wanted: set[str]) -> None:
        """Where the first task of each name stands that others need; what is an id in the store is not a name."""
        for place, fields in enumerate(tasks):
            name = fields.get("name")
            if isinstance(name, str) and name in wanted and name not in self._first:
                if await is_id(self._views, name):
                    wanted.discard(name)
                else:
                    self._first[name] = place

    async def _stream(self, tasks: Iterable[Fields], total: int) -> int:
        """Hand tasks over in the order in which they stand, no more than a parcel at a time."""
        await self._joining.open(self._open_run)
        known, count, left = dict(self._needed), 0, iter(tasks)
        while some := list(islice(left, PARCEL)):
            made = [await self._joined(new, count + place) for place, new in enumerate(self._maker.new_tasks(some))]
            for new in made:
                if new.name in self._first:
                    known.setdefault(new.name, new.id)
            await self._send([with_found(new, known) for new in made], count, total)
            count += len(made)
            self._told([new.id for new in made])
        return count

    # --- both ---------------------------------------------------------------------------------------------------------

    async def _joined(self, new: NewTask, place: int) -> NewTask:
        """The task with the id of the run that it names."""
        if new.run is None:
            return new
        with _placed(place):
            return replace(new, run=await self._joining.find(new.run))

    async def _send(self, parcel: Sequence[NewTask], before: int, total: int) -> None:
        """One parcel, whole or not at all."""
        try:
            await self._submit(parcel)
        except (Refused, Unavailable) as error:
            if total == 1:
                raise
            raise _with_count(error, before, total) from None
        self._progress(before + len(parcel), total)


@contextmanager
def _placed(place: int) -> Iterator[None]:
    """What is refused in here is refused because of this task."""
    try:
        yield
    except Refused as error:
        error.place = place
        raise


def _add_key(keys: set[int], new: NewTask) -> None:
    """Refuse a key that another task has."""
    mark = hash(new.id)
    if mark in keys:
        raise Refused("duplicate_id", f"{new.name} and a task before it have the same key", where="key")
    keys.add(mark)


def _with_count(error: Refused | Unavailable, before: int, total: int) -> AllswellError:
    """The same error, saying how much was accepted before it."""
    count = f"{before:,} of {total:,} tasks were submitted before that" if before else "none was submitted"
    text = f"{error}; {count}"
    if isinstance(error, Refused):
        return Refused(error.code, text, where=error.where)
    return unavailable_outward(text, outward=f"{error.outward or AWAY}; {count}")


def _ordered(made: Sequence[NewTask]) -> list[NewTask]:
    """What is needed before what needs it."""
    from graphlib import TopologicalSorter

    of = {new.id: new for new in made}
    graph = {new.id: [need for need in new.needs if need in of] for new in made}
    return [of[id_] for id_ in TopologicalSorter(graph).static_order()]


# Finding what is handed over again with an ended task: who was skipped because of it, and what stands for its needs.
#
# What is found are hints; the rule (domain/task/resubmit.py) holds each to the rows as they then are.

_PAGE = 1_000
_LOOKED_AT = 100_000
"""Skipped tasks that are looked through for those that needed it."""
_TIMES = 1_000
"""Steps from a task to the one that stands for it now."""


async def renewals(
    views: Views, task: TaskId, new_id: Callable[[TaskId], TaskId], *, dependents: bool, run: str | None
) -> tuple[ResubmittedTask, ...]:
    """The task with, if they are wanted, all that were skipped because of it; `new_id` says what one becomes."""
    row = await views.view_task(task)
    if row is None:
        raise Refused("unknown_task", f"there is no task {task}", where="task")
    old = [row.task, *(await _skipped_for(views, row.task, new_id) if dependents else ())]
    together = {one.id: new_id(one.id) for one in old}
    made = []
    for one in old:
        needs = [
            (need, together[need]) if need in together else await _standing_for(views, need) for need in one.spec.needs
        ]
        made.append(
            ResubmittedTask(
                one.id, together[one.id], tuple(needs), RunId(run) if run else one.run, one.role, one.spec.services
            )
        )
    return tuple(made)


async def _skipped_for(views: Views, root: Task, new_id: Callable[[TaskId], TaskId]) -> list[Task]:
    """Who was skipped because of a task, at one remove or several, in an order in which needs come first.

    A task that was retried since is left out, unless by this very command, whose answer was lost.
    """
    skipped: dict[TaskId, Task] = {}
    after = ""
    while len(skipped) < _LOOKED_AT:
        which = TaskFilter(open=False, run=root.run, states=(State.SKIPPED.value,), after=after, limit=_PAGE)
        page = await views.view_tasks(which)
        skipped |= {one.task.id: one.task for one in page if _is_left(one.task, new_id)}
        if len(page) < _PAGE:
            break
        after = page[-1].task.id
    found: dict[TaskId, Task] = {}
    known = {root.id}
    while new := [one for one in skipped.values() if one.id not in known and not known.isdisjoint(one.spec.needs)]:
        found |= {one.id: one for one in new}
        known |= {one.id for one in new}
    return list(found.values())


def _is_left(task: Task, new_id: Callable[[TaskId], TaskId]) -> bool:
    after = task.record.retried_as
    return after is None or after == new_id(task.id)


async def _standing_for(views: Views, need: TaskId) -> tuple[TaskId, ...]:
    """A task, and those that it was handed over as, the last one last."""
    chain = [need]
    for _ in range(_TIMES):
        row = await views.view_task(chain[-1])
        if row is None or row.task.record.retried_as is None:
            break
        chain.append(row.task.record.retried_as)
    return tuple(chain)


def named(made: Sequence[ResubmittedTask]) -> dict[TaskId, TaskId]:
    """The new ids by the old ones."""
    return {one.of: one.id for one in made}
