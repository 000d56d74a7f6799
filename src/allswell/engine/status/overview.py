"""Screen one: whether all is well, what only a human can decide, what is wrong, who does what, and what comes next.

It is put together from what the other explanations tell (verdict, crew, standing, past), so the page, `allswell`
alone, `agents` and `why` cannot disagree. Everything is bounded: a store with a hundred thousand tasks is looked at as
fast as one with a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.agents.cost import NOTHING_SPENT, Spent
from allswell.domain.ids import Millis, RunId, TaskId
from allswell.domain.lease.cost import is_budget, said
from allswell.domain.lease.model import LeaseRow
from allswell.domain.question import Question
from allswell.domain.run.run import Run
from allswell.domain.service.service import shut
from allswell.domain.task.model import OPEN, State, TaskFilter, TaskRow
from allswell.engine.status.agents import AgentRow, AgentsOverview
from allswell.engine.status.agents import look as look_at_crew
from allswell.engine.status.explanation import clean, quoted
from allswell.engine.status.services import TaskFacts, fill_for_ready
from allswell.engine.status.task import ASKING, PARKED, explained_state, outcome, stand
from allswell.engine.status.timeline import Waterfall, loose, waterfall
from allswell.engine.status.verdict import (
    ANYWHERE,
    LocalFacts,
    Verdict,
    VerdictItem,
    look,
)
from allswell.store.views import Views
from allswell.timing.moment import Moment, moment

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


class BusyAgent(msgspec.Struct, frozen=True):
    """An agent, and the lease it holds: the clocks that run for it."""

    member: AgentRow
    lease: LeaseRow | None
    outer: Millis | None
    """When the time of its task's run is up."""


class UpcomingEvent(msgspec.Struct, frozen=True):
    """What happens by itself, when, and to which task."""

    at: int
    what: str
    task: str | None = None


class StatusOverview(msgspec.Struct, frozen=True):
    """All of screen one."""

    verdict: Verdict
    spent: Spent
    """Since midnight UTC."""
    questions: tuple[OpenQuestion, ...]
    troubles: tuple[VerdictItem, ...]
    """What the verdict is made of, beside the questions."""
    crew: AgentsOverview
    hands: tuple[BusyAgent, ...]
    """The agents on this page."""
    agents: int
    """How many there are."""
    runs: tuple[Waterfall, ...]
    ahead: tuple[UpcomingEvent, ...]


async def front(views: Views, *, agents_from: int = 0, place: LocalFacts = ANYWHERE) -> StatusOverview:
    """Read screen one; `agents_from` is where its list of agents begins."""
    seen = await look(views, place)
    now = seen.now
    crew = await look_at_crew(views, has_died=place.has_died)
    services = await views.view_services()
    rows = await _open_rows(views, seen)
    runs = await _open_runs(views, rows)
    facts = TaskFacts(
        now, runs={run.id: run for run in runs}, services=services, rows={row.task.id: row for row in rows}
    )
    facts.agents = {agent.id: agent for agent in await views.view_agents()}
    spent = await views.view_spent("all", (), now - now % _DAY)
    members = sorted(crew.members, key=order_of)
    return StatusOverview(
        seen,
        spent.get("", NOTHING_SPENT),
        await _asked(views, rows),
        tuple(one for one in seen.concerns if one.kind != "question")[:TROUBLES],
        crew,
        await _hands(views, members[agents_from : agents_from + AGENTS], facts),
        len(members),
        await _waterfalls(views, rows, runs, now),
        _ahead(rows, facts),
    )


async def _open_rows(views: Views, seen: Verdict) -> list[TaskRow]:
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


def order_of(member: AgentRow) -> tuple[int, int, str]:
    """Those first that something is the matter with, then those that work."""
    holds = member.task is not None
    return (0 if member.misses else 1, _PLACES.get(member.health, 3 if holds else 4), member.agent)


async def _hands(views: Views, members: Sequence[AgentRow], facts: TaskFacts) -> tuple[BusyAgent, ...]:
    ids = tuple(TaskId(member.task) for member in members if member.task is not None)
    found = await views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    rows = {row.task.id: row for row in found}
    hands: list[BusyAgent] = []
    for member in members:
        row = None if member.task is None else rows.get(TaskId(member.task))
        held = row is not None and row.lease is not None
        lease = facts.lease_of(row) if row is not None and held else None
        hands.append(BusyAgent(member, lease, None if row is None else facts.limit_of(row.task)))
    return tuple(hands)


async def _waterfalls(views: Views, rows: Sequence[TaskRow], runs: Sequence[Run], now: Millis) -> tuple[Waterfall, ...]:
    drawn = [await waterfall(views, run, now) for run in (*runs, *await _lately(views, runs, now))[:RUNS]]
    alone = await loose(views, [row for row in rows if row.task.run is None], now)
    return (*drawn, alone) if alone.lanes else tuple(drawn)


async def _lately(views: Views, runs: Sequence[Run], now: Millis) -> list[Run]:
    """The newest runs beside these that were opened since yesterday: in the morning one wants to see the night."""
    seen = {run.id for run in runs}
    return [run for run in await views.view_runs(RUNS) if run.id not in seen and run.created_at > now - _DAY]


