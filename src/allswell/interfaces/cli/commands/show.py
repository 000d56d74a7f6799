"""`show`: one task, run or question with all that is known about it; where its work is, how its flow stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from allswell.domain.ids import is_file_name
from allswell.interfaces.cli.arguments import socket_of, tell
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument, Json, Store
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import (
    Column,
    block,
    harmless,
    paint,
    pairs,
    plain,
    sentence,
    short,
    table,
    typed_here,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.domain.ids import QuestionId
    from allswell.domain.receipts.receipt import Receipt
    from allswell.domain.receipts.step import StepReceipt
    from allswell.domain.run.run import Run
    from allswell.flows.run.folder import RunBase, RunRecord
    from allswell.views.receipt import WorkShape


if TYPE_CHECKING:
    from pathlib import Path

    from allswell.domain.agents.cost import Spent
    from allswell.domain.ids import QuestionId, RunId, TaskId
    from allswell.domain.task.model import Attempt, TaskRow
    from allswell.store.views import Views
    from allswell.views.detail import ShownQuestionShape, ShownRunShape, ShownTaskShape
    from allswell.views.message import RequestedShape

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
            help="A task, run, question or receipt; a name if only one task has it.",
            of=("task", "run", "question"),
        ),
    ],
    store: Store = None,
    json: Json = False,
) -> None:
    """Show everything about a task, a run, a question or a receipt.

    Inside a supervised attempt a request of its task (m_…) is shown by its supervisor, with its answer.
    """
    context = CliContext(store, json=json)
    socket = socket_of(store) if what.startswith("m_") else None
    if socket is not None and (asked := _own_request(socket, what)) is not None:
        context.say(*asked)
        return
    if what.startswith("rc_") or what.endswith(".json"):
        from allswell.interfaces.cli.commands.receipts import shown

        receipt = shown(context, what)
        if receipt is not None:
            context.say(*receipt)
            return

    async def work(views: Views) -> Shown:
        from allswell.domain.ids import QuestionId, RunId, TaskId
        from allswell.engine.lookup import find

        id_ = await find(views, what)
        now = (await views.view_agenda()).now
        if id_.startswith("q_"):
            return await _question(views, QuestionId(id_), now)
        if id_.startswith("r_"):
            return await _run(views, RunId(id_), now, context)
        return await _task(views, TaskId(id_), now, context)

    context.say(*context.look(work))


def _own_request(socket: str, request: str) -> tuple[RequestedShape, str] | None:
    """A request of the task that this process works on, as its supervisor knows it; None: it is another task's."""
    import msgspec

    from allswell.domain.ids import TaskId
    from allswell.errors import Refused
    from allswell.runtime.agent_socket import LookMessage
    from allswell.views.message import RequestedShape

    try:
        reply = tell(socket, LookMessage(request=TaskId(request)))
    except Refused as refused:
        if refused.code == "unknown_request":
            return None
        raise
    state = reply.state or "open"
    result = msgspec.json.decode(reply.result)
    text = result if isinstance(result, str) else msgspec.json.format(bytes(reply.result), indent=2).decode()
    shown = [("request", request), ("state", state), ("answer", "" if state in ("open", "blocked") else harmless(text))]
    return RequestedShape.of(request, state, result), pairs(shown)


async def _task(views: Views, id_: TaskId, now: int, context: CliContext) -> Shown:
    from msgspec import Raw

    from allswell.domain.agents.cost import shown, together, usd
    from allswell.domain.ids import question_id
    from allswell.domain.lease.cost import limit_of
    from allswell.domain.task.model import State

    # moved
    # moved
    from allswell.engine.status.task import outcome
    from allswell.interfaces.cli.commands.receipts import left_by
    from allswell.views.attempt import AttemptShape, ProofShape
    from allswell.views.detail import ShownTaskShape
    from allswell.views.question import QuestionShape
    from allswell.views.run import SpentShape
    from allswell.views.task import TaskShape

    row = await views.view_task(id_)
    assert row is not None  # noqa: S101 - it was just found, and tasks are never deleted
    payload, result = await views.view_payload(id_)
    attempts = await views.view_attempts(id_)
    told = {row.token: row for row in await views.view_expenses(id_)}
    spent = together(told.values())
    asked = [await views.view_question(question_id(id_, number)) for number in range(1, row.task.record.questions + 1)]
    worktree = worktree_left(context, id_)
    parts = [_facts(row, now, spent, attempts[-1].warning if attempts else "", worktree)]
    if payload and payload != "null":
        parts.append(f"{paint('payload', 'dim')}\n{block(payload, '  ')}")
    if result is not None:
        claimed = "result" if row.task.state == State.DONE else "result (not verified)"
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
    left = left_by(context, id_, [ended.token for ended in attempts])
    work = brought_home(context, id_)
    if work is not None:
        parts.append(work_text(work))
    if left:
        nexts = (f"  {typed_here(f'allswell show {one}')}" for one in left)
        parts.append("\n".join([paint("receipts", "dim"), *nexts]))
    from allswell.interfaces.cli.commands.tasks import told_question

    parts += [told_question(question, row.task.name, now) for question in asked if question is not None]
    shape = ShownTaskShape(
        task=TaskShape.of(row),
        payload=Raw((payload or "null").encode()),
        result=Raw((result or "null").encode()),
        attempts=[AttemptShape.of(attempt, told.get(attempt.token)) for attempt in attempts],
        questions=[QuestionShape.of(question) for question in asked if question is not None],
        notes=row.task.record.notes,
        receipt_ids=left,
        work=work_view(work),
        worktree=None if worktree is None else plain(str(worktree)),
        spent=SpentShape.of(spent),
        max_cost_usd=usd(limit_of(row.task)),
        verification=ProofShape.of(row),
    )
    return shape, "\n\n".join(parts)


