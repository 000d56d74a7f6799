"""`show`: one task, run or question with all that is known about it; where its work is, how its flow stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from allswell.domain.duration import show as length
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.engine.status.explanation import many, typed
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument
from allswell.interfaces.cli.registry import LOOKING, Commands
from allswell.interfaces.cli.rendering import (
    Column,
    as_json,
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
    from allswell.domain.agents.cost import Spent
    from allswell.domain.run.run import Run
    from allswell.store.views import Views
    from allswell.views.attempt import AttemptShape, ProofShape
    from allswell.views.detail import ShownQuestionShape, ShownRunShape, ShownTaskShape
    from allswell.views.flow import FlowShape
    from allswell.views.lease import RequestedShape
    from allswell.views.question import QuestionShape
    from allswell.views.receipt import WorkShape
    from allswell.views.run import SpentShape
    from allswell.views.task import TaskShape

    Shown = tuple[ShownTaskShape | ShownRunShape | ShownQuestionShape, str]


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
    *,
    context: CliContext,
) -> None:
    """Show everything about a task, a run, a question or a receipt.

    Inside a supervised attempt a request of its task (m_…) is shown by its supervisor, with its answer.
    """
    socket = context.socket if what.startswith("m_") else None
    if socket is not None and (asked := _own_request(socket, what)) is not None:
        context.say(*asked)
        return
    if what.startswith("rc_") or what.endswith(".json"):
        from allswell.interfaces.cli.commands.receipts import shown_receipt

        receipt = shown_receipt(context, what)
        if receipt is not None:
            context.say(*receipt)
            return
    context.say(*context.look(lambda views: _find_and_show(views, what, context)))


async def _find_and_show(views: Views, what: str, context: CliContext) -> Shown:
    from allswell.engine.lookup import find
    from allswell.views.detail import load_question, load_run, load_task

    id_ = await find(views, what)
    now = (await views.view_agenda()).now
    if id_.startswith("q_"):
        question = await load_question(views, id_)
        return question, question_text(question.question, await subject(views, question.question), now)
    if id_.startswith("r_"):
        run = await load_run(views, context.artifacts, id_)
        return run, await _run_text(views, run, now)
    task = await load_task(views, context.artifacts, id_)
    return task, _task_text(task, now)


def _own_request(socket: str, request: str) -> tuple[RequestedShape, str] | None:
    """A request of the task that this process works on, as its supervisor knows it; None: it is another task's."""
    from allswell.actions.holder import at_once, blocking

    try:
        came = at_once(blocking(socket).requested(request))
    except Refused as refused:
        if refused.code == "unknown_request":
            return None
        raise
    from allswell.domain.agents.result import answer_text

    result = "" if came.state in ("open", "blocked") else answer_text(came.result)
    answer = harmless(result if isinstance(result, str) else as_json(result))
    return came, pairs([("request", request), ("state", came.state), ("answer", answer)])


def _task_text(shown: ShownTaskShape, now: int) -> str:
    from allswell.engine.status.task import outcome

    task = shown.task
    parts = [_facts(shown, now)]
    payload, result = bytes(shown.payload).decode(), bytes(shown.result).decode()
    if payload != "null":
        parts.append(f"{paint('payload', 'dim')}\n{block(payload, '  ')}")
    if result != "null" or task.state == "done":
        missing = "accepted" if shown.verification is None else "verified"
        claimed = "result" if task.state == "done" else f"result (not {missing})"
        parts.append(f"{paint(claimed, 'dim')}\n{block(_result_text(result), '  ')}")
    if shown.attempts:
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
                ended.agent_id,
                when(ended.granted_at, now),
                short(ended.ended_at - ended.granted_at),
                dollars(ended.cost_usd, estimated=ended.cost_estimated) if shown.spent.attempts else "",
                outcome(ended.outcome, ended.detail) + _came_late(ended),
            ]
            for ended in shown.attempts
        ]
        parts.append(table(columns, rows))
    if shown.work is not None:
        parts.append(work_text(shown.work))
    if shown.receipt_ids:
        nexts = (f"  {typed_here(f'allswell show {one}')}" for one in shown.receipt_ids)
        parts.append("\n".join([paint("receipts", "dim"), *nexts]))
    parts += [question_text(question, task.name, now) for question in shown.questions]
    return "\n\n".join(parts)


def _result_text(result: str) -> str:
    """A result as JSON; an agent's last message as text."""
    from allswell.domain.agents.result import result_in_words

    return result_in_words(msgspec.json.decode(result)) or result


def dollars(amount: float | None, *, estimated: bool = False) -> str:
    """An amount of money in words; None is unknown."""
    from allswell.domain.agents.cost import USD, shown

    return shown(None if amount is None else round(amount * USD), estimated=estimated)


