"""Tasks as a list, the newest first: by state, by role, by run, by a text in their name, a page at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import msgspec
from msgspec import Struct

from allswell.domain.access.rights import check_beside
from allswell.domain.agents.result import result_in_words
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.domain.receipts.receipt import receipt_id
from allswell.domain.rules.event import Entry
from allswell.domain.task.model import OPEN, State, TaskFilter, TaskRow
from allswell.engine.lookup import find_run
from allswell.engine.status.explanation import clean, many
from allswell.engine.status.overview import OpenQuestion
from allswell.engine.status.services import TaskFacts
from allswell.engine.status.task import outcome
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.questions import read_tail, show_question
from allswell.interfaces.web.screen import Seen, address, choice_of, number_of, text_of
from allswell.interfaces.web.timeline import draw_lease, draw_life, style_of
from allswell.views.attempt import AttemptShape
from allswell.views.detail import load_task
from allswell.views.explanation import load_explanation
from allswell.views.receipt import ReceiptShape
from allswell.views.task import load_names

PAGE = 100
STATES = (*(state.value for state in State), "open")


async def look_at_tasks(call: RequestContext) -> Seen:
    """Look at a page of tasks."""
    state, role, text = choice_of(call, "state", STATES), text_of(call, "role"), text_of(call, "text")
    after, run = text_of(call, "after"), text_of(call, "run")
    of_run = RunId(await find_run(call.views, run)) if run else None
    asked = TaskFilter(
        open=True if state == "open" else None,
        run=of_run,
        role=role or None,
        states=(state,) if state and state != "open" else (),
        after=after,
        limit=PAGE + 1,
        text=text,
        newest=True,
    )
    found = await call.views.view_tasks(asked)
    counts = await call.views.view_counts()
    shown = found[:PAGE]
    names = await load_names(call.views, shown)
    kept = {"role": role, "text": text, "run": of_run or ""}
    return Seen(
        title="Tasks",
        now=(await call.views.view_agenda()).now,
        lines=[(row, _about(row, names)) for row in shown],
        tallies=[
            (one, counts[one], address("/tasks", state=one, **kept)) for one in map(str, State) if counts.get(one)
        ],
        state=state,
        role=role,
        text=text,
        run=of_run or "",
        run_name="" if of_run is None else await _run_name(call, of_run),
        first=address("/tasks", state=state, **kept) if after else None,
        after=address("/tasks", state=state, after=shown[-1].task.id, **kept) if len(found) > PAGE else None,
        filtered=bool(state or role or text or run or after),
    )


async def _run_name(call: RequestContext, id_: RunId) -> str:
    run = await call.views.view_run(id_)
    return id_ if run is None else run.name


def _about(row: TaskRow, names: dict[str, str]) -> str:
    task = row.task
    if row.lease is not None:
        return clean(row.lease.note, 120)
    if row.waits:
        first = row.waits[0]
        more = f" and {many(len(row.waits) - 1, 'more')}".removesuffix("s") if len(row.waits) > 1 else ""
        if first.kind == "question":
            return f"for your answer{more}"
        return f"for {clean(names.get(first.target, first.target), 60)}{more}"
    if task.ended_at is None or task.state == State.DONE:
        return ""
    reason = task.record.reason
    named = reason.partition(" ")[0]  # it may begin with the id of another task: “t_… was failed”
    return clean(names.get(named, named) + reason.removeprefix(named), 120)


# A task: its life, why it stands where it stands, its attempts with what they printed and left; what can be done.

_QUESTIONS = 20
_NEEDS = 50
_ATTEMPTS = 100
_SPREAD_MOST = 20_000
_ON_THE_PAGE = 60
"""Things that were printed; all the rest has a screen of its own."""


def is_about(call: RequestContext, entry: Entry) -> bool:
    """Whether an event is about the task on the screen; one that is shown by its name, any may be."""
    named = call.named("task")
    return not named.startswith(("t_", "m_")) or entry.event.task in (named, None)


async def look_at_task(call: RequestContext) -> Seen:
    """Look at one task, and at what lies beside the store of it."""
    check_beside(call.key, "receipts")
    check_beside(call.key, "log")
    row = await call.task_row()
    task, views = row.task, call.views
    shown = await load_task(views, call.artifacts, task.id)
    explained, _ = await load_explanation(views, call.artifacts, task.id, call.place)
    now = explained.now
    run = None if task.run is None else await views.view_run(task.run)
    needs = await views.view_tasks(TaskFilter(ids=task.spec.needs[:_NEEDS], limit=_NEEDS)) if task.spec.needs else []
    last = shown.questions[-_QUESTIONS:][::-1]
    asked = [await views.view_question(QuestionId(one.question_id)) for one in last if one.closed_at is None]
    output = await asyncio.to_thread(read_tail, call.house.home, task)
    lease = None if row.lease is None else TaskFacts(now, runs={} if run is None else {run.id: run}).lease_of(row)
    limit = None if lease is None else lease.limit_at
    payload, result = bytes(shown.payload).decode(), bytes(shown.result).decode()
    ended = shown.attempts[: -_ATTEMPTS - 1 : -1]
    return Seen(
        title=task.name,
        now=now,
        row=row,
        shown=shown,
        why=explained,
        life=draw_life(explained.spent, now, state=row.state, limit=limit),
        bar=None if lease is None else draw_lease(lease, None if run is None else run.limit, now),
        run=run,
        needs=needs,
        needs_more=max(len(task.spec.needs) - _NEEDS, 0),
        open_questions=[show_question(call, OpenQuestion(one, row, 0)) for one in asked if one is not None],
        answered=[one for one in last if one.closed_at is not None],
        attempts=[await _attempt(call, task.id, one, shown.receipt_ids) for one in ended],
        attempts_more=max(len(shown.attempts) - _ATTEMPTS, 0),
        payload="" if payload == "null" else _spread(payload),
        result=None if result == "null" and row.state != State.DONE else _result_text(result),
        output=output,
        printed=0 if output is None else max(len(output.entries) - _ON_THE_PAGE, 0),
        can_retry=task.state not in (OPEN, State.DONE, State.SPLIT) and task.record.retried_as is None,
    )


def _spread(text: str) -> str:
    """JSON on lines of its own; what is too long to be shown whole stays as it is."""
    return msgspec.json.format(text, indent=2) if len(text) <= _SPREAD_MOST else text


def _result_text(result: str) -> str:
    """A result as JSON; an agent's last message as text."""
    return result_in_words(msgspec.json.decode(result)) or _spread(result)