def _ahead(rows: Sequence[TaskRow], facts: TaskFacts) -> tuple[UpcomingEvent, ...]:
    """What happens by itself next, the soonest first."""
    found: list[UpcomingEvent] = []
    for row in rows:
        far: int | None = facts.limit_of(row.task)
        found += [
            UpcomingEvent(one.at, f"{quoted(row.task.name, 60)}: {one.what}", row.task.id)
            for one in stand(row, facts).next
            if one.at is not None and not one.routine and one.at != far
        ]
    found += [
        UpcomingEvent(run.limit, f"The run {quoted(run.name, 60)} reaches its deadline")
        for run in facts.runs.values()
        if run.limit is not None and run.ended_at is None
    ]
    for service in facts.services.values():
        closed = shut(service, facts.now)
        if closed is not None and closed.until is not None:
            again = f"{clean(service.id, 60)} can be used again"
            if is_budget(service.id):
                again = f"A new day begins: {clean(said(service.id), 60)} may cost the same again"
            found.append(UpcomingEvent(closed.until, again))
    return tuple(sorted(found, key=lambda one: (one.at, one.what))[:AHEAD])


# The board: open tasks as short lines, those that need a human first. What a live table shows.

_SHOWN = (State.HELD, State.WAITING, State.DELAYED, State.READY)
"""How many tasks of each state are looked at."""


class BoardLine(msgspec.Struct, frozen=True):
    """One open task in short: `who` has it or is waited for, and what lies `ahead`."""

    task: str = msgspec.field(name="task_id")
    name: str
    state: str
    trouble: int
    who: str
    since: Moment | None = msgspec.field(name="since_at")
    progress: float | None
    note: str
    due: Moment | None = msgspec.field(name="due_at")
    ahead: str

    @property
    def shown(self) -> str:
        """Its state as people see it: what is ready and cannot be claimed yet is parked."""
        return "parked" if self.state == State.READY and self.trouble == PARKED else self.state


class Board(msgspec.Struct, frozen=True):
    """The watch as a table."""

    verdict: Verdict
    lines: tuple[BoardLine, ...]


async def board(views: Views, text: str = "", each: int = EACH, place: LocalFacts = ANYWHERE) -> Board:
    """Read the board; a bounded number of tasks, however many are open.

    With a `text`, only those that have it in their name, id, role or holder: then those that have ended, too.
    """
    verdict = await look(views, place)
    facts = TaskFacts(verdict.now)
    facts.agents = {agent.id: agent for agent in await views.view_agents()}
    await fill_for_ready(views, facts, place.pause)
    facts.runs = {run.id: run for run in await views.view_runs()}
    rows: list[TaskRow] = []
    if text:
        rows += await views.view_tasks(TaskFilter(open=True, text=text, limit=each * len(_SHOWN)))
        rows += await views.view_tasks(TaskFilter(open=False, text=text, limit=each))
    for state in () if text else _SHOWN:
        if verdict.counts.get(state):
            rows += await views.view_tasks(TaskFilter(states=(state.value,), limit=each))
    facts.rows = {row.task.id: row for row in rows}
    lines = [line(row, facts) for row in rows]
    return Board(verdict, tuple(sorted(lines, key=_place)))


_ORDER = {State.HELD.value: 0, State.DELAYED.value: 1, State.READY.value: 2, State.WAITING.value: 3}
_TROUBLED = 60


def _place(line: BoardLine) -> tuple[int, int, int, str]:
    return (-line.trouble if line.trouble >= _TROUBLED else 0, _ORDER.get(line.state, 4), line.since or 0, line.task)


def line(row: TaskRow, facts: TaskFacts) -> BoardLine:
    """One task in short."""
    standing = stand(row, facts)
    task, lease = row.task, row.lease
    trouble, who, note, ahead = standing.trouble, "", "", ""
    due: int | None = row.due
    if lease is not None:
        who, note = clean(lease.agent, 40), clean(lease.note)
    elif row.waits:
        asked = [wait.target for wait in row.waits if wait.kind == "question"]
        if asked:
            trouble, who, ahead = ASKING, "you", f"allswell why {asked[0]}"
        else:
            need = facts.rows.get(TaskId(row.waits[0].target))
            first = row.waits[0].target if need is None else quoted(need.task.name, 60)
            ahead = f"needs {first}" + (f" and {len(row.waits) - 1:,} more" if len(row.waits) > 1 else "")
    elif task.state != OPEN:
        note = clean(task.record.reason)
    elif task.record.handover is not None:
        note = f"{clean(task.record.handover.agent, 40)} {outcome(task.record.handover.reason)}"
    far: int | None = facts.limit_of(task) if standing.state == State.READY else None
    notable = [one for one in standing.next if not one.routine and one.at != far]  # a run's end is no news of each task
    if refused := explained_state(task, facts):
        due, ahead = None, refused
    elif notable:
        due, ahead = notable[0].at, notable[0].what
    elif trouble >= _TROUBLED and not ahead:
        ahead = "overdue: no process enforces time limits"
    since = standing.since or task.created_at
    progress = None if lease is None else lease.progress
    name, state = clean(task.name, 120), standing.state
    return BoardLine(task.id, name, state, trouble, who, moment(since), progress, note, moment(due), ahead)


def changes(before: Board | None, after: Board) -> list[str]:
    """What is different, one sentence each; for those who read lines instead of a table."""
    old = {} if before is None else {line.task: line for line in before.lines}
    new = {line.task: line for line in after.lines}
    told = []
    for id_, now in new.items():
        was = old.get(id_)
        if was is None or (was.state, was.who, was.note) != (now.state, now.who, now.note):
            who = f" by {now.who}" if now.state == State.HELD else f" for {now.who}" if now.who else ""
            note = f": {quoted(now.note)}" if now.note and now.state == State.HELD else ""
            told.append(f"{quoted(now.name, 60)} is {now.state}{who}{note}")
    told += [f"{quoted(was.name, 60)} is no longer listed" for id_, was in old.items() if id_ not in new]
    seen = set() if before is None else {(need.kind, need.id) for need in before.verdict.needs}
    told += [f"! {need.what}" for need in after.verdict.needs if (need.kind, need.id) not in seen]
    return told
