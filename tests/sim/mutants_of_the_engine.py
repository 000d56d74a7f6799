"""Planted bugs in locks, reads, consequences, claims, commits and the journal."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from allswell.domain.lease import claim, expiry, holder
from allswell.domain.rules.decide import RULES
from allswell.domain.task import aggregate, fanout, submit
from allswell.domain.task.model import ReadyTask
from allswell.engine import engine, sweeper, unit_of_work
from allswell.store import port
from allswell.store.memory import store as views
from allswell.store.memory import tables, transaction
from allswell.store.port import CommitUnknown, LockKind, RowConflict
from tests.sim.planting import everywhere, mutant

# --- locks and reads --------------------------------------------------------------------------------------------------


@mutant
def lease_is_not_locked() -> Iterator[None]:
    async def take(tx: Any, locks: Any, wanted: Any) -> Any:
        with_tasks = LockKind.TASK in {lock.kind for lock in locks}
        locked = await port.lock_in_turn(
            tx, [lock for lock in locks if not (with_tasks and lock.kind is LockKind.LEASE)]
        )
        locked.setdefault(LockKind.LEASE, locked.get(LockKind.TASK, ()))
        now = await tx.now()
        return now, await tx.read(port.only_locked(wanted, locked))

    with patch.object(transaction, "lock_and_read_in_turn", take):
        yield


@mutant
def clock_is_read_before_the_locks() -> Iterator[None]:
    async def take(tx: Any, locks: Any, wanted: Any) -> Any:
        early = await tx.now()
        locked = await port.lock_in_turn(tx, locks)
        return early, await tx.read(port.only_locked(wanted, locked))

    with patch.object(transaction, "lock_and_read_in_turn", take):
        yield


@mutant
def dependents_are_told_without_their_locks() -> Iterator[None]:
    right = transaction.MemoryTransaction.lock

    async def lock(self: Any, kind: Any, ids: Any, **how: Any) -> Any:
        if kind is LockKind.TASK and self.owner.held and all(key[0] is LockKind.SPREAD for key in self.owner.held):
            return list(ids)
        return await right(self, kind, ids, **how)

    with patch.object(transaction.MemoryTransaction, "lock", lock):
        yield


@mutant
def awaited_is_not_read() -> Iterator[None]:
    right = transaction.MemoryTransaction._read

    def read(self: Any, wanted: Any) -> Any:
        rows = right(self, wanted)
        rows.awaited.clear()
        return rows

    with patch.object(transaction.MemoryTransaction, "_read", read):
        yield


@mutant
def waiter_within_a_batch_is_overlooked() -> Iterator[None]:
    with patch.object(unit_of_work.UnitOfWork, "_enter_waits", lambda *_: None):
        yield


@mutant
def picked_rows_are_not_read_again() -> Iterator[None]:
    """What was seen ready is handed out, even if someone was quicker between the look and the lock."""
    right = unit_of_work._load

    async def load(tx: Any, book_: Any, picked: Any, *, bars: bool) -> None:
        await right(tx, book_, picked, bars=bars)
        for id_ in picked:
            known = book_.cases[id_]
            if known.ready is None and known.task.state == "open":
                ready = ReadyTask(id_, known.task.lane, 0)
                book_.cases[id_] = replace(known, ready=ready, waits=())

    with everywhere("_load", load, unit_of_work):
        yield


# --- consequences -----------------------------------------------------------------------------------------------------


@mutant
def spread_is_dropped_too_early() -> Iterator[None]:
    right = transaction.MemoryTransaction.find_waiting

    async def find_waiting(self: Any, target: str, limit: int) -> Any:
        return list(await right(self, target, limit))[:1]

    with patch.object(transaction.MemoryTransaction, "find_waiting", find_waiting):
        yield


@mutant
def run_spread_ends_after_one_chunk() -> Iterator[None]:
    right = RULES[fanout.EndTasksOfRun]

    def hasty(situation: Any, command: Any) -> Any:
        decision = right.decide(situation, command)
        decision.worked_off = (command.spread.id,)
        return decision

    with patch.dict(RULES, {fanout.EndTasksOfRun: replace(right, decide=hasty)}):
        yield


@mutant
def skip_stops_at_the_first_level() -> Iterator[None]:
    right = fanout.need_ended

    def need_ended(*given: Any) -> Any:
        out = right(*given)
        if out.case.task.state == "skipped":
            out.spread = None
        return out

    with everywhere("need_ended", need_ended, fanout):
        yield


@mutant
def split_forgets_a_subtask() -> Iterator[None]:
    right = fanout.need_ended

    def need_ended(case_: Any, spread: Any, *more: Any) -> Any:
        return right(case_, replace(spread, replaced_by=spread.replaced_by[:-1]), *more)

    with everywhere("need_ended", need_ended, fanout):
        yield


@mutant
def failed_need_counts_as_done() -> Iterator[None]:
    right = fanout.need_ended

    def need_ended(case_: Any, spread: Any, *more: Any) -> Any:
        outcome = "done" if spread.outcome == "failed" else spread.outcome
        return right(case_, replace(spread, outcome=outcome), *more)

    with everywhere("need_ended", need_ended, fanout):
        yield


# --- handing out ------------------------------------------------------------------------------------------------------


@mutant
def bars_are_ignored() -> Iterator[None]:
    right = transaction.MemoryTransaction._read

    def read(self: Any, wanted: Any) -> Any:
        rows = right(self, wanted)
        rows.bars.clear()
        return rows

    pick = transaction.MemoryTransaction.pick

    async def pick_any(self: Any, lanes: Any, count: int, agent: Any, outside: Any = ()) -> Any:
        return await pick(self, lanes, count, None, outside)

    with (
        patch.object(transaction.MemoryTransaction, "_read", read),
        patch.object(transaction.MemoryTransaction, "pick", pick_any),
    ):
        yield


@mutant
def parked_service_is_handed_out() -> Iterator[None]:
    right = claim.open_lanes

    def open_lanes(claim_: Any, lanes: Any, parked: Mapping[str, Any], now: Any) -> Any:
        return right(claim_, lanes, {}, now)

    with everywhere("open_lanes", open_lanes, unit_of_work):
        yield


@mutant
def rank_is_reversed() -> Iterator[None]:
    with everywhere("rank", lambda priority, at, _: (priority << 42) | (-at & ((1 << 42) - 1)), submit):
        yield


@mutant
def repeated_claim_is_not_recognised() -> Iterator[None]:
    with everywhere("_given_before", lambda *_: [], claim):
        yield


@mutant
def question_does_not_hold_the_task() -> Iterator[None]:
    right = aggregate.ask

    def ask(out: Any, asked: Any, now: Any, *, wait: bool = True) -> Any:
        question = right(out, asked, now, wait=False)
        if out.case.lease is None:
            out.case = aggregate.requeue(out.case, now)
        return question

    with everywhere("ask", ask, expiry, holder):
        yield


# --- commits and the journal ------------------------------------------------------------------------------------------


def _commit(planted: Callable[[Any], bool]) -> contextlib.AbstractContextManager[None]:
    async def commit(store: Any, work: Any, *, durable: bool = True, **_: Any) -> Any:
        done: list[Any] = []

        async def remember(tx: Any) -> Any:
            done.append(await work(tx))
            return done[-1]

        while True:
            try:
                return await store.transact(remember, durable=durable)
            except (CommitUnknown, RowConflict) as error:
                if planted(error):
                    return done[-1]

    return everywhere("commit", commit, engine, sweeper)


@mutant
def unknown_commit_is_taken_for_done() -> Iterator[None]:
    with _commit(lambda error: isinstance(error, CommitUnknown)):
        yield


@mutant
def unknown_commit_is_taken_for_undone() -> Iterator[None]:
    with _commit(lambda _: False):
        yield


@mutant
def conflict_is_not_decided_anew() -> Iterator[None]:
    with everywhere("CONFLICTS_MOST", 1, unit_of_work):
        yield


@mutant
def journal_reads_by_id_alone() -> Iterator[None]:
    def journal(self: Any, after: Any, limit: int) -> Any:
        later = [entry for entry in self._entries if entry.position.id > after.id]
        return sorted(later, key=lambda entry: entry.position.id)[:limit]

    with patch.object(tables.Database, "journal", journal):
        yield


@mutant
def journal_does_not_wait_for_those_under_way() -> Iterator[None]:
    def journal(self: Any, after: Any, limit: int) -> Any:
        return [entry for entry in self._entries if entry.position > after][:limit]

    with patch.object(tables.Database, "journal", journal):
        yield


@mutant
def cursor_moves_before_the_handler_has_returned() -> Iterator[None]:
    right = views.MemoryViews.journal

    async def journal(self: Any, after: Any, limit: int) -> Any:
        found = await right(self, after, limit)
        if found:
            last = found[-1].position
            for name, position in self.database.cursors.items():
                if position == after:
                    self.database.cursors[name] = last
        return found

    with patch.object(views.MemoryViews, "journal", journal):
        yield


@mutant
def need_that_ended_before_is_overlooked() -> Iterator[None]:
    right = submit.accept

    def accept(new: Any, lane: Any, run: Any, needed: Any, *rest: Any) -> Any:
        ended = {id_: replace(task, state="done") for id_, task in needed.items() if task.state == "failed"}
        return right(new, lane, run, {**needed, **ended}, *rest)

    with everywhere("accept", accept, submit):
        yield


# --- batches in parallel ----------------------------------------------------------------------------------------------


@mutant
def batches_that_name_the_same_are_sent_at_once() -> Iterator[None]:
    """Both fences of a repeated claim are down: the batches do not wait for each other, nor for the claim's lock."""

    @transaction._statement
    async def find_claimed(self: Any, command: Any) -> Any:
        return list(self._base.tables.claimed.get(command, ()))

    with (
        patch.object(unit_of_work.BatchPlan, "meets", lambda *_: False),
        patch.object(transaction.MemoryTransaction, "find_claimed", find_claimed),
    ):
        yield
