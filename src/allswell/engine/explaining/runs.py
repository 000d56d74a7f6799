"""Why a run, or a question, stands where it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, QuestionId
from allswell.domain.paying import is_budget, said
from allswell.domain.question import Question
from allswell.domain.run import Run, last_of, time_left
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, State
from allswell.engine.explaining.chain import explain
from allswell.engine.explaining.facts import Facts, gather
from allswell.engine.explaining.services import in_short
from allswell.engine.explaining.shapes import Explanation, Link, Next, Todo
from allswell.engine.explaining.standing import NO_SWEEPER, SWEEP, is_late, stand, stand_question
from allswell.engine.explaining.words import ago, clean, listed, many, quoted, rough, typed
from allswell.store.views import Views

PAGE = 1_000
QUESTIONS_NAMED = 3
TASKS_MOST = 10_000
"""How many of a run's tasks are counted."""


async def explain_question(store: Views, question: Question) -> Explanation:
    """Why a question is there, and what its task or service would do with an answer."""
    row = None if question.task is None else await store.view_task(question.task)
    now = (await store.view_agenda()).now
    standing = stand_question(question, now)
    link = Link(question.id, "question", clean(question.text, 60), standing.state, standing.says, question.asked_at)
    if question.service is not None:
        service = (await store.view_services()).get(question.service, ServiceRow(question.service))
        what = said(service.id) if is_budget(service.id) else f"the service {quoted(service.id)}"
        says = f"It is about {what}, which {in_short(service, now)}."
        link = Link(link.id, link.kind, link.name, link.state, (*link.says, says), link.since)
    if question.message is not None:
        says = "It is about message {1} of the queue {0}, which waits outside it.".format(*question.message)
        link = Link(link.id, link.kind, link.name, link.state, (*link.says, says), link.since)
    if row is None:
        return Explanation(question.id, "question", link.name, standing.state, now, (link,), (), (), standing.todo)
    task = explain(row, await gather(store, row))
    waits = any(wait.target == question.id for wait in row.waits)
    about = Link(row.task.id, "task", task.name, task.state, (_about(row, waits=waits),), row.task.created_at)
    ahead = (Next(None, f"after the answer, {quoted(task.name, 60)} goes on"),) if waits else ()
    return Explanation(
        question.id, "question", link.name, standing.state, now, (link, about), (), ahead, standing.todo, task.spent
    )


def _about(row: TaskRow, *, waits: bool) -> str:
    name = quoted(row.task.name)
    if waits:
        return f"It is about {name}, which waits for the answer."
    if row.task.state == OPEN:
        return f"It is about {name}, which does not wait for the answer."
    return f"It is about {name}, which has ended: {row.task.state}."


async def explain_run(store: Views, run: Run, most: int = TASKS_MOST) -> Explanation:
    """Why a run is not over yet, or how it ended; where it went on in another, how that one stands."""
    now = (await store.view_agenda()).now
    *_, last = last_of(run, {one.id: one for one in await store.view_runs()})
    if last is not run:
        link = Link(run.id, "run", clean(run.name), "ended", (_standing(run, quoted(run.name), now),), run.created_at)
        after = await explain_run(store, last, most)
        chain = (link, *after.chain)
        return Explanation(run.id, "run", link.name, after.state, now, chain, (), after.next, after.todo)
    rows: list[TaskRow] = []
    while len(rows) < most:
        room = min(PAGE, most - len(rows))
        page = await store.view_tasks(TaskFilter(run=run.id, after=rows[-1].task.id if rows else "", limit=room))
        rows += page
        if len(page) < room:
            break
    facts = Facts(now)
    facts.agents = {agent.id: agent for agent in await store.view_agents()}
    facts.services = await store.view_services()
    facts.runs = {run.id: run}
    counted = Counter(stand(row, facts).state for row in rows)
    still = [row for row in rows if row.task.state == OPEN]
    name = quoted(run.name)
    links = [Link(run.id, "run", clean(run.name), "ended" if run.ended_at else "open", (), run.created_at)]
    tally = listed([f"{count:,} {state}" for state, count in counted.most_common()])
    of_all = f"Of its {many(len(rows), 'task')}" if len(rows) < most else f"Of the first {len(rows):,} of its tasks"
    says = [_standing(run, name, now), f"{of_all}: {tally}." if rows else "It has no tasks."]
    ahead: tuple[Next, ...] = ()
    todo: list[Todo] = []
    limit = run.limit
    if run.ended_at is None and run.stands_since is not None:
        says.append(await _why_it_stands(store, run, now))
    elif run.ended_at is None and limit is not None:
        if run.stood > 0:
            says.append(f"Its clock has stood for {rough(run.stood)} while answers were waited for.")
        if is_late(limit, now):
            says.append(f"Its deadline passed {ago(limit, now)}, but it was not ended. {NO_SWEEPER}.")
            todo.append(SWEEP)
        else:
            ahead = (Next(limit, "the run's deadline is reached: whatever is still open fails"),)
    links[0] = Link(run.id, "run", clean(run.name), links[0].state, tuple(says), run.created_at)
    if still:
        worst = max(still, key=lambda row: (_urgency(row, facts), -row.task.created_at))
        below = explain(worst, await gather(store, worst))
        links += below.chain
        ahead = tuple(sorted((*ahead, *below.next), key=lambda one: (one.at is None, one.at or 0)))
        todo += below.todo
    else:
        todo += [
            Todo(f"See why {quoted(row.task.name, 40)} failed", typed("why", row.task.id))
            for row in [row for row in rows if row.task.state == State.FAILED][:3]
        ]
    return Explanation(
        run.id, "run", clean(run.name), links[0].state, Millis(now), tuple(links), (), ahead, tuple(dict.fromkeys(todo))
    )


async def _why_it_stands(store: Views, run: Run, now: int) -> str:
    asked = waited_for(run, await store.view_questions())
    left = "" if run.deadline is None else f"; {rough(time_left(run, now) or 0)} are left of its time"
    named = listed([clean(id_) for id_ in asked[:QUESTIONS_NAMED]]) or "a question"
    more = f" and {len(asked) - QUESTIONS_NAMED:,} more" if len(asked) > QUESTIONS_NAMED else ""
    are = "is" if len(asked) <= 1 else "are"
    return f"Its clock stands while {named}{more} {are} open{left}."


def waited_for(run: Run, questions: Sequence[Question]) -> list[QuestionId]:
    """The open questions that keep a run's clock standing."""
    return [asked.id for asked in questions if asked.run == run.id and asked.waited and asked.closed_at is None]


def _standing(run: Run, name: str, now: int) -> str:
    if run.ended_at is None:
        return f"The run {name} has been open for {rough(now - run.created_at)}."
    reason = clean(run.reason).replace("run_timeout", "its deadline was reached")
    return f"The run {name} was ended {ago(run.ended_at, now)}: {reason}."


def _urgency(row: TaskRow, facts: Facts) -> int:
    """How much an open task of a run needs somebody; one that waits for an answer needs it most."""
    if row.lease is None and any(wait.kind == "question" for wait in row.waits):
        return 90
    return stand(row, facts).trouble