def cost_of(spent: Spent | SpentShape, limit: float | None = None, max_tokens: int | None = None) -> str:
    """What attempts have cost, in words; empty where nobody said anything and nothing limits it."""
    if not spent.attempts and limit is None and max_tokens is None:
        return ""
    most = "" if limit is None else f" of at most {dollars(limit)}"
    cost = f"{dollars(spent.cost_usd, estimated=spent.estimated > 0)}{most}"
    known = [count for count in (spent.given, spent.written) if count is not None]
    if max_tokens is not None:
        return f"{cost}, {sum(known):,} of at most {max_tokens:,} tokens"
    return f"{cost}, {sum(known):,} tokens" if known else cost


def _facts(shown: ShownTaskShape, now: int) -> str:
    from allswell.interfaces.cli.commands.tasks import about

    task = shown.task
    extra = about(task, now)
    since = "" if task.granted_at is None else f", for {short(now - task.granted_at)}"
    held = "" if task.agent_id is None else f"{plain(task.agent_id)}, token {task.token}{since}"
    warning = shown.attempts[-1].warning if shown.attempts else ""
    limit = "no limit" if task.timeout_ms is None else f"{length(task.timeout_ms)} for each attempt"
    return pairs(
        [
            ("task", f"{paint(plain(task.name), 'bold')}  {task.task_id}"),
            ("state", paint(task.state, task.state) + (f"  {plain(extra)}" if extra else "")),
            ("warning", paint(plain(warning), "warning") if warning else ""),
            ("held by", held),
            ("role", plain(task.role)),
            ("priority", str(task.priority) if task.priority else ""),
            ("run", task.run_id or ""),
            ("services", plain(", ".join(task.services))),
            ("needs", ", ".join(task.needs)),
            ("limit", limit + (" (raised)" if task.timeout_raised else "")),
            ("cost", cost_of(shown.spent, shown.max_cost_usd, shown.max_tokens)),
            ("verified by", "" if shown.verification is None else plain(_proof(shown.verification, task))),
            ("worktree", plain(shown.worktree or "")),
            ("retry of", task.retry_of_id or ""),
            ("retried as", task.retried_as_id or ""),
            ("dismissed", f"by {plain(task.dismissed_by)}" if task.dismissed_by else ""),
            ("submitted", when(task.created_at, now)),
            ("ended", "" if task.ended_at is None else when(task.ended_at, now)),
            ("notes", "\n".join(map(harmless, shown.notes))),
        ]
    )


def _proof(proof: ProofShape, task: TaskShape) -> str:
    """What verifies a task, and how that stands, on a line."""
    from allswell.domain.lease.verification import ACCEPTED

    parts = [proof.command]
    if task.ended_at is not None:
        ended = "accepted as it is" if task.reason == ACCEPTED else "passed"
        return f"{proof.command}; {ended}" if task.state == "done" else proof.command
    if proof.said_done:
        parts.append("said to be done")
    if proof.failures:
        parts.append(f"failed ({proof.failures[-1].why}), {proof.failed} of {proof.most}")
    return "; ".join(parts)


def _came_late(ended: AttemptShape) -> str:
    """What its holder still said after the attempt had ended, in short."""
    said = [word.verb for word in ended.late_words]
    said += [f"{ended.late_words_more} more"] if ended.late_words_more else []
    if ended.late_checkin is not None:
        note = ended.late_checkin.note
        said.append(many(ended.late_checkins, "check-in") + (f": {plain(note)}" if note else ""))
    if not said and ended.late is not None:
        said = ["a result"]
    return f" (late, kept: {', '.join(said)})" if said else ""


async def _run_text(views: Views, shown: ShownRunShape, now: int) -> str:
    from allswell.domain.task.model import count_in_order
    from allswell.engine.status.why import waited_for
    from allswell.interfaces.cli import flow_display
    from allswell.views.detail import chain_of

    run = shown.run
    *earlier, last = await chain_of(views, RunId(run.run_id))
    states = ", ".join(f"{count} {state}" for state, count in count_in_order(shown.tasks))
    words = pairs(
        [
            ("run", f"{paint(plain(run.name), 'bold')}  {run.run_id}"),
            ("opened", when(run.created_at, now)),
            ("went on", "" if not earlier else f"{when(last.created_at, now)}, in {last.id}"),
            ("limit", limit_of(last, waited_for(last, await views.view_questions()), now)),
            ("ended", "" if run.ended_at is None else f"{when(run.ended_at, now)}: {plain(run.reason or '')}"),
            ("tasks", states or "none"),
            ("cost", cost_of(run.spent)),
        ]
    )
    if shown.flow is not None:
        return f"{words}\n{flow_text(shown.flow)}"
    return words if shown.build is None else f"{words}\n{flow_display.build_text(shown.build)}"


