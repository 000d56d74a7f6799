"""Any number of tasks, handed over in parcels: all are looked at before the first is.

So a mistake in task 900,000 leaves nothing behind. A parcel is accepted whole or not at all. Of very many, no more than
a parcel is held at once: they are gone through twice, once to check and once to submit, and kept are only the names
that others need and a mark for each key. That works as long as a task needs only those before it; where it needs one
behind it, the order is found among all of them, and they are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from allswell.domain.command import NewTask
from allswell.domain.names import RunId, TaskId
from allswell.domain.submit import check_needs, check_task
from allswell.engine.form import TaskMaker
from allswell.engine.joining import Joining
from allswell.engine.needs import is_id, meant, with_found
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.store.views import Views

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


class Bulk:
    """One submission of any number of tasks."""

    def __init__(
        self,
        maker: TaskMaker,
        views: Views,
        joining: Joining,
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
    text = (
        f"{error}; {before:,} of {total:,} tasks were submitted before that"
        if before
        else f"{error}; none was submitted"
    )
    return Refused(error.code, text, where=error.where) if isinstance(error, Refused) else Unavailable(text)


def _ordered(made: Sequence[NewTask]) -> list[NewTask]:
    """What is needed before what needs it."""
    from graphlib import TopologicalSorter

    of = {new.id: new for new in made}
    graph = {new.id: [need for need in new.needs if need in of] for new in made}
    return [of[id_] for id_ in TopologicalSorter(graph).static_order()]