async def _attempt(
    call: RequestContext, task: TaskId, one: AttemptShape, receipts: Collection[str]
) -> tuple[AttemptShape, str, str, ReceiptShape | None]:
    """An attempt that has ended; how, as its bar is drawn; and its receipt."""
    name = receipt_id(task, one.token)
    receipt = None
    with contextlib.suppress(Refused):  # it cannot be read
        receipt = await call.artifacts.receipt(name) if name in receipts else None
    return one, outcome(one.outcome, one.detail), style_of("held", one.outcome), receipt


# What one attempt has printed and what it has changed, each on a screen of its own.


async def look_at_log(call: RequestContext) -> Seen:
    """Look at what was printed."""
    check_beside(call.key, "log")
    task = (await call.task_row()).task
    attempt, upto = number_of(call, "attempt"), number_of(call, "upto", 1 << 34)
    output = await asyncio.to_thread(read_tail, call.house.home, task, attempt or None, upto or None)
    earlier = None
    if output is not None and output.begin:
        earlier = address(f"/tasks/{task.id}/log", attempt=output.attempt, upto=output.begin)
    now = (await call.views.view_agenda()).now
    number = attempt if output is None else output.attempt
    title = f"Log of {task.name}"
    return Seen(title=title, now=now, task=task, attempt=number, output=output, upto=upto, earlier=earlier)


# What one attempt has changed, on a screen of its own: git is asked for it, so only while somebody looks at it.

_LINES = 3_000
_KINDS = {"+": "added", "-": "gone", "@": "place"}


class DiffLine(Struct, frozen=True):
    """One line of a difference."""

    kind: str
    text: str


async def look_at_changes(call: RequestContext) -> Seen:
    """Look at what an attempt has changed."""
    check_beside(call.key, "diff")
    task = (await call.task_row()).task
    attempt = number_of(call, "attempt")
    seen = Seen(title=f"Changes of {task.name}", now=(await call.views.view_agenda()).now, task=task, attempt=attempt)
    try:
        seen.changes, text = await call.artifacts.diff(task.id, attempt or None, stat=False)
    except Refused as refused:
        seen.changes, seen.wrong = None, str(refused)
        return seen
    shown = text.decode("utf-8", "replace").split("\n")
    seen.attempt, seen.lines, seen.more = seen.changes.attempt, read_diff(shown[:_LINES]), max(len(shown) - _LINES, 0)
    return seen


def read_diff(text: list[str]) -> list[DiffLine]:
    """Each line with its kind. What stands above the first `@@` of a file is about the file, whatever it looks like."""
    lines, inside = [], False
    for line in text:
        if line.startswith("diff "):
            inside, kind = False, "file"
        elif not inside and not line.startswith("@"):
            kind = "file" if line.startswith(("+++ ", "--- ")) else "about"
        else:
            inside, kind = True, _KINDS.get(line[:1], "same")
        lines.append(DiffLine(kind, line))
    return lines
