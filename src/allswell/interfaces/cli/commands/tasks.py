"""`tasks`, `runs`, `questions`, and the short decisions `cancel` and `unpark`.

`show` and `events` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from allswell.domain.ids import can_name
from allswell.errors import Refused
from allswell.interfaces.cli.commands import show
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, LOOKING, Commands
from allswell.interfaces.cli.rendering import Column, in_words, paint, short, table, typed_here, when

if TYPE_CHECKING:
    from allswell.domain.task.model import TaskRow
    from allswell.engine.status.services import TaskFacts
    from allswell.store.views import Views
    from allswell.views.task import TaskShape


_PAGE = 100
_MOST = 1_000_000
Limit = Annotated[int, Option("--limit", "-n", metavar="N", min=1, max=_MOST, help="Maximum number of results.")]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(LOOKING, "runs", runs, "allswell runs --json")
    app.add(
        LOOKING,
        "tasks",
        tasks,
        "allswell tasks                             what is open",
        "allswell tasks --state failed --state held",
        "allswell tasks --all --limit 10000 --json",
    )
    app.add(DECIDING, "questions", questions, "allswell questions", "allswell questions --all")
    app.add(DECIDING, "unpark", unpark, "allswell unpark anthropic              its limit was raised")
    app.add(DECIDING, "cancel", cancel, 'allswell cancel "write the changelog" "not needed any more"')


# --- tasks ------------------------------------------------------------------------------------------------------------


def tasks(
    state: Annotated[
        list[str] | None,
        Option(
            "--state",
            "-s",
            metavar="STATE",
            help="waiting, delayed, ready, held, done, failed …; repeatable.",
            of=("state",),
        ),
    ] = None,
    all_: Annotated[bool, Option("--all", "-a", help="Also tasks that have ended.")] = False,
    run: Annotated[str | None, Option("--run", metavar="RUN", help="Only tasks of this run.", of=("run",))] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Only tasks with this name.")] = None,
    role: Annotated[str | None, Option("--role", "-r", metavar="ROLE", help="Only tasks of this role.")] = None,
    after: Annotated[str, Option("--after", metavar="ID", help="List tasks after this id: the next page.")] = "",
    limit: Limit = _PAGE,
    *,
    context: CliContext,
) -> None:
    """List open tasks, the oldest first; with --all or --state, other tasks too."""
    from allswell.views.task import TasksShape, load_names, load_tasks

    states = tuple(_state(one) for one in state or ())
    _check_text(name=name, role=role, after=after)

    async def work(views: Views) -> tuple[list[TaskRow], bool, dict[str, int], dict[str, str], TaskFacts]:
        from allswell.engine.status.services import TaskFacts, fill_for_ready

        page, more = await load_tasks(
            views, states=states, ended=all_, run=run, name=name, role=role, after=after, limit=limit
        )
        counts = {} if context.json or page else await views.view_counts()
        names = {} if context.json else await load_names(views, page)
        facts = TaskFacts((await views.view_agenda()).now)
        if not context.json and any(row.ready for row in page):
            await fill_for_ready(views, facts, context.pause)
        return page, more, counts, names, facts

    page, more, counts, names, facts = context.look(work, or_empty=True)
    if context.json:
        context.say(TasksShape.of(page, more=more))
        return
    if not page:
        context.say(None, context.none(_none(counts, filtered=bool(states or run or name or role or after))))
        return
    lines = [table(_COLUMNS, [_row(row, names, facts) for row in page], styled=2)]
    if more:
        lines.append(paint(f"more: add --after {page[-1].task.id}, or --limit", "dim"))
    context.say(None, "\n".join(lines))


_COLUMNS = (
    Column("ID"),
    Column("NAME", 24),
    Column("STATE"),
    Column("ROLE", 6, spare=True),
    Column("AGENT", 6),
    Column("AGE", None, right=True),
    Column("", 12),
)


def _row(row: TaskRow, names: dict[str, str], facts: TaskFacts) -> list[str]:
    from allswell.engine.status.services import held_up
    from allswell.views.task import TaskShape

    task = row.task
    agent = "" if row.lease is None else row.lease.agent
    state, said = row.state, ""
    if row.ready and (kept := held_up(task, facts)) is not None:
        state = "parked" if kept.next is not None else "waiting"
        said = kept.says.removeprefix("cannot be claimed: ")
    said = said or about(TaskShape.of(row), facts.now, names)
    return [task.id, task.name, state, task.role, agent, short(facts.now - task.created_at), said]


def about(task: TaskShape, now: int, names: Mapping[str, str] = {}) -> str:
    """What is worth saying about a task in one line, beside where it stands."""
    if task.state == "held":
        share = "" if task.progress is None else f"{task.progress:.0%}"
        said = task.note and f"“{task.note}”"
        heard = "" if task.checkin_at is None else f"heard {when(task.checkin_at, now)}"
        limit = "no limit" if task.deadline is None else f"limit {when(task.deadline, now)}"
        return ", ".join(part for part in (share, said, heard, limit) if part)
    if task.state == "waiting":
        waits = task.waits_for
        asked = any(wait.kind == "question" for wait in waits)
        needed = [names.get(wait.task_id, wait.task_id) for wait in waits if wait.task_id is not None]
        answers = [names.get(wait.request_id, wait.request_id) for wait in waits if wait.request_id is not None]
        first = [*(f"for the answer to {name}" for name in answers), *(f"for {name}" for name in needed[:1])]
        more = [f"{len(needed) - 1} more"] if len(needed) > 1 else []
        return ", ".join(["for a human"] * asked + first + more)
    if task.state == "delayed" and task.due_at is not None:
        due = task.due_at
        return f"until {when(due, now)}" if due <= now else f"ready {when(due, now)}"
    return task.reason or ""


def _state(given: str) -> str:
    from allswell.domain.task.model import State
    from allswell.engine.lookup import did_you_mean

    if given in list(State):
        return given
    hint = did_you_mean(given, State) or f"; choose one of: {', '.join(State)}"
    raise Refused("bad_state", f"--state: {given!r} is not a state of a task{hint}", where="--state")


def _check_text(**given: str | None) -> None:
    """No row has what no store can hold; asking for it is a mistake."""
    for name, text in given.items():
        if text and not can_name(text):
            raise Refused("bad_text", f"--{name} contains characters that no task can have", where=f"--{name}")


def _none(counts: dict[str, int], *, filtered: bool) -> str:
    if not counts:
        return "No tasks."
    if filtered:
        return "No task matches."
    ended = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return in_words(f"No open tasks ({ended}). `allswell tasks --all` lists them.")


# --- questions -----------------------------------------------------------------------------------------------


def questions(
    all_: Annotated[bool, Option("--all", "-a", help="Also questions that were answered.")] = False,
    limit: Limit = _PAGE,
    *,
    context: CliContext,
) -> None:
    """List open questions, the oldest first."""
    from allswell.views.question import QuestionsShape, load_questions

    async def work(views: Views) -> tuple[QuestionsShape, dict[str, str], int]:
        listed = await load_questions(views, context.artifacts, limit, open_only=not all_)
        names = {} if context.json else {one.question_id: await show.subject(views, one) for one in listed.questions}
        return listed, names, (await views.view_agenda()).now

    listed, names, now = context.look(work, or_empty=True)
    alerts = any(spec.kind == "alerts" for spec in context.known_sinks)
    words = []
    for question in listed.questions:
        words.append(show.question_text(question, names.get(question.question_id, ""), now))
        if alerts and question.question_id in listed.untold:
            words[-1] += "\n" + paint("  No alert about it was delivered: " + typed_here("allswell deliveries"), "warn")
    context.say(listed, "\n\n".join(words) or context.none("No question is open."))


# --- deciding ---------------------------------------------------------------------------------------------------------


def cancel(
    what: Annotated[
        str, Argument(metavar="ID", help="A task or a run: its id, or its name if only one has it.", of=("task", "run"))
    ],
    reason: Annotated[str, Argument(metavar="REASON", help="Reason, for the record.")] = "cancelled",
    *,
    context: CliContext,
) -> None:
    """Cancel a task, also while an agent works on it, or a run with all its tasks."""
    context.show(context.decide("cancel", lambda operator: operator.cancel(what, reason)))


# --- services ---------------------------------------------------------------------------------------------------------


def unpark(
    service: Annotated[str, Argument(metavar="SERVICE", help="A service or an account that is paused.")],
    *,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who decides. Default: you.")] = None,
    context: CliContext,
) -> None:
    """Use a service again that was paused after a limit or after errors.

    If it still refuses, it is paused again.
    """
    context.show(context.decide("unpark", lambda operator: operator.unpark(service), by=by))


# `runs`: what was opened, how long it may take, what it has cost.

_RUN_COLUMNS = (
    Column("ID"),
    Column("NAME", 12),
    Column("OPENED"),
    Column("LIMIT", 12),
    Column("ENDED", 12),
    Column("COST", None, right=True),
    Column("FLOW", 8, spare=True),
)


def runs(limit: Limit = _PAGE, *, context: CliContext) -> None:
    """List runs, the newest first."""
    from allswell.engine.status.why import waited_for
    from allswell.views.run import RunsShape, load_runs

    async def work(views: Views) -> tuple[RunsShape, dict[str, str], int]:
        listed, now = await load_runs(views, context.artifacts, limit), (await views.view_agenda()).now
        if context.json:
            return listed, {}, now
        rows, questions = await views.view_runs(limit), await views.view_questions()
        return listed, {run.id: show.limit_of(run, waited_for(run, questions), now) for run in rows}, now

    listed, limits, now = context.look(work, or_empty=True)
    rows = []
    for run in listed.runs:
        ended = "" if run.ended_at is None else f"{run.reason or 'ended'}, {when(run.ended_at, now)}"
        cost = show.dollars(run.spent.cost_usd, estimated=run.spent.estimated > 0) if run.spent.attempts else ""
        flow = "flow" if run.flow_run_id == run.run_id else run.flow_run_id or ""
        opened = when(run.created_at, now)
        rows.append([run.run_id, run.name, opened, limits.get(run.run_id, ""), ended, cost, flow])
    none = in_words("No runs. `allswell submit NAME --run RUN --run-timeout 8h` opens one.")
    context.say(listed, table(_RUN_COLUMNS, rows) if rows else context.none(none))