def cost_of(spent: Spent, limit: int | None = None) -> str:
    """What attempts have cost, in words; empty where nobody said anything and nothing limits it."""
    from allswell.domain.agents.cost import shown

    if not spent.attempts and limit is None:
        return ""
    most = "" if limit is None else f" of at most {shown(limit)}"
    tokens = "" if spent.tokens is None else f", {spent.tokens:,} tokens"
    return f"{shown(spent.cost)}{most}{tokens}"


def _facts(row: TaskRow, now: int, spent: Spent, warning: str, worktree: Path | None) -> str:
    from allswell.domain.duration import show as length
    from allswell.domain.lease.cost import limit_of as max_cost
    from allswell.domain.task.answer import is_dismissed
    from allswell.engine.status.task import verified_by
    from allswell.interfaces.cli.commands.tasks import about
    from allswell.views.task import stands

    task, lease, spec = row.task, row.lease, row.task.spec
    state = stands(row)
    extra = about(row, state, now)
    held = "" if lease is None else f"{plain(lease.agent)}, token {lease.token}, for {short(now - lease.granted_at)}"
    return pairs(
        [
            ("task", f"{paint(plain(task.name), 'bold')}  {task.id}"),
            ("state", paint(state, state) + (f"  {plain(extra)}" if extra else "")),
            ("warning", paint(plain(warning), "warning") if warning else ""),
            ("held by", held),
            ("role", plain(task.role)),
            ("priority", str(task.priority) if task.priority else ""),
            ("run", task.run or ""),
            ("services", plain(", ".join(spec.services))),
            ("needs", ", ".join(spec.needs)),
            (
                "limit",
                "no limit"
                if task.timeout is None
                else f"{length(task.timeout)} for each attempt" + (" (raised)" if task.record.timeout_override else ""),
            ),
            ("cost", cost_of(spent, max_cost(task))),
            ("verified by", plain(verified_by(row))),
            ("worktree", plain(str(worktree or ""))),
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
    from allswell.domain.lease.late import afterwards
    from allswell.engine.status.explanation import many

    after = afterwards(ended)
    said = [word.verb for word in after.words] + ([f"{after.more} more"] if after.more else [])
    if after.checkins:
        said.append(many(after.checkins, "check-in") + (f": {plain(after.note)}" if after.note else ""))
    if not said and ended.late is not None:
        said = ["a result"]
    return f" (late, kept: {', '.join(said)})" if said else ""


async def _question(views: Views, id_: QuestionId, now: int) -> Shown:
    from allswell.interfaces.cli.commands.tasks import subject, told_question
    from allswell.views.detail import ShownQuestionShape
    from allswell.views.question import QuestionShape

    question = await views.view_question(id_)
    assert question is not None  # noqa: S101 - it was just found, and questions are never deleted
    shape = ShownQuestionShape(QuestionShape.of(question))
    return shape, told_question(question, await subject(views, question), now)


async def _run(views: Views, id_: RunId, now: int, context: CliContext) -> Shown:
    from collections import Counter

    from allswell.domain.agents.cost import NOTHING_SPENT
    from allswell.domain.run.run import last_of
    from allswell.domain.task.model import TaskFilter

    # moved
    from allswell.engine.status.why import waited_for
    from allswell.interfaces.cli import flow_display
    from allswell.views.detail import ShownRunShape
    from allswell.views.flow import FlowShape
    from allswell.views.run import RunShape
    from allswell.views.task import stands

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
    base = flow_of(context.home, id_)
    if base is None:
        build, told = await flow_display.build_of(views, run)
        return ShownRunShape(RunShape.of(run, last, spent=spent), dict(counts), None, build), words + told
    shape = ShownRunShape(RunShape.of(run, last, base.record.run, spent), dict(counts), FlowShape.of(base), None)
    return shape, f"{words}\n{flow_text(base)}"


# Where the work of a task is that had a worktree of its own and has ended well: for `show`, `why` and `recover`.

_FILES = 20
_MERGED = {True: "merged", False: "not merged", None: "not known whether it is merged"}


def brought_home(context: CliContext, task: str) -> Receipt | None:
    """The last receipt of a task that tells of a branch."""
    from allswell.runtime.receipts import Receipts

    kept = Receipts(context.home / "receipts")
    if not is_file_name(task):
        return None
    pattern = f"rc_{task.removeprefix('t_')}.*.json"
    ids = sorted((path.stem for path in kept.folder.glob(pattern)), key=lambda id_: int(id_.rpartition(".")[2] or 0))
    found = [one.receipt for id_ in ids if (one := kept.find(id_)) is not None and one.receipt.branch is not None]
    return found[-1] if found else None


def worktree_left(context: CliContext, task: str) -> Path | None:
    """The worktree of a task that is still there: what its attempts left may not be committed."""
    if context.is_elsewhere or not is_file_name(task):
        return None
    path = (context.home / "worktrees" / task).absolute()
    return path if (path / ".git").exists() else None


def work_view(receipt: Receipt | None) -> WorkShape | None:
    """It as data; None if there is nothing to tell."""
    if receipt is None or receipt.branch is None:
        return None
    from allswell.views.receipt import WorkShape

    return WorkShape.of(receipt, receipt.branch, merged=_merged(receipt))


def work_text(receipt: Receipt) -> str:
    """It for people: where it is, what changed, what to type."""
    from allswell.domain.receipts.receipt import where_it_is

    merged = _merged(receipt)
    head = " ".join(where_it_is(receipt))
    if receipt.advice.merge:
        head = f"{head} It is {_MERGED[merged]}." if merged is not None else f"{head} {_MERGED[None].capitalize()}."
    lines = [f"  {one.how} {plain(one.path)}" for one in receipt.changed[:_FILES]]
    more = len(receipt.changed) + receipt.changed_more - _FILES
    lines += [f"  and {more} more"] if more > 0 else []
    typed = [*receipt.advice.look[1:], *(() if merged else receipt.advice.merge)]
    return "\n".join([paint("work", "dim"), sentence(plain(head)), *lines, *(f"  {plain(one)}" for one in typed)])


def _merged(receipt: Receipt) -> bool | None:
    from allswell.runtime.workspace.worktree import is_merged

    branch = receipt.branch
    return None if branch is None or branch.commit == branch.base else is_merged(branch)


# How the limit of a run is told: when its time is up, or what its clock stands for.


def limit_of(run: Run, asked: Sequence[QuestionId], now: int) -> str:
    """The limit of a run that has not ended, in words; `asked` are the questions that its clock stands for."""
    from allswell.domain.run.run import time_left

    left = time_left(run, now)
    if left is None or run.ended_at is not None:
        return ""
    if run.limit is not None:
        return when(run.limit, now)
    named = asked[0] if asked else "a question"
    more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
    are = "is" if len(asked) <= 1 else "are"
    return f"its time limit is paused while {named}{more} {are} open ({short(left)} left)"


# A flow's run as `show` and `runs` tell it: its folder, its steps, and its timeouts.

_LISTED_STEPS = 200


def flow_of(home: Path, run: str) -> RunBase | None:
    """The folder of a run, where it is a flow's."""
    from allswell.errors import Refused
    from allswell.flows.run.folder import find_base

    try:
        return find_base(home, run)
    except Refused:
        return None


def flows_in(home: Path) -> dict[str, RunRecord]:
    """Which runs of the store are a flow's, and whose folder is theirs."""
    from allswell.flows.run.folder import all_records

    return {run: record for record in all_records(home) for run in record.runs}


def flow_text(base: RunBase) -> str:
    """A flow's run in words: where it is, and what each step has come to."""
    record = base.record
    facts = pairs(
        [
            ("flow", plain(record.flow)),
            ("file", plain(record.file)),
            ("folder", plain(record.folder)),
            ("inputs", plain(", ".join(f"{name}={value}" for name, value in record.inputs.items()))),
            ("files", base.shown(base.flow)),
            ("resumed", "" if len(record.runs) == 1 else f"{len(record.runs) - 1} times in a run of its own"),
            ("timeouts", _timeouts(base)),
        ]
    )
    receipts = base.all_receipts()
    if not receipts:
        return facts
    last: dict[str, StepReceipt] = {}
    spent: dict[str, int] = {}
    for one in receipts:
        last[one.step_id] = one
        spent[one.step_id] = spent.get(one.step_id, 0) + one.duration_ms
    rows = [_row(one, spent[name]) for name, one in list(last.items())[:_LISTED_STEPS]]
    columns = (
        Column("STEP", 12),
        Column("LAST"),
        Column("ATTEMPT", None, right=True),
        Column("TOOK", None, right=True),
        Column("", 16),
    )
    more = f"\n… {len(last) - _LISTED_STEPS:,} more" if len(last) > _LISTED_STEPS else ""
    return f"{facts}\n\n{table(columns, rows)}{more}"


def _row(one: StepReceipt, spent: int) -> list[str]:
    from allswell.domain.duration import show

    return [one.step_id, one.status, str(one.attempt), show(spent), one.error or ""]


def _timeouts(base: RunBase) -> str:
    from collections import Counter

    counted = Counter((line.scope.value, line.final_action.value) for line in base.all_timeouts())
    return ", ".join(f"{count} of a {scope} ({action})" for (scope, action), count in counted.items())
