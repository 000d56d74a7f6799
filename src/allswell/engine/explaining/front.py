"""Screen one: whether all is well, what only a human can decide, what is wrong, who does what, and what comes next.

It is put together from what the other explanations tell (overview, crew, standing, past), so the page, `allswell`
alone, `agents` and `why` cannot disagree. Everything is bounded: a store with a hundred thousand tasks is looked at as
fast as one with a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.lease import Lease
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, RunId, TaskId
from allswell.domain.paying import is_budget, is_for_good, said
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import shut
from allswell.domain.task import State
from allswell.engine.explaining.crew import Crew, Member
from allswell.engine.explaining.crew import look as look_at_crew
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.overview import Overview, look
from allswell.engine.explaining.standing import stand
from allswell.engine.explaining.troubles import Trouble, troubles
from allswell.engine.explaining.waterfall import Waterfall, loose, waterfall
from allswell.engine.explaining.words import clean, quoted
from allswell.store.views import Views

EACH = 100
"""How many open tasks of each state are looked at."""
RUNS = 4
QUESTIONS = 20
TROUBLES = 12
AGENTS = 50
"""Agents on one page."""
AHEAD = 10
_DAY = 86_400_000


class OpenQuestion(msgspec.Struct, frozen=True):
    """An open question with what one must know to answer it."""

    question: Question
    task: TaskRow | None
    waiting: int
    """How many open tasks that were looked at wait for the task it is about."""


class Hand(msgspec.Struct, frozen=True):
    """An agent, and the lease it holds: the clocks that run for it."""

    member: Member
    lease: Lease | None
    outer: Millis | None
    """When the time of its task's run is up."""


class Coming(msgspec.Struct, frozen=True):
    """What happens by itself, when, and to which task."""

    at: Millis
    what: str
    task: str | None = None


class Front(msgspec.Struct, frozen=True):
    """All of screen one."""

    overview: Overview
    spent: Spent
    """Since midnight UTC."""
    questions: tuple[OpenQuestion, ...]
    troubles: tuple[Trouble, ...]
    crew: Crew
    hands: tuple[Hand, ...]
    """The agents on this page."""
    agents: int
    """How many there are."""
    runs: tuple[Waterfall, ...]
    ahead: tuple[Coming, ...]


async def front(views: Views, *, agents_from: int = 0) -> Front:
    """Read screen one; `agents_from` is where its list of agents begins."""
    seen = await look(views)
    now = seen.now
    crew = await look_at_crew(views)
    services = await views.view_services()
    rows = await _open_rows(views, seen)
    runs = await _open_runs(views, rows)
    facts = Facts(now, runs={run.id: run for run in runs}, services=services, rows={row.task.id: row for row in rows})
    facts.agents = {agent.id: agent for agent in await views.view_agents()}
    spent = await views.view_spent("all", (), now - now % _DAY)
    members = sorted(crew.members, key=place)
    return Front(
        seen,
        spent.get("", NOTHING_SPENT),
        await _asked(views, rows),
        tuple(troubles(seen, services, crew.supervisors, rows)[:TROUBLES]),
        crew,
        await _hands(views, members[agents_from : agents_from + AGENTS], facts),
        len(members),
        await _waterfalls(views, rows, runs, now),
        _ahead(rows, facts),
    )


async def _open_rows(views: Views, seen: Overview) -> list[TaskRow]:
    rows: list[TaskRow] = []
    for state in (State.HELD, State.WAITING, State.DELAYED, State.READY):
        if seen.counts.get(state):
            rows += await views.view_tasks(TaskFilter(states=(state.value,), limit=EACH))
    return rows


async def _open_runs(views: Views, rows: Sequence[TaskRow]) -> list[Run]:
    """The runs of these tasks, the newest first."""
    ids = dict.fromkeys(row.task.run for row in rows if row.task.run is not None)
    found = [await views.view_run(RunId(id_)) for id_ in list(ids)[:EACH]]
    return sorted((run for run in found if run is not None), key=lambda run: -run.created_at)


async def _asked(views: Views, rows: Sequence[TaskRow]) -> tuple[OpenQuestion, ...]:
    found: list[OpenQuestion] = []
    for question in (await views.view_questions())[:QUESTIONS]:
        if question.dismissed_at is None:
            task = None if question.task is None else await views.view_task(question.task)
            waiting = sum(1 for row in rows if any(wait.target == question.task for wait in row.waits))
            found.append(OpenQuestion(question, task, waiting))
    return tuple(found)


_PLACES = {"stalled": 0, "quiet": 1, "working": 2}


def place(member: Member) -> tuple[int, int, str]:
    """Those first that something is the matter with, then those that work."""
    holds = member.task is not None
    return (0 if member.misses else 1, _PLACES.get(member.health, 3 if holds else 4), member.agent)


async def _hands(views: Views, members: Sequence[Member], facts: Facts) -> tuple[Hand, ...]:
    ids = tuple(TaskId(member.task) for member in members if member.task is not None)
    found = await views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    rows = {row.task.id: row for row in found}
    hands: list[Hand] = []
    for member in members:
        row = None if member.task is None else rows.get(TaskId(member.task))
        held = row is not None and row.lease is not None
        lease = facts.lease_of(row) if row is not None and held else None
        hands.append(Hand(member, lease, None if row is None else facts.limit_of(row.task)))
    return tuple(hands)


async def _waterfalls(views: Views, rows: Sequence[TaskRow], runs: Sequence[Run], now: Millis) -> tuple[Waterfall, ...]:
    drawn = [await waterfall(views, run, now) for run in (*runs, *await _lately(views, runs, now))[:RUNS]]
    alone = await loose(views, [row for row in rows if row.task.run is None], now)
    return (*drawn, alone) if alone.lanes else tuple(drawn)


async def _lately(views: Views, runs: Sequence[Run], now: Millis) -> list[Run]:
    """The newest runs beside these that were opened since yesterday: in the morning one wants to see the night."""
    seen = {run.id for run in runs}
    return [run for run in await views.view_runs(RUNS) if run.id not in seen and run.created_at > now - _DAY]


def _ahead(rows: Sequence[TaskRow], facts: Facts) -> tuple[Coming, ...]:
    """What happens by itself next, the soonest first."""
    found: list[Coming] = []
    for row in rows:
        far = facts.limit_of(row.task)
        found += [
            Coming(one.at, f"{quoted(row.task.name, 60)}: {one.what}", row.task.id)
            for one in stand(row, facts).next
            if one.at is not None and not one.routine and one.at != far
        ]
    found += [
        Coming(run.limit, f"The run {quoted(run.name, 60)} reaches its deadline")
        for run in facts.runs.values()
        if run.limit is not None and run.ended_at is None
    ]
    for service in facts.services.values():
        closed = shut(service, facts.now)
        if closed is not None and closed.until is not None:
            again = f"{clean(service.id, 60)} can be used again"
            if is_budget(service.id):
                again = f"A new day begins: {clean(said(service.id), 60)} may cost as much again"
            if not is_for_good(closed.until, facts.now):
                found.append(Coming(closed.until, again))
    return tuple(sorted(found, key=lambda one: (one.at, one.what))[:AHEAD])
