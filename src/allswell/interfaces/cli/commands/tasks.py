"""`tasks`, `runs`, `questions`, and the short decisions `cancel` and `unpark`.

`show` and `events` have modules of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from allswell.engine.status.explanation import typed
from allswell.errors import Refused
from allswell.interfaces.cli.commands import show
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument, Json, Option, Store
from allswell.interfaces.cli.registry import DECIDING, LOOKING, Commands
from allswell.interfaces.cli.rendering import Column, block, in_words, paint, plain, sentence, table, typed_here, when

if TYPE_CHECKING:
    from allswell.domain.agents.cost import Spent
    from allswell.domain.question import Question
    from allswell.domain.run.run import Run
    from allswell.domain.task.model import TaskRow
    from allswell.engine.status.services import Facts
    from allswell.engine.watch import Watch
    from allswell.store.views import Views


_PAGE = 100
_MOST = 1_000_000
_LOOKED_UP = 200
Limit = Annotated[int, Option("--limit", "-n", metavar="N", min=1, max=_MOST, help="Maximum number of results.")]


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    _add_runs(app)
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
    store: Store = None,
    json: Json = False,
) -> None:
    """List open tasks, the oldest first; with --all or --state, other tasks too."""
    from allswell.domain.task.model import TaskFilter
    from allswell.views.task import TasksShape

    context = CliContext(store, json=json)
    states = tuple(_state(one) for one in state or ())
    open_ = None if all_ or states or name is not None else True
    _check_text(name=name, role=role, after=after)

    async def work(views: Views) -> tuple[list[TaskRow], int, dict[str, int], dict[str, str], Facts]:
        from allswell.engine.lookup import find_run
        from allswell.engine.status.services import Facts, fill_for_ready

        of_run = None if run is None else await find_run(views, run)
        which = TaskFilter(open_, of_run, name, role, states, after, limit + 1)
        found = await views.view_tasks(which)
        counts = {} if json or found else await views.view_counts()
        names = {} if json else await _names(views, found)
        facts = Facts((await views.view_agenda()).now)
        if not json and any(row.ready for row in found):
            await fill_for_ready(views, facts, context.place.pause)
        return found, facts.now, counts, names, facts

    found, now, counts, names, facts = context.look(work, or_empty=True)
    page, more = found[:limit], len(found) > limit
    if json:
        context.say(TasksShape.of(page, more=more))
        return
    if not page:
        context.say(None, context.none(_none(counts, filtered=bool(states or run or name or role or after))))
        return
    lines = [table(_COLUMNS, [_row(row, now, names, facts) for row in page], styled=2)]
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


async def _names(views: Views, rows: list[TaskRow]) -> dict[str, str]:
    """The names of what tasks wait for: most stand on the same page, a few more are looked up."""
    from allswell.domain.ids import TaskId
    from allswell.domain.task.model import TaskFilter

    names: dict[str, str] = {row.task.id: row.task.name for row in rows}
    needed = dict.fromkeys(wait.target for row in rows for wait in row.waits if wait.kind != "question")
    missing = tuple(TaskId(target) for target in needed if target not in names)[:_LOOKED_UP]
    found = await views.view_tasks(TaskFilter(ids=missing)) if missing else []
    return names | {row.task.id: row.task.name for row in found}


def _row(row: TaskRow, now: int, names: dict[str, str], facts: Facts) -> list[str]:
    from allswell.engine.status.services import held_up
    from allswell.interfaces.cli.rendering import short
    from allswell.views.task import stands

    task = row.task
    agent = "" if row.lease is None else row.lease.agent
    state, said = stands(row), ""
    if row.ready and (kept := held_up(task, facts)) is not None:
        state = "parked" if kept.next is not None else "waiting"
        said = kept.says.removeprefix("cannot be claimed: ")
    said = said or about(row, state, now, names)
    return [task.id, task.name, state, task.role, agent, short(now - task.created_at), said]


def about(row: TaskRow, state: str, now: int, names: Mapping[str, str] = {}) -> str:
    """What is worth saying about a task in one line, beside where it stands."""
    lease = row.lease
    if lease is not None:
        share = "" if lease.progress is None else f"{lease.progress:.0%}"
        said = lease.note and f"“{lease.note}”"
        heard = "" if lease.checkin_at is None else f"heard {when(lease.checkin_at, now)}"
        limit = "no limit" if lease.limit_at is None else f"limit {when(lease.limit_at, now)}"
        return ", ".join(part for part in (share, said, heard, limit) if part)
    if state == "waiting":
        asked = [wait.target for wait in row.waits if wait.kind == "question"]
        needed = [wait.target for wait in row.waits if wait.kind == "need"]
        answers = [wait.target for wait in row.waits if wait.kind == "request"]
        first = [f"for the answer to {names.get(target, target)}" for target in answers]
        first += [f"for {names.get(target, target)}" for target in needed[:1]]
        more = [f"{len(needed) - 1} more"] if len(needed) > 1 else []
        return ", ".join(["for a human"] * bool(asked) + first + more)
    if state == "delayed" and row.due is not None:
        return f"until {when(row.due, now)}" if row.due <= now else f"ready {when(row.due, now)}"
    return row.task.record.reason


def _state(given: str) -> str:
    from allswell.domain.task.model import State
    from allswell.engine.lookup import did_you_mean

    if given in list(State):
        return given
    hint = did_you_mean(given, State) or f"; choose one of: {', '.join(State)}"
    raise Refused("bad_state", f"--state: {given!r} is not a state of a task{hint}", where="--state")


def _check_text(**given: str | None) -> None:
    """No row has what no store can hold; asking for it is a mistake."""
    from allswell.domain.ids import can_name

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
    store: Store = None,
    json: Json = False,
) -> None:
    """List open questions, the oldest first."""
    from allswell.views.question import QuestionsShape

    context = CliContext(store, json=json)

    alerts = any(spec.kind == "alerts" for spec in context.known_sinks)

    async def work(views: Views) -> tuple[list[Question], dict[str, str], list[str], int]:
        from allswell.engine.status.journal import untold_questions

        found = await views.view_questions(open_only=not all_, limit=limit)
        names = {} if json else {str(question.id): await subject(views, question) for question in found}
        untold = [str(one.id) for one in found if one.closed_at is None]
        if alerts:
            untold = await untold_questions(views, found)
        return found, names, untold, (await views.view_agenda()).now

    found, names, untold, now = context.look(work, or_empty=True)
    words = []
    for question in found:
        words.append(told_question(question, names.get(question.id, ""), now))
        if alerts and question.id in untold:
            words[-1] += "\n" + paint("  No alert about it was delivered: " + typed_here("allswell deliveries"), "warn")
    context.say(QuestionsShape.of(found, untold), "\n\n".join(words) or context.none("No question is open."))


async def subject(views: Views, question: Question) -> str:
    """The name of what a question is about."""
    if question.message is not None:
        return "message {1} of queue {0}".format(*question.message)
    if question.task is None:
        from allswell.engine.status.services import named

        return named(question.service or "")
    row = await views.view_task(question.task)
    return question.task if row is None else row.task.name


def told_question(question: Question, name: str, now: int) -> str:
    """A question in words, with what to type."""
    asker = f" by {plain(question.asked_by)}" if question.asked_by else ""
    seen = f", dismissed by {plain(question.dismissed_by)}" if question.dismissed_at is not None else ""
    head = f"{paint(question.id, 'bold')}  {plain(name)}, asked{asker} {when(question.asked_at, now)}{seen}"
    lines = [sentence(head), block(question.text, "  ")]
    if question.closed_at is not None:
        lines.append(block(_closed(question, now), "  "))
        return "\n".join(lines)
    from allswell.domain.question import does, in_order

    width = max((len(option.key) for option in question.options), default=0)
    for one in in_order(question.options):
        lines.append(f"    {plain(one.key).ljust(width)}  {plain(one.label)}")
        lines.append(paint(f"    {' ' * width}  {does(one.act)}", "dim"))
    lines.append(paint("  " + typed_here(f"{typed('answer', question.id)} OPTION [TEXT]"), "dim"))
    return "\n".join(lines)


def _closed(question: Question, now: int) -> str:
    """How a question ended."""
    moment = when(question.closed_at or now, now)
    if question.choice == "withdrawn":
        return f"→ withdrawn {moment}: its task ended without an answer"
    by = f" by {question.answered_by}" if question.answered_by else ""
    said = f": {question.answer}" if question.answer else ""
    return f"→ {question.choice}, answered{by} {moment}{said}"


# --- deciding ---------------------------------------------------------------------------------------------------------


def deciding(by: str | None) -> str:
    """Who decides: whoever they say they are, and the user that it runs as, who cannot be made up."""
    from allswell.store.files import user_name

    user = user_name(os.geteuid())
    return user if by in (None, "", user) else f"{by} ({user})"


def cancel(
    what: Annotated[
        str, Argument(metavar="ID", help="A task or a run: its id, or its name if only one has it.", of=("task", "run"))
    ],
    reason: Annotated[str, Argument(metavar="REASON", help="Reason, for the record.")] = "cancelled",
    store: Store = None,
    json: Json = False,
) -> None:
    """Cancel a task, also while an agent works on it, or a run with all its tasks."""
    from allswell.views.fields import named
    from allswell.views.task import CancelledShape

    context = CliContext(store, json=json)
    context.for_humans("cancel")

    async def work(watch: Watch) -> tuple[str, str]:
        from allswell.domain.ids import TaskId
        from allswell.engine.lookup import find

        views = watch.views
        id_ = await find(views, what)
        if id_.startswith("q_"):
            raise Refused("not_a_task", f"{id_} is a question; answer it, or cancel its task", where="ID")
        if id_.startswith("r_"):
            await watch.end_run(id_, reason)
            name = next(run.name for run in await views.view_runs() if run.id == id_)
            return id_, f"the run {paint(plain(name), 'bold')} is cancelled, with all of its open tasks"
        await watch.cancel(id_, reason)
        row = await views.view_task(TaskId(id_))
        return id_, f"{paint(plain(id_ if row is None else row.task.name), 'bold')} is cancelled"

    id_, words = context.run(work)
    what_it_is = named(id_)
    context.say(CancelledShape(what_it_is["task_id"], what_it_is["run_id"], cancelled=True), sentence(words))


# --- services ---------------------------------------------------------------------------------------------------------


def unpark(
    service: Annotated[str, Argument(metavar="SERVICE", help="A service or an account that is paused.")],
    *,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who decides. Default: you.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Use a service again that was paused after a limit or after errors.

    If it still refuses, it is paused again.
    """
    from allswell.views.status import UnparkedShape

    context = CliContext(store, json=json)
    context.for_humans("unpark")
    who = deciding(by)

    async def work(watch: Watch) -> None:
        await watch.unpark(service, who)

    context.run(work)
    context.say(UnparkedShape(service, who), sentence(f"{plain(service)} is used again"))


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


