"""The protocol of `store/port.py`, held against a transaction: whoever breaks it gets a `Bug` that says how.

A real database would let most of this pass, and the harm would show much later: a decision on a stale row, a deadlock
once in a thousand batches, a task that nobody wakes. Here it shows at once, so the simulator finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allswell.domain.question import Question
from allswell.errors import Bug
from allswell.store.memory.locks import Key, Owner
from allswell.store.memory.tables import Draft
from allswell.store.own_clock import Moved
from allswell.store.port import LOCK_ORDER, Changes, Kind, Wanted

# Under names of their own: every look-up of a member in an enum's class costs as much as a call.
_SPREAD, _RUN, _SERVICE, _AGENT, _QUESTION, _TASK, _LEASE = LOCK_ORDER


class Rules:
    """What one transaction has done so far, as far as it decides what it may do next."""

    def __init__(self, owner: Owner, draft: Draft) -> None:
        self._held = owner.held
        self._draft = draft
        self._asked: dict[Key, bool] = {}
        """Every id that was to be locked, with whether exclusively: what does not exist cannot be held."""
        self._last: Kind | None = None
        self._claimed = ""
        self._picked = False
        self._now_is_stale = False
        self._now_was_read = False

    def check_lock(self, kind: Kind, ids: Sequence[str], *, exclusive: bool, skip: bool) -> None:
        """One call per kind, in the order, and none after a pick."""
        if self._picked:
            raise Bug(f"lock({kind}) after pick: nothing may wait after it")
        last = self._last
        if last is not None and LOCK_ORDER.index(kind) <= LOCK_ORDER.index(last):
            again = "a second time" if kind is last else f"after {last}"
            raise Bug(f"lock({kind}) {again}: the order of locks is {', '.join(LOCK_ORDER)}, each once")
        self._last = kind
        self._now_is_stale = self._now_was_read
        if not skip:
            self._asked.update(dict.fromkeys(((kind, id_) for id_ in ids), exclusive))

    def check_claimed(self, command: str) -> None:
        """Claims are looked up before anything is locked, in their order: their names are locks too."""
        if self._last is not None or self._picked or command < self._claimed:
            raise Bug(f"find_claimed({command}) after a lock, or out of order: two of them could wait in a circle")
        self._claimed = command

    def check_asking(self) -> None:
        """Who asks whom is looked up before anything is locked, and before all claims: it is a lock too."""
        if self._last is not None or self._picked or self._claimed:
            raise Bug("find_asking after a lock or a claim: two of them could wait in a circle")

    def note_now(self) -> None:
        """The clock was read."""
        self._now_was_read = True
        self._now_is_stale = False

    def note_pick(self) -> None:
        """Claimable tasks were picked."""
        self._picked = True

    def check_read(self, wanted: Wanted) -> None:
        """What is read was locked before."""
        draft, held = self._draft, self._held
        for kind, ids in (
            (_SPREAD, wanted.spreads),
            (_RUN, wanted.runs),
            (_SERVICE, wanted.services),
            (_AGENT, wanted.agents),
            (_TASK, wanted.tasks),
            (_TASK, wanted.awaited),
            (_TASK, wanted.payloads),
            (_TASK, wanted.bars),
            (_TASK, wanted.expenses),
            (_TASK, [task for task, _ in wanted.attempts]),
        ):
            for id_ in ids:
                if (kind, id_) not in held:
                    self._must_be_locked(kind, id_, exists=draft.exists(kind, id_))
        for question in wanted.questions:
            row = draft.questions.get(question)
            if row is None or _cover(row) not in self._held:
                self._must_be_locked(_QUESTION, question, exists=row is not None)
        for task in wanted.leases:
            exists = draft.leases.get(task) is not None
            if exists or (_TASK, task) not in self._held:
                self._must_be_locked(_LEASE, task, exists=exists)

    def _must_be_locked(self, kind: Kind, id_: str, *, exists: bool) -> None:
        if (kind, id_) in self._held or (not exists and (kind, id_) in self._asked):
            return
        why = "is not locked"
        if (kind, id_) in self._asked:
            why = "was not among those that lock returned"
        raise Bug(f"a transaction reads {kind} {id_}, which {why}")

    def check_put(self, changes: Changes) -> None:
        """What is made or replaced was to be locked, so that whoever has it is waited for in the order of locks."""
        for kind, ids in (
            (_SERVICE, [service.id for service in changes.new_services]),
            (_AGENT, [agent.id for agent in (*changes.new_agents, *changes.agents)]),
            (_AGENT, changes.drop_agents),
        ):
            for id_ in ids:
                if not self._asked.get((kind, id_), False):
                    self._must_be_alone((kind, id_))

    def check_write(self, changes: Changes) -> None:
        """What is written is held alone; new rows are held by their making."""
        moved = changes.moved or Moved((None, ""))
        if self._now_is_stale:
            raise Bug("write after a lock that came after now: the time of the decision is stale")
        for kind, ids in (
            (_RUN, [run.id for run in changes.runs]),
            (_SERVICE, [service.id for service in changes.services]),
            (_TASK, [task.id for task in (*moved.tasks, *(task for task, _ in changes.tasks))]),
            (_LEASE, [lease.task for lease in (*moved.leases, *changes.leases)]),
            (_LEASE, [task for task, _ in changes.drop_leases]),
            (_SPREAD, changes.drop_spreads),
        ):
            for id_ in ids:
                self._must_be_alone((kind, id_))
        for question in changes.questions:
            if not self._is_alone(_cover(question)):
                self._must_be_alone((_QUESTION, question.id))
        for question in changes.new_questions:
            self._must_be_alone(_cover(question))
        for task in _covered(changes):
            self._must_be_alone((_TASK, task))
        for owner in (*(owner for owner, _ in changes.timers), *changes.drop_timers):
            if not self._is_alone((_RUN, owner)):
                self._must_be_alone((_TASK, owner))
        for wait in changes.new_waits:
            kind = _QUESTION if wait.kind == "question" else _TASK
            if (kind, wait.target) not in self._held:
                raise Bug(f"task {wait.task} would wait for {wait.target}, which is not locked")

    def _is_alone(self, key: Key) -> bool:
        return self._held.get(key, False)

    def _must_be_alone(self, key: Key) -> None:
        if not self._is_alone(key):
            how = "held only as shared" if key in self._held else "not locked"
            raise Bug(f"a transaction writes {key[0]} {key[1]}, which is {how}")


def _cover(question: Question) -> Key:
    """The lock that covers a question: that of what it is about."""
    if question.message is not None:
        return (_QUESTION, str(question.id))
    service = question.service
    return (_TASK, str(question.task)) if service is None else (_SERVICE, service)


def _covered(changes: Changes) -> Iterable[str]:
    """The tasks whose own lock covers what is written."""
    yield from (ready.task for ready in changes.new_ready)
    yield from (ready.task for ready in changes.drop_ready)
    yield from (wait.task for wait in changes.new_waits)
    yield from (wait.task for wait in changes.drop_waits)
    yield from (bar.task for bar in changes.new_bars)
    yield from (row.task for row in changes.expenses)
    yield from (lease.task for lease in changes.new_leases)
    yield from (task for task, _ in changes.drop_leases)
    yield from (attempt.task for attempt in changes.new_attempts)
    yield from (attempt.task for attempt in changes.late_attempts)
