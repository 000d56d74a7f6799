"""`answer`, `retry` and `dismiss`: what a human decides about questions, ended tasks, and what was seen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from allswell.errors import Bug, Refused
from allswell.interfaces.cli.commands.tasks import deciding
from allswell.interfaces.cli.context import CliContext
from allswell.interfaces.cli.options import Argument, Json, Option, Store
from allswell.interfaces.cli.registry import DECIDING, Commands
from allswell.interfaces.cli.rendering import in_words, paint, plain, sentence, typed_here

if TYPE_CHECKING:
    from allswell.domain.agents.status import Presence, Survivors
    from allswell.domain.question import Option as Choice
    from allswell.domain.question import Question
    from allswell.engine.watch import Watch
    from allswell.store.views import Views


_SLIP = 0.8
"""How like the name of an option a word must be to be taken for a slip of it."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    _add_retry(app)
    _add_dismiss(app)
    app.add(
        DECIDING,
        "answer",
        answer,
        "allswell answer q_….1 the one in schema public     in words, where it takes an answer in words",
        "allswell answer q_….1 increase_timeout --timeout 1h",
        "allswell answer q_….1 split --subtasks parts.json",
    )


def answer(
    question: Annotated[
        str, Argument(metavar="QID", help="The question, or the task or service that it is about.", of=("question",))
    ],
    option: Annotated[
        str, Argument(metavar="OPTION", help="One of its options, or the answer in words.", of=("option",))
    ],
    text: Annotated[
        list[str] | None,
        Argument(metavar="TEXT…", help="Text for the agent that goes on with the task.", show_default=False),
    ] = None,
    subtasks: Annotated[
        str | None, Option("--subtasks", metavar="FILE", help="For split: a JSON list of tasks, or JSON lines.")
    ] = None,
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="TIME", help="For options that increase a time limit. Default: twice as long."),
    ] = None,
    max_cost_usd: Annotated[
        float | None, Option("--max-cost-usd", metavar="USD", min=0, help="For increase_cost. Default: twice as much.")
    ] = None,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who answers. Default: you.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Answer a question: with one of its options, or in your own words.

    Words that name no option are the answer, where the question takes one: `allswell answer migrate the users table`.
    An option that ends work unfinished asks for confirmation; without a terminal, it needs --yes.
    """
    from allswell.interfaces.cli.arguments import tasks_in
    from allswell.views.question import DecidedShape

    context = CliContext(store, json=json)
    context.for_humans("answer")
    who = deciding(by)
    source = "" if subtasks is None else subtasks if subtasks == "-" else f"@{subtasks.removeprefix('@')}"
    parts = tasks_in(source, "--subtasks") if source else []

    async def work(watch: Watch, *, sure: bool = yes) -> tuple[str, str, str] | Choice:
        from allswell.domain.question import AnswerAction
        from allswell.engine.lookup import find_question
        from allswell.interfaces.cli.commands.verify import brought_home

        views = watch.views
        id_ = await find_question(views, question)
        asked = await views.view_question(id_)
        choice, said = reply_of(asked, [option, *(text or ())])
        ends = None if sure or asked is None else _ending(asked, choice)
        if ends is not None:
            return ends
        await watch.answer(id_, choice, said, subtasks=parts, timeout=timeout, by=who, max_cost_usd=max_cost_usd)
        closed = await views.view_question(id_)
        if closed is None:
            return id_, "", ""
        acts = [one.act for one in closed.options if one.key == closed.choice]
        home = (
            await brought_home(context, watch, closed.task)
            if AnswerAction.ACCEPT in acts and closed.task is not None
            else ""
        )
        return id_, closed.choice or "", await _stands(views, closed) + home

    answered = context.run(work)
    if not isinstance(answered, tuple):
        _confirm(answered)
        answered = context.run(partial(work, sure=True))
    if not isinstance(answered, tuple):
        raise Bug("an option was given twice")
    id_, choice, now = answered
    words = f"answered: {plain(choice)}" + (f"; {in_words(plain(now))}" if now else "")
    context.say(DecidedShape(id_, choice), sentence(words))


def reply_of(question: Question | None, words: Sequence[str]) -> tuple[str, str]:
    """The option that is meant, and the text with it.

    Words that name no option are the answer, where the question takes one in words. A first word that is nearly the
    name of an option is a slip, and is left to be refused.
    """
    from allswell.domain.question import AnswerAction
    from allswell.domain.values import nearest

    first, text = words[0], " ".join(words[1:])
    options = () if question is None else question.options
    keys = [option.key for option in options]
    replies = [option.key for option in options if option.act is AnswerAction.REPLY]
    slip = nearest(first, keys, ratio=_SLIP) is not None
    if first in keys or not replies or slip:
        return first, text
    return replies[0], " ".join(words)


def _ending(question: Question, choice: str) -> Choice | None:
    """The option that was chosen, if it ends work without its being done; what cannot be chosen is refused later."""
    from allswell.domain.question import DESTRUCTIVE, choose

    if question.closed_at is not None:
        return None
    option = choose(question, choice)
    return option if option.act in DESTRUCTIVE else None


def _confirm(option: Choice) -> None:
    """Ask at the terminal whether an option is meant that ends work; `Refused` if not, or if there is no terminal."""
    from allswell.domain.question import labelled

    shown = plain(labelled(option))
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        text = f"{plain(option.key)} is “{shown}”, and there is no terminal to ask for confirmation; add --yes"
        raise Refused("not_confirmed", text, where="option")
    sys.stderr.write(f"{shown}. Really? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline(20).strip().lower() not in ("y", "yes"):
        raise Refused("not_confirmed", "no answer was given; the question stays open", where="option")


async def _stands(views: Views, question: Question) -> str:
    """What an answer has come to so far."""
    from allswell.domain.task.model import State
    from allswell.domain.task.resubmit import way_back
    from allswell.engine.status.services import in_short, named

    if question.service is not None:
        row = (await views.view_services()).get(question.service)
        now = (await views.view_agenda()).now
        return "" if row is None else f"{named(question.service)} {in_short(row, now)}"
    if question.message is not None:
        return "a worker carries it out; until then `allswell worker status` shows it as answered"
    task = None if question.task is None else await views.view_task(question.task)
    if task is None:
        return ""
    back = way_back(task.task) if task.task.state == State.SKIPPED else None
    return f"{task.task.name} is {task.state}" + (f"; to take it back: {back}" if back else "")


# `retry`: hand an ended task over again, as a new one that carries its history.

_LISTED = 20


def _add_retry(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "retry",
        retry,
        "allswell retry t_…",
        'allswell retry "write the changelog" --with-dependents',
        "allswell retry t_… --run tonight         its own run has ended",
    )


def retry(
    task: Annotated[
        str,
        Argument(
            metavar="TASK", help="A task that has ended: its id, or its name if only one task has it.", of=("task",)
        ),
    ],
    with_dependents: Annotated[
        bool, Option("--with-dependents", help="Also retry tasks that were skipped because of it.")
    ] = False,
    again: Annotated[bool, Option("--again", help="Also if it is done.")] = False,
    run: Annotated[
        str | None,
        Option(
            "--run", metavar="RUN", help="Put it into this run. Default: its own run, if that is open.", of=("run",)
        ),
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Submit an ended task again, as a new task with its history; the old one stays as it is.

    The new task is what the old one was asked to be. Its holder is told what the last attempt left and what humans
    noted; limits that were raised stay raised. `show` and `why` of both name the other.
    """
    from allswell.interfaces.cli.commands.tasks import deciding
    from allswell.views.task import RetriedShape

    context = CliContext(store, json=json)
    context.for_humans("retry")
    who = deciding(None)

    async def work(watch: Watch) -> tuple[dict[str, str], str]:
        from allswell.engine.lookup import find_run, find_task

        views = watch.views
        id_ = await find_task(views, task)
        into = None if run is None else await find_run(views, run, "--run")
        made = await watch.retry(id_, dependents=with_dependents, again=again, run=into, by=who)
        row = await views.view_task(id_)
        return {str(old): str(new) for old, new in made.items()}, task if row is None else row.task.name

    made, name = context.run(work)
    first, *others = made.values()
    lines = [f"{paint(plain(name), 'bold')} is submitted again, as {first}"]
    if others:
        listed = ", ".join(others[:_LISTED]) + (" …" if len(others) > _LISTED else "")
        lines.append(f"with tasks that were skipped because of it: {listed}")
    lines.append(paint(typed_here(f"allswell why {first}"), "dim"))
    context.say(RetriedShape.of(made), "\n".join(sentence(line) for line in lines))


