"""A task: its life, why it stands where it stands, its attempts with what they printed and left; what can be done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.domain.dismissal import is_dismissed
from allswell.domain.expense import ExpenseRow, Spent, together
from allswell.domain.journal import Entry
from allswell.domain.late import Afterwards, afterwards
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import TaskId, Token, question_id
from allswell.domain.paying import limit_of
from allswell.domain.question import Question
from allswell.domain.receipt import Receipt, receipt_id, told
from allswell.domain.run import Run
from allswell.domain.task import OPEN, Attempt, State
from allswell.doors.http.call import Call
from allswell.doors.page.asking import ShownQuestion, show_question
from allswell.doors.page.drawing import DrawnLease, draw_lease, style_of
from allswell.doors.page.life import DrawnLife, draw_life
from allswell.doors.page.output import OutputTail, read_tail
from allswell.engine.explaining.ended import outcome
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.front import OpenQuestion
from allswell.engine.explaining.shapes import Explanation, Span
from allswell.engine.explaining.standing import state_of
from allswell.engine.explaining.why import why
from allswell.engine.finding import find_task
from allswell.errors import Refused
from allswell.runtime.receipts import Home

_QUESTIONS = 20
_NEEDS = 50
_ATTEMPTS = 100
_SPREAD_MOST = 20_000
_ON_THE_PAGE = 60
"""Things that were printed; all the rest has a screen of its own."""


class NamedTask(Struct, frozen=True):
    """Another task, where one is named."""

    id: str
    name: str
    state: str


class TaskAttempt(Struct, frozen=True):
    """One attempt that has ended."""

    attempt: Attempt
    how: str
    style: str
    """As its bar is drawn."""
    expense: ExpenseRow | None
    after: Afterwards
    """What its holder still said when it was over."""
    receipt: Receipt | None
    left: str
    """What the receipt tells, in words."""


class TaskScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    row: TaskRow
    state: str
    why: Explanation
    life: DrawnLife
    bar: DrawnLease | None
    run: Run | None
    needs: list[NamedTask]
    needs_more: int
    open_questions: list[ShownQuestion]
    answered: list[Question]
    attempts: list[TaskAttempt]
    """The last first."""
    attempts_more: int
    spent: Spent
    cost_limit: int | None
    payload: str
    result: str | None
    output: OutputTail | None
    printed: int
    """How many entries of the output the page begins after."""
    dismissed: bool
    can_retry: bool


async def row_of(call: Call) -> TaskRow:
    """The task that the path names."""
    row = await call.views.view_task(await find_task(call.views, call.named("task")))
    if row is None:
        raise Refused("unknown_task", f"there is no task {call.named('task')!r}", where="task")
    return row


def is_about(call: Call, entry: Entry) -> bool:
    """Whether an event is about the task on the screen; one that is shown by its name, any may be."""
    named = call.named("task")
    return not named.startswith(("t_", "m_")) or entry.event.task in (named, None)


async def look(call: Call) -> TaskScreen:
    """Look at one task, and at what lies beside the store of it."""
    check_beside(call.key, "receipts")
    check_beside(call.key, "log")
    row = await row_of(call)
    task, views = row.task, call.views
    explained = await why(views, task.id)
    now = explained.now
    run = None if task.run is None else await views.view_run(task.run)
    attempts = await views.view_attempts(task.id)
    told_costs = {one.token: one for one in await views.view_expenses(task.id)}
    payload, result = await views.view_payload(task.id)
    asked = await _asked(call, row)
    needs = await views.view_tasks(TaskFilter(ids=task.spec.needs[:_NEEDS], limit=_NEEDS)) if task.spec.needs else []
    home, last = Home(call.house.home), attempts[-_ATTEMPTS:]
    receipts = await asyncio.to_thread(_receipts, home, task.id, last)
    output = await asyncio.to_thread(read_tail, call.house.home, task)
    lease = None if row.lease is None else Facts(now, runs={} if run is None else {run.id: run}).lease_of(row)
    state = state_of(row)
    return TaskScreen(
        title=task.name,
        now=now,
        row=row,
        state=explained.state,
        why=explained,
        life=draw_life(
            explained.spent,
            now,
            state="nowhere" if state is None else state.value,
            limit=None if lease is None else lease.deadline,
        ),
        bar=None if lease is None else draw_lease(lease, None if run is None else run.limit, now),
        run=run,
        needs=[NamedTask(need.task.id, need.task.name, str(state_of(need) or "nowhere")) for need in needs],
        needs_more=max(len(task.spec.needs) - _NEEDS, 0),
        open_questions=[show_question(call, OpenQuestion(one, row, 0)) for one in asked if one.closed_at is None],
        answered=[one for one in asked if one.closed_at is not None],
        attempts=[_attempt(one, told_costs, receipts) for one in last[::-1]],
        attempts_more=max(len(attempts) - _ATTEMPTS, 0),
        spent=together(told_costs.values()),
        cost_limit=limit_of(task),
        payload="" if payload is None or payload == "null" else _spread(payload),
        result=None if result is None else _spread(result),
        output=output,
        printed=0 if output is None else max(len(output.entries) - _ON_THE_PAGE, 0),
        dismissed=is_dismissed(task),
        can_retry=task.state not in (OPEN, State.DONE, State.SPLIT) and task.record.retried_as is None,
    )


def _spread(text: str) -> str:
    """JSON on lines of its own; what is too long to be shown whole stays as it is."""
    return msgspec.json.format(text, indent=2) if len(text) <= _SPREAD_MOST else text


async def _asked(call: Call, row: TaskRow) -> Sequence[Question]:
    """The questions about a task, the last ones, the newest first."""
    last = row.task.record.questions
    numbers = range(last, max(last - _QUESTIONS, 0), -1)
    found = [await call.views.view_question(question_id(row.task.id, number)) for number in numbers]
    return [question for question in found if question is not None]


def _receipts(home: Home, task: TaskId, attempts: Sequence[Attempt]) -> dict[int, Receipt]:
    """What these attempts have left here."""
    found = (home.receipts.find(receipt_id(task, one.token)) for one in attempts)
    return {one.receipt.attempt: one.receipt for one in found if one is not None}


def _attempt(one: Attempt, costs: Mapping[Token, ExpenseRow], receipts: Mapping[int, Receipt]) -> TaskAttempt:
    receipt = receipts.get(one.token)
    return TaskAttempt(
        one,
        outcome(one.outcome, one.detail),
        style_of(Span("held", one.granted_at, one.ended_at, "", outcome=one.outcome)),
        costs.get(one.token),
        afterwards(one),
        receipt,
        "" if receipt is None else told(receipt),
    )
