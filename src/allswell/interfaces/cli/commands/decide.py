"""`answer`, `retry` and `dismiss`: what a human decides about questions, ended tasks, and what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, agrees, can_ask, write
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, Commands
from allswell.interfaces.cli.rendering import paint, plain, typed_here

if TYPE_CHECKING:
    from allswell.actions.operator import Operator, Performed
    from allswell.domain.question import Question
    from allswell.store.views import Views
    from allswell.views.question import DecidedShape
    from allswell.views.receipt import SurvivorsShape
    from allswell.views.task import DismissedShape, DismissedSupervisorShape


_SLIP = 0.8
"""How like the name of an option a word must be to be taken for a slip of it."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "retry",
        retry,
        "allswell retry t_…",
        'allswell retry "write the changelog" --with-dependents',
        "allswell retry t_… --run tonight         its own run has ended",
    )
    app.add(
        DECIDING,
        "dismiss",
        dismiss,
        "allswell dismiss t_…       you have seen how it ended",
        "allswell dismiss q_….1     it stays open, and can be answered later",
        "allswell dismiss 4242      frees the folder of a process that did not end",
        "allswell dismiss supervisor.night   its machine is gone",
    )
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
    max_tokens: Annotated[
        int | None,
        Option("--max-tokens", metavar="N", min=1, help="For increase_tokens. Default: twice as many."),
    ] = None,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who answers. Default: you.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    *,
    context: CliContext,
) -> None:
    """Answer a question: with one of its options, or in your own words.

    Words that name no option are the answer, where the question takes one: `allswell answer migrate the users table`.
    An option that ends work unfinished asks for confirmation; without a terminal, it needs --yes.
    """
    from allswell.interfaces.cli.arguments import tasks_in

    context.for_humans("answer")
    source = "" if subtasks is None else subtasks if subtasks == "-" else f"@{subtasks.removeprefix('@')}"
    parts = tasks_in(source, "--subtasks") if source else []
    asked = context.look(lambda views: _find(views, question))
    choice, said = reply_of(asked, [option, *(text or ())])
    if not yes:
        _confirm(asked, choice)

    async def act(operator: Operator) -> Performed[DecidedShape]:
        return await operator.answer(
            asked.id,
            choice,
            said,
            subtasks=parts,
            timeout=timeout,
            max_cost_usd=max_cost_usd,
            max_tokens=max_tokens,
        )

    context.show(context.decide("answer", act, by=by))


async def _find(views: Views, about: str) -> Question:
    from allswell.engine.lookup import find_question

    question = await views.view_question(await find_question(views, about))
    assert question is not None  # noqa: S101 - it was just found, and questions are never deleted
    return question


def reply_of(question: Question, words: Sequence[str]) -> tuple[str, str]:
    """The option that is meant, and the text with it.

    Words that name no option are the answer, where the question takes one in words. A first word that is nearly the
    name of an option is a slip, and is left to be refused.
    """
    from allswell.domain.question import AnswerAction

    first, text = words[0], " ".join(words[1:])
    keys = [option.key for option in question.options]
    replies = [option.key for option in question.options if option.act is AnswerAction.REPLY]
    slip = nearest(first, keys, ratio=_SLIP) is not None
    if first in keys or not replies or slip:
        return first, text
    return replies[0], " ".join(words)


def _confirm(question: Question, choice: str) -> None:
    """Ask at the terminal whether an option is meant that ends work without its being done; `Refused` if it is not.

    What cannot be chosen at all is refused later.
    """
    from allswell.domain.question import DESTRUCTIVE, choose, labelled

    if question.closed_at is not None or (option := choose(question, choice)).act not in DESTRUCTIVE:
        return
    shown = plain(labelled(option))
    if not can_ask():
        text = f"{plain(option.key)} is “{shown}”, and there is no terminal to ask for confirmation; add --yes"
        raise Refused("not_confirmed", text, where="option")
    if not agrees(f"{shown}. Really?"):
        raise Refused("not_confirmed", "no answer was given; the question stays open", where="option")


# `retry`: hand an ended task over again, as a new one that carries its history.


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
    *,
    context: CliContext,
) -> None:
    """Submit an ended task again, as a new task with its history; the old one stays as it is.

    The new task is what the old one was asked to be. Its holder is told what the last attempt left and what humans
    noted; limits that were raised stay raised. `show` and `why` of both name the other.
    """
    made = context.decide(
        "retry", lambda operator: operator.retry(task, dependents=with_dependents, again=again, run=run)
    )
    context.show(made)
    if not context.json:
        write(paint(typed_here(f"allswell why {made.shape.retried[0].new_task_id}"), "dim") + "\n")


# `dismiss`: somebody has seen something, and does not want to be told of it again.


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
    *,
    context: CliContext,
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

    async def act(
        operator: Operator,
    ) -> Performed[SurvivorsShape] | Performed[DismissedSupervisorShape] | Performed[DismissedShape]:
        if what.isdecimal():
            return await operator.free_process(int(what))
        if what.startswith(PRESENCE_PREFIX):
            return await operator.dismiss_supervisor(what.removeprefix(PRESENCE_PREFIX))
        return await operator.dismiss(what)

    context.show(context.decide("dismiss", act, by=by))
