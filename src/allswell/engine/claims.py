"""The last part of a batch: picking claimable tasks and handing them out. Nothing waits after a pick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from allswell.domain.case import Case
from allswell.domain.claim import fits, grant
from allswell.domain.command import Claim
from allswell.domain.decide import held_to_table
from allswell.domain.lease import Lease
from allswell.domain.names import AgentId, Millis, RunId, TaskId
from allswell.domain.service import ServiceRow, lets_in
from allswell.domain.task import OPEN, Lane, Task, rank_of
from allswell.engine.book import Book
from allswell.errors import Refused
from allswell.store.port import Transaction, Wanted


class Granted(msgspec.Struct, frozen=True, gc=False):
    """A claimed task: the lease, the task as it was claimed, and its payload."""

    lease: Lease
    task: Task
    payload: str
    told_at: Millis
    """The store's clock when this was said: after the lease was granted, where a claim is repeated."""


def open_lanes(claim: Claim, lanes: Sequence[Lane], services: Mapping[str, ServiceRow], now: Millis) -> list[int]:
    """The lanes a claimer may be served from: its roles fit, and every service they need lets it in."""
    closed = {name for name, row in services.items() if not lets_in(row, claim.agent, now)}
    return [lane.id for lane in lanes if fits(claim, lane.role) and closed.isdisjoint(lane.services)]


def given_before(book: Book, claim: Claim, tasks: Sequence[TaskId]) -> list[Case]:
    """What a claim that comes again has been given, and still has."""
    earlier = [
        case
        for id_ in tasks
        if (case := book.cases.get(id_)) is not None
        and case.lease is not None
        and (case.lease.command, case.lease.agent) == (claim.id, claim.agent)
    ]
    return sorted(earlier, key=lambda case: (rank_of(case.task), case.task.id))


async def hand_out(tx: Transaction, book: Book, claims: list[tuple[int, Claim]], answers: list[object]) -> None:
    """Hand out tasks: claims that may be served from the same lanes share one pick."""
    lanes, services = await tx.lanes()
    if any(claim.task is not None for _, claim in claims):
        claims = await _hand_over(tx, book, claims, answers, lambda claim: open_lanes(claim, lanes, services, book.now))
    groups: dict[tuple[tuple[int, ...], tuple[RunId, ...]], list[tuple[int, Claim]]] = {}
    for place, claim in claims:
        answers[place] = []
        among = tuple(open_lanes(claim, lanes, services, book.now))
        groups.setdefault((among, claim.outside), []).append((place, claim))
    given: dict[int, list[Case]] = {place: [] for place, _ in claims}
    for (among, outside), members in groups.items():
        if not among:
            continue
        wanted = sum(claim.count for _, claim in members)
        agents = {claim.agent for _, claim in members}
        alone = members[0][1].agent if len(agents) == 1 else None
        picked = await tx.pick(among, wanted, alone, outside)
        barred = await _load_picked(tx, book, picked, bars=alone is None)
        left = list(picked)
        for place, claim in members:
            left = _serve(book, claim, left, barred, given[place])
        for place, claim in members:
            missing = claim.count - len(given[place])
            if missing > 0 and left and len(agents) > 1:
                # What is left is barred for this agent; look further down its lanes for it alone.
                await book.write(tx)
                more = [id_ for id_ in await tx.pick(among, missing, claim.agent, outside) if id_ not in book.cases]
                _serve(book, claim, more, await _load_picked(tx, book, more, bars=False), given[place])
        await book.write(tx)  # or the next pick would find what this one has handed out
    for place, _ in claims:
        if given[place]:
            answers[place] = grants(book, given[place])


async def _hand_over(
    tx: Transaction,
    book: Book,
    claims: list[tuple[int, Claim]],
    answers: list[object],
    lanes_for: Callable[[Claim], list[int]],
) -> list[tuple[int, Claim]]:
    """Serve the claims that name their task, whose rows were locked with all others; the claims that do not."""
    left = []
    there = {claim.task: None for _, claim in claims if claim.task in book.cases}
    barred = await _load_picked(tx, book, list(there), bars=True)
    for place, claim in claims:
        if claim.task is None:
            left.append((place, claim))
            continue
        answers[place] = []
        case = book.cases.get(claim.task)
        if case is None:
            answers[place] = Refused("unknown_task", f"there is no task {claim.task}", where="task")
            continue
        if case.task.state != OPEN:
            answers[place] = Refused("task_ended", f"task {case.task.name} is already {case.task.state}", where="task")
            continue
        if case.task.lane not in lanes_for(claim):
            continue
        given: list[Case] = []
        _serve(book, claim, [claim.task], barred, given)
        if given:
            answers[place] = grants(book, given)
    await book.write(tx)
    return left


async def _load_picked(
    tx: Transaction, book: Book, picked: Sequence[TaskId], *, bars: bool
) -> Mapping[TaskId, set[AgentId]]:
    """Read what was picked, and who may not have it: needed only where the pick was not for one agent alone."""
    if not picked:
        return {}
    fresh = [id_ for id_ in picked if id_ not in book.cases]
    rows = await tx.read(Wanted(tasks=fresh, payloads=picked, bars=picked if bars else (), whole=True))
    book.take(rows)
    unread = {run: None for id_ in picked if (run := book.cases[id_].task.run) is not None}
    if unread:
        book.seen_runs.update(await tx.runs(list(unread)))
    book.rows.payloads.update(rows.payloads)
    return rows.bars


def _serve(
    book: Book, claim: Claim, offered: list[TaskId], barred: Mapping[TaskId, set[AgentId]], given: list[Case]
) -> list[TaskId]:
    """Give the claimer the best of what is offered; what it may not have stays for the others."""
    left = []
    cases, now, wanted = book.cases, book.now, claim.count
    for id_ in offered:
        if len(given) >= wanted or (barred and claim.agent in barred.get(id_, ())):
            left.append(id_)
            continue
        case = cases[id_]
        if case.ready is None:
            continue  # someone was quicker between our look and our lock
        out = held_to_table(case, grant(case, claim, now, book.run_seen(case.task)))
        book.apply(out)
        if out.answer is not None:
            given.append(out.case)
    return left


def grants(book: Book, cases: Sequence[Case]) -> list[Granted]:
    """What the claimer is told."""
    payloads = book.rows.payloads
    return [
        Granted(case.lease, case.task, payloads[case.task.id], book.now) for case in cases if case.lease is not None
    ]
