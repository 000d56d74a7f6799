"""`answer`: a human decides a question, by one of its options or in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import DECIDING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.people import deciding
from allswell.doors.cli.render import plain, sentence

if TYPE_CHECKING:
    from allswell.domain.question import Question
    from allswell.engine.watch import Watch
    from allswell.store.views import Views

_SLIP = 0.8
"""How like the name of an option a word must be to be taken for a slip of it."""


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
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
        str, Argument(metavar="QID", help="The question, or the task or service it is about.", of=("question",))
    ],
    option: Annotated[
        str, Argument(metavar="OPTION", help="One of its options; or the answer itself, in words.", of=("option",))
    ],
    text: Annotated[
        list[str] | None, Argument(metavar="TEXT…", help="What the next holder should know.", show_default=False)
    ] = None,
    subtasks: Annotated[
        str | None, Option("--subtasks", metavar="FILE", help="For split: a JSON list of tasks, or JSON lines.")
    ] = None,
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="TIME", help="For the options that increase; default: twice as long."),
    ] = None,
    max_cost_usd: Annotated[
        float | None, Option("--max-cost-usd", metavar="USD", min=0, help="For increase_cost; default: twice as much.")
    ] = None,
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who decides. Default: you.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Decide a question: by one of its options, which acts, or in words.

    Words that name no option are the answer, where the question takes one: `allswell answer migrate the users table`.
    """
    from allswell.doors.cli.given import tasks_in
    from allswell.doors.shapes.question import DecidedShape

    frame = Frame(store, json=json)
    frame.for_humans("answer")
    who = deciding(by)
    source = "" if subtasks is None else subtasks if subtasks == "-" else f"@{subtasks.removeprefix('@')}"
    parts = tasks_in(source, "--subtasks") if source else []

    async def work(watch: Watch) -> tuple[str, str, str]:
        from allswell.domain.question import Act
        from allswell.doors.cli.verifying import brought_home
        from allswell.engine.finding import find_question

        views = watch.views
        id_ = await find_question(views, question)
        choice, said = reply_of(await views.view_question(id_), [option, *(text or ())])
        await watch.answer(id_, choice, said, subtasks=parts, timeout=timeout, by=who, max_cost_usd=max_cost_usd)
        closed = await views.view_question(id_)
        if closed is None:
            return id_, "", ""
        acts = [one.act for one in closed.options if one.key == closed.choice]
        home = await brought_home(frame, watch, closed.task) if Act.ACCEPT in acts and closed.task is not None else ""
        return id_, closed.choice or "", await _stands(views, closed) + home

    id_, choice, now = frame.run(work)
    words = f"answered: {plain(choice)}" + (f"; {plain(now)}" if now else "")
    frame.say(DecidedShape(id_, choice), sentence(words))


def reply_of(question: Question | None, words: Sequence[str]) -> tuple[str, str]:
    """The option that is meant, and the text with it.

    Words that name no option are the answer, where the question takes one in words. A first word that is nearly the
    name of an option is a slip, and is left to be refused.
    """
    from allswell.domain.meant import nearest
    from allswell.domain.question import Act

    first, text = words[0], " ".join(words[1:])
    options = () if question is None else question.options
    keys = [option.key for option in options]
    replies = [option.key for option in options if option.act is Act.REPLY]
    slip = nearest(first, keys, ratio=_SLIP) is not None
    if first in keys or not replies or slip:
        return first, text
    return replies[0], " ".join(words)


async def _stands(views: Views, question: Question) -> str:
    """What an answer has come to so far."""
    from allswell.doors.shapes.task import stands
    from allswell.engine.explaining.services import in_short, named

    if question.service is not None:
        row = (await views.view_services()).get(question.service)
        now = (await views.view_agenda()).now
        return "" if row is None else f"{named(question.service)} {in_short(row, now)}"
    if question.message is not None:
        return "a worker carries it out; until then `allswell worker status` shows it as answered"
    task = None if question.task is None else await views.view_task(question.task)
    return "" if task is None else f"{task.task.name} is {stands(task)}"