def _add_runs(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(LOOKING, "runs", runs, "allswell runs --json")


def runs(limit: Limit = _PAGE, store: Store = None, json: Json = False) -> None:
    """List runs, the newest first."""
    from allswell.domain.agents.cost import NOTHING_SPENT, shown
    from allswell.engine.status.why import waited_for
    from allswell.interfaces.cli.commands.show import limit_of
    from allswell.views.run import RunShape, RunsShape

    context = CliContext(store, json=json)

    async def work(views: Views) -> tuple[list[Run], list[Question], dict[str, Spent], int]:
        found = await views.view_runs(limit)
        spent = await views.view_spent("run", [run.id for run in found]) if found else {}
        return found, await views.view_questions(), spent, (await views.view_agenda()).now

    found, questions, spent, now = context.look(work, or_empty=True)
    flows = show.flows_in(context.home)
    rows = []
    for run in found:
        ended = "" if run.ended_at is None else f"{run.reason or 'ended'}, {when(run.ended_at, now)}"
        limit_ = limit_of(run, waited_for(run, questions), now)
        flow = "" if run.id not in flows else flows[run.id].run
        cost = "" if run.id not in spent else shown(spent[run.id].cost)
        opened, of_flow = when(run.created_at, now), flow if flow != run.id else "flow"
        rows.append([run.id, run.name, opened, limit_, ended, cost, of_flow])
    none = in_words("No runs. `allswell submit NAME --run RUN --run-timeout 8h` opens one.")
    told = [
        RunShape.of(run, flow=flows[run.id].run if run.id in flows else None, spent=spent.get(run.id, NOTHING_SPENT))
        for run in found
    ]
    context.say(RunsShape(told), table(_RUN_COLUMNS, rows) if rows else context.none(none))
