"""One batch of commands, from locks to commit.

Look for what the rules want to have found, lock every row that the commands name (kind by kind, sorted), read the clock
and the rows, have the core decide the commands in their order, write; then pick claimable tasks for the claims (nothing
waits after that), have the core decide who gets them, write. The order is the whole art; `store/port.py` says why.

Nothing is decided here, and no command is known by its name: what one locks and reads, its rule says (domain/rule.py).
Each command gets its own answer. A refused one disturbs no other: a decision changes nothing until it is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.case import RunUnread
from allswell.domain.claim import Granted, Handed, HandOut, open_lanes, outside_shut_runs
from allswell.domain.command import Claim, Command
from allswell.domain.decide import decide
from allswell.domain.decision import Decision
from allswell.domain.names import NO_COMMAND, RunId, TaskId
from allswell.domain.rule import LaneKey
from allswell.engine.book import Book, News
from allswell.engine.plan import Plan
from allswell.errors import AllswellError, Bug
from allswell.store.port import Conflict, Transaction, Wanted

Placed = tuple[int, Claim]
"""A claim, and where in its batch it stands."""


class Performed(msgspec.Struct):
    """What a unit of work came to: an answer or an error for each command, and what others should know."""

    answers: list[object]
    news: News


async def perform(
    tx: Transaction,
    plan: Plan,
    lanes: Mapping[LaneKey, int],
    draw: Callable[[], float],
    *,
    careful: bool = False,
) -> Performed:
    """Have a batch decided; the answers, or the errors, in the order of the commands.

    `careful`: it was tried before, so it may have been done, or rows may be concerned that were not read.
    """
    plan = await plan.look(tx, careful=careful)
    now, rows = await plan.take(tx, careful=careful)
    book = Book(now, rows, lanes, plan.found, plan.runs_found, shares_runs=plan.shares_runs)
    if (more := plan.reads(book.situation)) is not None:
        book.add(await tx.read(more))
    answers: list[object] = [None] * len(plan.commands)
    claims: list[Placed] = []
    order: Sequence[int] = range(len(answers))
    if any(rule.last for rule in plan.rules):
        order = sorted(order, key=lambda place: plan.rules[place].last)
    for place in order:
        decision = _decided(book, plan.commands[place], draw() if plan.rules[place].chance else 0.0)
        if decision.claim is not None:
            claims.append((place, decision.claim))
        answers[place] = decision.answer if decision.error is None else decision.error
    if len(claims) < len(plan.commands):  # claims have decided nothing yet
        await book.write(tx)
    if claims:
        await _serve(tx, book, claims, answers)
    return Performed(answers, book.news)


def _decided(book: Book, command: Command, chance: float = 0.0) -> Decision:
    """What a command comes to, entered; where it is refused nothing is, and the decision is the error alone."""
    try:
        decision = decide(book.situation, command, chance)
        book.enter(decision)
    except AllswellError as error:
        return Decision(error=error)
    except RunUnread as unread:
        raise Conflict(f"the run of {unread} is concerned too, and was not locked") from unread
    except Exception as error:  # noqa: BLE001 - a bug in one decision must not take its neighbours along
        bug = Bug(f"deciding {type(command).__name__} failed: {error!r}")
        bug.__cause__ = error
        return Decision(error=bug)
    return decision


# --- claims, which come last ------------------------------------------------------------------------------------------


async def _serve(tx: Transaction, book: Book, claims: Sequence[Placed], answers: list[object]) -> None:
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
    tx: Transaction, book: Book, claims: Sequence[tuple[int, Claim, list[int]]], answers: list[object]
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
    book: Book,
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


def _hand_out(book: Book, command: HandOut, given: list[Granted]) -> Sequence[TaskId]:
    """Have what was picked handed out to one claim; what is left of it for others."""
    decision = _decided(book, command)
    if decision.error is not None:
        raise decision.error
    handed = _handed(decision)
    given += handed.granted
    return handed.left


def _handed(decision: Decision) -> Handed:
    handed = decision.answer
    assert isinstance(handed, Handed)  # noqa: S101 - for the type checker
    return handed


async def _load(tx: Transaction, book: Book, picked: Sequence[TaskId], *, bars: bool) -> None:
    """Read what was picked, and who may not have it: needed only where the pick was not for one agent alone."""
    if not picked:
        return
    fresh = [id_ for id_ in picked if id_ not in book.cases]
    book.add(await tx.read(Wanted(tasks=fresh, payloads=picked, bars=picked if bars else (), whole=True)))
    runs = {run: None for id_ in picked if (run := book.cases[id_].task.run) is not None}
    if runs:
        book.see_runs(await tx.runs(list(runs)))
