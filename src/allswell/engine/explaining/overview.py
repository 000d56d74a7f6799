"""The state of the whole watch at one look: whether all is well, and if not, what needs somebody first.

In the order in which it matters: a clock that stands still, what nothing will ever move, questions only a person can
answer, what is overdue because nobody sweeps, agents that do not answer, what has failed since yesterday, and commands,
flows and builds that were stopped and wait for somebody to resume them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from allswell.domain.build.roles import BUILD_ROLE
from allswell.domain.checkin import Agent
from allswell.domain.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.dismissal import Holding, holding, is_dismissed
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, RunId
from allswell.domain.question import Question
from allswell.domain.run import went_on_in
from allswell.domain.task import State
from allswell.engine.explaining.ended import outcome
from allswell.engine.explaining.standing import LATE, resume_command, resume_flow
from allswell.engine.explaining.words import ago, clean, many, quoted, time_stands, typed
from allswell.store.views import Agenda, Views

RECENT = 24 * 3_600_000
"""How long a failure is news."""
FAILED_MOST = 5_000
PAGE = 1_000

Concern = Literal["clock", "unaccounted", "question", "overdue", "stalled", "failed", "stopped"]


class Need(msgspec.Struct, frozen=True):
    """One thing that needs somebody, and what to type."""

    kind: Concern
    id: str
    what: str
    command: str
    since: Millis | None = None


class Overview(msgspec.Struct, frozen=True):
    """The watch at one look."""

    now: Millis
    well: bool
    counts: dict[str, int]
    next_due: Millis | None
    needs: tuple[Need, ...] = ()
    """What needs somebody, the most urgent first."""
    dismissed: Holding = Holding()
    """Questions that were dismissed, and what still waits for them."""


async def look(store: Views) -> Overview:
    """Read the state of the watch; nothing is changed, and nothing that is due is carried out."""
    agenda = await store.view_agenda()
    counts = await store.view_counts()
    questions = await store.view_questions()
    agents = [agent for agent in await store.view_agents() if agent.stalled]
    stuck = [row for id_ in await store.view_unaccounted() if (row := await store.view_task(id_)) is not None]
    failed = await _failed(store, agenda.now) if counts.get(State.FAILED) else []
    dismissed = await _held_by_dismissed(store, questions)
    stopped = await _to_resume(store) if counts.get(State.READY) else []
    flows = await _flows_to_resume(store) if counts.get(State.READY) else []
    builds = await _builds_to_resume(store) if counts.get(State.READY) else []
    needs = (
        *_standing_still(agenda),
        *(_stuck(row) for row in stuck),
        *(_question(question, agenda.now) for question in questions if question.dismissed_at is None),
        *_overdue(agenda.next_due, agenda.now),
        *(_stalled(agent, agenda.now) for agent in agents),
        *(_failure(row, agenda.now) for row in failed),
        *(_stopped(row) for row in stopped),
        *(_stopped_flow(row) for row in flows),
        *(_stopped_build(row, name) for row, name in builds),
    )
    return Overview(agenda.now, not needs, counts, agenda.next_due, needs, dismissed)


async def _held_by_dismissed(store: Views, questions: Sequence[Question]) -> Holding:
    """What dismissed questions still hold; the open tasks are looked through only if there are any."""
    if all(question.dismissed_at is None for question in questions):
        return Holding()
    rows: list[TaskRow] = []
    for _ in range(FAILED_MOST // PAGE):
        page = await store.view_tasks(TaskFilter(open=True, after=rows[-1].task.id if rows else "", limit=PAGE))
        rows += page
        if len(page) < PAGE:
            break
    return holding(questions, ((row.task, row.waits) for row in rows))


async def _failed(store: Views, now: int) -> list[TaskRow]:
    """What failed lately, the newest first."""
    found: list[TaskRow] = []
    after = ""
    for _ in range(FAILED_MOST // PAGE):
        page = await store.view_tasks(TaskFilter(states=(State.FAILED.value,), after=after, limit=PAGE))
        lately = [row for row in page if (row.task.ended_at or 0) > now - RECENT]
        found += [row for row in lately if row.task.record.retried_as is None and not is_dismissed(row.task)]
        if len(page) < PAGE:
            break
        after = page[-1].task.id
    if any(row.task.run is not None for row in found):  # what another run has done since is no news
        gone_on = {run.id for run in await store.view_runs() if went_on_in(run) is not None}
        found = [row for row in found if row.task.run not in gone_on]
    return sorted(found, key=lambda row: -(row.task.ended_at or 0))


async def _to_resume(store: Views) -> list[TaskRow]:
    """Commands under watch that nobody runs any more: no agent takes them by itself."""
    which = TaskFilter(open=True, role=RUN_ROLE, states=(State.READY.value,), limit=PAGE)
    rows = await store.view_tasks(which)
    return [row for row in rows if row.task.record.handover is not None and not is_dismissed(row.task)]


async def _flows_to_resume(store: Views) -> list[TaskRow]:
    """For each flow that was cut off and that nobody runs any more: a step that waits to be done again."""
    which = TaskFilter(open=True, role=STEP_ROLE, states=(State.READY.value,), limit=PAGE)
    rows = {row.task.run: row for row in await store.view_tasks(which) if row.task.record.handover is not None}
    held = [await store.view_tasks(TaskFilter(run=run, states=(State.HELD.value,), limit=1)) for run in rows]
    return [row for row, others in zip(rows.values(), held, strict=True) if not others]


async def _builds_to_resume(store: Views) -> list[tuple[TaskRow, str]]:
    """Builds that were coordinated, and are not any more; with their names."""
    which = TaskFilter(open=True, role=BUILD_ROLE, states=(State.READY.value,), limit=PAGE)
    found: list[tuple[TaskRow, str]] = []
    for row in await store.view_tasks(which):
        run = None if row.task.run is None else await store.view_run(row.task.run)
        if run is not None and row.task.record.token and not is_dismissed(row.task):
            found.append((row, run.name))
    return found


def _standing_still(agenda: Agenda) -> tuple[Need, ...]:
    return (Need("clock", "", time_stands(agenda.stands), "allswell watch"),) if agenda.stands else ()


def _stuck(row: TaskRow) -> Need:
    task = row.task
    what = f"{quoted(task.name, 60)} is open, and nothing will ever move it; this must not happen"
    return Need("unaccounted", task.id, what, typed("why", task.id), task.created_at)


def _question(question: Question, now: int) -> Need:
    who = "You were asked" if question.asked_by == "allswell" else f"{clean(question.asked_by, 40)} asked you"
    what = f"{who} {ago(question.asked_at, now)}: {quoted(question.text)}"
    return Need("question", question.id, what, typed("why", question.id), question.asked_at)


def _overdue(due: Millis | None, now: int) -> tuple[Need, ...]:
    if due is None or due + LATE > now:
        return ()
    what = f"Something was due {ago(due, now)} and has not happened: no sweeper seems to be running"
    return (Need("overdue", "", what, "allswell watch", due),)


def _stalled(agent: Agent, now: int) -> Need:
    missed = f"{many(agent.misses, 'check-in')} missed, the last {ago(agent.missed_at, now)}"
    what = f"{clean(agent.id, 60)} is stalled: {missed}"
    return Need("stalled", agent.id, what, "allswell agents", agent.missed_at)


def _failure(row: TaskRow, now: int) -> Need:
    task = row.task
    what = f"{quoted(task.name, 60)} failed {ago(task.ended_at or now, now)}: {clean(task.record.reason)}"
    return Need("failed", task.id, what, typed("why", task.id), task.ended_at)


def _stopped(row: TaskRow) -> Need:
    task = row.task
    handover = task.record.handover
    how = "" if handover is None else f": the last attempt {outcome(handover.reason, handover.message)}"
    return Need("stopped", task.id, f"{quoted(task.name, 60)} is not finished{how}", resume_command(task.id))


def _stopped_flow(row: TaskRow) -> Need:
    task = row.task
    handover = task.record.handover
    run, name = RunId(task.run or ""), quoted(task.name, 40)
    how = "" if handover is None else f": the last attempt at {name} {outcome(handover.reason, handover.message)}"
    return Need("stopped", run, f"The flow of {run} is not finished{how}", resume_flow(run))


def _stopped_build(row: TaskRow, name: str) -> Need:
    what = f"Nobody coordinates the build {quoted(name, 60)}: start its coordinator again, as you did before"
    return Need("stopped", RunId(row.task.run or ""), what, typed("show", row.task.run or ""))
