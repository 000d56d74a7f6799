"""`show`: one task, run or question with all that is known about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Store
from allswell.doors.cli.render import Column, block, harmless, paint, pairs, plain, short, table, when

if TYPE_CHECKING:
    from allswell.domain.expense import Spent
    from allswell.domain.listing import TaskRow
    from allswell.domain.names import QuestionId, RunId, TaskId
    from allswell.domain.task import Attempt
    from allswell.doors.shapes.shown import ShownQuestionShape, ShownRunShape, ShownTaskShape
    from allswell.store.views import Views

    Shown = tuple[ShownTaskShape | ShownRunShape | ShownQuestionShape, str]

_LISTED = 1_000


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "show",
        show,
        "allswell show t_…",
        'allswell show "write the changelog"',
        "allswell show q_….1 --json",
    )


def show(
    what: Annotated[
        str,
        Argument(
            metavar="ID",
            help="A task, a run, a question or a receipt; a name where it is unique.",
            of=("task", "run", "question"),
        ),
    ],
    store: Store = None,
    json: Json = False,
) -> None:
    """Show a task with its attempts, a run, a question or a receipt in full."""
    frame = Frame(store, json=json)
    if what.startswith("rc_") or what.endswith(".json"):
        from allswell.doors.cli.receipts import shown

        receipt = shown(frame, what)
        if receipt is not None:
            frame.say(*receipt)
            return

    async def work(views: Views) -> Shown:
        from allswell.domain.names import QuestionId, RunId, TaskId
        from allswell.engine.finding import find

        id_ = await find(views, what)
        now = (await views.view_agenda()).now
        if id_.startswith("q_"):
            return await _question(views, QuestionId(id_), now)
        if id_.startswith("r_"):
            return await _run(views, RunId(id_), now, frame)
        return await _task(views, TaskId(id_), now, frame)

    frame.say(*frame.look(work))


async def _task(views: Views, id_: TaskId, now: int, frame: Frame) -> Shown:
    from msgspec import Raw

    from allswell.domain.expense import shown, together, usd
    from allswell.domain.names import question_id
    from allswell.domain.paying import limit_of
    from allswell.domain.task import State
    from allswell.doors.cli import branches
    from allswell.doors.cli.branches import brought_home
    from allswell.doors.cli.receipts import left_by
    from allswell.doors.shapes.attempt import AttemptShape
    from allswell.doors.shapes.question import QuestionShape
    from allswell.doors.shapes.shown import ShownTaskShape
    from allswell.doors.shapes.spent import SpentShape
    from allswell.doors.shapes.task import TaskShape
    from allswell.doors.shapes.verification import ProofShape
    from allswell.engine.explaining.ended import outcome

    row = await views.view_task(id_)
    assert row is not None  # noqa: S101 - it was just found, and tasks are never deleted
    payload, result = await views.view_payload(id_)
    attempts = await views.view_attempts(id_)
    told = {row.token: row for row in await views.view_expenses(id_)}
    spent = together(told.values())
    asked = [await views.view_question(question_id(id_, number)) for number in range(1, row.task.record.questions + 1)]
    parts = [_facts(row, now, spent)]
    if payload and payload != "null":
        parts.append(f"{paint('payload', 'dim')}\n{block(payload, '  ')}")
    if result is not None:
        claimed = "result" if row.task.state == State.DONE else "result (said, not verified)"
        parts.append(f"{paint(claimed, 'dim')}\n{block(result, '  ')}")
    if attempts:
        columns = (
            Column("TOKEN"),
            Column("AGENT", 6),
            Column("BEGAN"),
            Column("TOOK"),
            Column("COST", None, right=True),
            Column("HOW IT ENDED", 16),
        )
        rows = [
            [
                str(ended.token),
                ended.agent,
                when(ended.granted_at, now),
                short(ended.ended_at - ended.granted_at),
                shown(told[ended.token].cost) if ended.token in told else "unknown" if told else "",
                outcome(ended.outcome, ended.detail) + _came_late(ended),
            ]
            for ended in attempts
        ]
        parts.append(table(columns, rows))
    left = left_by(frame, id_, [ended.token for ended in attempts])
    work = brought_home(frame, id_)
    if work is not None:
        parts.append(branches.words(work))
    if left:
        nexts = (f"  {typed_here(f'allswell show {one}')}" for one in left)
        parts.append("\n".join([paint("receipts", "dim"), *nexts]))
    from allswell.doors.cli.people import told_question

    parts += [told_question(question, row.task.name, now) for question in asked if question is not None]
    shape = ShownTaskShape(
        task=TaskShape.of(row),
        payload=Raw((payload or "null").encode()),
        result=Raw((result or "null").encode()),
        attempts=[AttemptShape.of(attempt, told.get(attempt.token)) for attempt in attempts],
        questions=[QuestionShape.of(question) for question in asked if question is not None],
        notes=row.task.record.notes,
        receipt_ids=left,
        work=branches.shape(work),
        spent=SpentShape.of(spent),
        max_cost_usd=usd(limit_of(row.task)),
        verification=ProofShape.of(row),
    )
    return shape, "\n\n".join(parts)


def cost_of(spent: Spent, limit: int | None = None) -> str:
    """What attempts have cost, in words; empty where nobody said anything and nothing limits it."""
    from allswell.domain.expense import shown

    if not spent.attempts and limit is None:
        return ""
    most = "" if limit is None else f" of at most {shown(limit)}"
    tokens = "" if spent.tokens is None else f", {spent.tokens:,} tokens"
    return f"{shown(spent.cost)}{most}{tokens}"


def _facts(row: TaskRow, now: int, spent: Spent) -> str:
    from allswell.domain.dismissal import is_dismissed
    from allswell.domain.duration import show as length
    from allswell.domain.paying import limit_of as max_cost
    from allswell.doors.cli.people import about
    from allswell.doors.shapes.task import stands
    from allswell.engine.explaining.proof import verified_by

    task, lease, spec = row.task, row.lease, row.task.spec
    state = stands(row)
    extra = about(row, state, now)
    held = "" if lease is None else f"{plain(lease.agent)}, token {lease.token}, for {short(now - lease.granted_at)}"
    return pairs(
        [
            ("task", f"{paint(plain(task.name), 'bold')}  {task.id}"),
            ("state", paint(state, state) + (f"  {plain(extra)}" if extra else "")),
            ("held by", held),
            ("role", plain(task.role)),
            ("priority", str(task.priority) if task.priority else ""),
            ("run", task.run or ""),
            ("services", plain(", ".join(spec.services))),
            ("needs", ", ".join(spec.needs)),
            (
                "limit",
                f"{length(task.timeout)} for each attempt" + (" (raised)" if task.record.timeout_override else ""),
            ),
            ("cost", cost_of(spent, max_cost(task))),
            ("verified by", plain(verified_by(row))),
            ("retry of", spec.retry_of or ""),
            ("retried as", task.record.retried_as or ""),
            ("dismissed", f"by {plain(seen.by)}" if (seen := task.record.dismissed) and is_dismissed(task) else ""),
            ("submitted", when(task.created_at, now)),
            ("ended", "" if task.ended_at is None else when(task.ended_at, now)),
            ("notes", "\n".join(map(harmless, task.record.notes))),
        ]
    )


def _came_late(ended: Attempt) -> str:
    """What its holder still said after the attempt had ended, in short."""
    from allswell.domain.late import afterwards
    from allswell.engine.explaining.words import many

    after = afterwards(ended)
    said = [word.verb for word in after.words] + ([f"{after.more} more"] if after.more else [])
    if after.checkins:
        said.append(many(after.checkins, "check-in") + (f": {plain(after.note)}" if after.note else ""))
    if not said and ended.late is not None:
        said = ["a result"]
    return f" (came late, and was kept: {', '.join(said)})" if said else ""


async def _question(views: Views, id_: QuestionId, now: int) -> Shown:
    from allswell.doors.cli.people import subject, told_question
    from allswell.doors.shapes.question import QuestionShape
    from allswell.doors.shapes.shown import ShownQuestionShape

    question = await views.view_question(id_)
    assert question is not None  # noqa: S101 - it was just found, and questions are never deleted
    shape = ShownQuestionShape(QuestionShape.of(question))
    return shape, told_question(question, await subject(views, question), now)


async def _run(views: Views, id_: RunId, now: int, frame: Frame) -> Shown:
    from collections import Counter

    from allswell.domain.expense import NOTHING_SPENT
    from allswell.domain.listing import TaskFilter
    from allswell.domain.run import last_of
    from allswell.doors.cli import buildshown, flowshown
    from allswell.doors.cli.limits import limit_of
    from allswell.doors.shapes.flow import FlowShape
    from allswell.doors.shapes.run import RunShape
    from allswell.doors.shapes.shown import ShownRunShape
    from allswell.doors.shapes.task import stands
    from allswell.engine.explaining.runs import waited_for

    runs = {run.id: run for run in await views.view_runs()}
    run = runs[id_]
    *earlier, last = last_of(run, runs)
    rows = {
        row.task.name if earlier else row.task.id: row
        for one in (*earlier, last)
        for row in await views.view_tasks(TaskFilter(run=one.id, limit=_LISTED))
    }
    counts = Counter(map(stands, rows.values()))
    spent = (await views.view_spent("run", (id_,))).get(id_, NOTHING_SPENT)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    more = f" (of the first {_LISTED:,})" if len(rows) == _LISTED else ""
    words = pairs(
        [
            ("run", f"{paint(plain(run.name), 'bold')}  {run.id}"),
            ("opened", when(run.created_at, now)),
            ("went on", "" if not earlier else f"{when(last.created_at, now)}, in {last.id}"),
            ("limit", limit_of(last, waited_for(last, await views.view_questions()), now)),
            ("ended", "" if last.ended_at is None else f"{when(last.ended_at, now)}: {plain(last.reason)}"),
            ("tasks", states + more if states else "none"),
            ("cost", cost_of(spent)),
        ]
    )
    base = flowshown.flow_of(frame.home, id_)
    if base is None:
        build, told = await buildshown.build_of(views, run)
        return ShownRunShape(RunShape.of(run, last, spent=spent), dict(counts), None, build), words + told
    shape = ShownRunShape(RunShape.of(run, last, base.record.run, spent), dict(counts), FlowShape.of(base), None)
    return shape, f"{words}\n{flowshown.words(base)}"