# `dismiss`: somebody has seen something, and does not want to be told of it again.


def _add_dismiss(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "dismiss",
        dismiss,
        "allswell dismiss t_…       you have seen how it ended",
        "allswell dismiss q_….1     it stays open, and can be answered later",
        "allswell dismiss 4242      frees the folder of a process that did not end",
        "allswell dismiss supervisor.night   its machine is gone",
    )


def dismiss(
    what: Annotated[
        str,
        Argument(
            metavar="ID",
            help="A task (or its only name), a question, the number of a process that did not end, or supervisor.NAME.",
            of=("task", "question"),
        ),
    ],
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who has seen it. Default: you.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Mark something as seen, so that it is no longer listed as needing you.

    Nothing is decided by that. A question stays open, and what waits for it still waits. Later events of a task are
    listed again.

    A process that still runs after its attempt was told to stop keeps its folder and its slot from the next attempt,
    until it has ended. To dismiss it, by its number, frees both although it runs: the next attempt may find its files
    changed under it. It is not ended by that: kill it yourself.

    A supervisor that is silent for good, because its machine is gone, is dismissed as supervisor.NAME. Its tasks become
    ready when their leases lapse. If it reports again, it is listed again.
    """
    from allswell.domain.agents.status import PRESENCE_PREFIX
    from allswell.views.fields import named
    from allswell.views.task import DismissedShape

    context = CliContext(store, json=json)
    context.for_humans("dismiss")
    who = deciding(by)

    if what.isdecimal():
        _dismiss_process(context, int(what), who)
        return
    if what.startswith(PRESENCE_PREFIX):
        _dismiss_supervisor(context, what.removeprefix(PRESENCE_PREFIX), who)
        return

    async def work(watch: Watch) -> tuple[str, str]:
        views = watch.views
        id_ = await _meant(views, what)
        await watch.dismiss(id_, who)
        return id_, await _told(views, id_)

    id_, words = context.run(work)
    about = named(id_)
    context.say(DismissedShape(about["task_id"], about["question_id"], who), sentence(words))


def _dismiss_process(context: CliContext, pid: int, who: str) -> None:
    """Free the folder and the slot that a process keeps; in the files beside this store, too, if it is there."""
    from allswell.domain.agents.status import still_run
    from allswell.engine.status.agents import free
    from allswell.runtime.attempt.orphans import forget, still_running
    from allswell.runtime.receipts import StateDir
    from allswell.views.receipt import SurvivorsShape

    async def work(watch: Watch) -> Survivors:
        freed = await free(watch, pid, who)
        forget(StateDir(context.home), freed)
        return freed

    freed = context.run(work)
    now = still_running(freed)
    left = f"{still_run(now.processes)}; " if now.processes else ""
    place = f" and {paint(plain(freed.folder), 'bold')}" if freed.folder else ""
    words = f"{paint(plain(freed.holder), 'bold')}{place} are free again"
    context.say(SurvivorsShape.of(freed), sentence(f"{plain(left)}{words}"))


def _dismiss_supervisor(context: CliContext, name: str, who: str) -> None:
    from allswell.runtime.supervisor.presence import dismiss as dismiss_supervisor
    from allswell.views.task import DismissedSupervisorShape

    async def work(watch: Watch) -> Presence:
        return await dismiss_supervisor(watch, name, who)

    seen = context.run(work)
    words = f"the supervisor {paint(plain(seen.name), 'bold')} on {plain(seen.host)} is not waited for any more"
    context.say(DismissedSupervisorShape(seen.name, seen.host, who), sentence(words))


async def _meant(views: Views, what: str) -> str:
    """A question or a task; of a task that waits for an answer, the question."""
    from allswell.domain.ids import TaskId
    from allswell.engine.lookup import find, find_question

    services = {question.service for question in await views.view_questions()} - {None}
    id_ = await find_question(views, what) if what in services else await find(views, what)
    if id_.startswith("r_"):
        raise Refused("not_a_task", f"{id_} is a run; dismiss a task of it, or `allswell cancel {id_}`", where="ID")
    row = await views.view_task(TaskId(id_)) if id_.startswith("t_") else None
    if row is not None and any(wait.kind == "question" for wait in row.waits):
        return await find_question(views, id_)
    return id_


async def _told(views: Views, id_: str) -> str:
    from allswell.domain.ids import QuestionId, TaskId

    if id_.startswith("q_"):
        question = await views.view_question(QuestionId(id_))
        waits = question is not None and (question.waited or question.service is not None)
        return f"{paint(id_, 'bold')} is dismissed; it stays open" + (
            ", and what waits for it waits on" if waits else ""
        )
    row = await views.view_task(TaskId(id_))
    return f"{paint(plain(id_ if row is None else row.task.name), 'bold')} is dismissed"