# Where the work of a task is that had a worktree of its own and has ended well: for `show`, `why` and `recover`.

_FILES = 20
_MERGED = {True: "merged", False: "not merged", None: "not known whether it is merged"}


def work_text(work: WorkShape) -> str:
    """It for people: where it is, what changed, what to type."""
    from allswell.domain.receipts.receipt import Branch, where_it_is

    branch = Branch(
        repository=work.repository,
        name=work.branch or "",
        base=work.base,
        commit=work.commit,
        worktree=work.worktree,
        uncommitted=work.uncommitted,
    )
    head = " ".join(where_it_is(branch, work.files))
    if work.merge:
        known = work.merged is not None
        head = f"{head} It is {_MERGED[work.merged]}." if known else f"{head} {_MERGED[None].capitalize()}."
    lines = [f"  {one.how} {plain(one.path)}" for one in work.changed[:_FILES]]
    more = work.files - _FILES
    lines += [f"  and {more} more"] if more > 0 else []
    commands = [*work.look[1:], *(() if work.merged else work.merge)]
    return "\n".join([paint("work", "dim"), sentence(plain(head)), *lines, *(f"  {plain(one)}" for one in commands)])


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


def flow_text(flow: FlowShape) -> str:
    """A flow's run in words: where it is, and what each step has come to."""
    from allswell.domain.duration import show

    counted = Counter((line.scope.value, line.final_action.value) for line in flow.timeouts)
    facts = pairs(
        [
            ("flow", plain(flow.flow)),
            ("file", plain(flow.file or "")),
            ("folder", plain(flow.folder)),
            ("inputs", plain(", ".join(f"{name}={value}" for name, value in flow.inputs.items()))),
            ("files", plain(f"{flow.base}/{flow.flow}".removeprefix(f"{flow.folder}/"))),
            ("resumed", "" if len(flow.run_ids) == 1 else f"{len(flow.run_ids) - 1} times in a run of its own"),
            ("timeouts", ", ".join(f"{count} of a {scope} ({action})" for (scope, action), count in counted.items())),
        ]
    )
    if not flow.receipts:
        return facts
    last = {one.step_id: one for one in flow.receipts}
    spent = Counter[str]()
    for one in flow.receipts:
        spent[one.step_id] += one.duration_ms
    rows = [
        [name, one.status, str(one.attempt), show(spent[name]), one.error or ""]
        for name, one in list(last.items())[:_LISTED_STEPS]
    ]
    columns = (
        Column("STEP", 12),
        Column("LAST"),
        Column("ATTEMPT", None, right=True),
        Column("TOOK", None, right=True),
        Column("", 16),
    )
    more = f"\n… {len(last) - _LISTED_STEPS:,} more" if len(last) > _LISTED_STEPS else ""
    return f"{facts}\n\n{table(columns, rows)}{more}"


# A question in words.


async def subject(views: Views, question: QuestionShape) -> str:
    """The name of what a question is about."""
    if question.queue is not None:
        return f"message {question.message_id} of queue {question.queue}"
    if question.task_id is None:
        from allswell.engine.status.services import named

        return named(question.service or "")

    row = await views.view_task(TaskId(question.task_id))
    return question.task_id if row is None else row.task.name


def question_text(question: QuestionShape, name: str, now: int) -> str:
    """A question in words, with what to type."""
    asker = f" by {plain(question.asked_by)}" if question.asked_by else ""
    seen = f", dismissed by {plain(question.dismissed_by)}" if question.dismissed_at is not None else ""
    asked = f"asked{asker} {when(question.asked_at, now)}{seen}"
    head = f"{paint(question.question_id, 'bold')}  {plain(name)}, {asked}"
    lines = [sentence(head), block(question.text, "  ")]
    if question.closed_at is not None:
        lines.append(block(_closed(question, now), "  "))
        return "\n".join(lines)
    width = max((len(option.key) for option in question.options), default=0)
    for one in question.options:
        lines.append(f"    {plain(one.key).ljust(width)}  {plain(one.label)}")
        lines.append(paint(f"    {' ' * width}  {one.does}", "dim"))
    lines.append(paint("  " + typed_here(f"{typed('answer', question.question_id)} OPTION [TEXT]"), "dim"))
    return "\n".join(lines)


def _closed(question: QuestionShape, now: int) -> str:
    """How a question ended."""
    moment = when(now if question.closed_at is None else question.closed_at, now)
    if question.choice == "withdrawn":
        return f"→ withdrawn {moment}: its task ended without an answer"
    by = f" by {question.answered_by}" if question.answered_by else ""
    said = f": {question.answer}" if question.answer else ""
    return f"→ {question.choice}, answered{by} {moment}{said}"
