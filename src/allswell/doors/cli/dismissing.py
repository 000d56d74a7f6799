"""`dismiss`: somebody has seen something, and does not want to be told of it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import DECIDING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import paint, plain, sentence
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.engine.watch import Watch
    from allswell.store.views import Views


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        DECIDING,
        "dismiss",
        dismiss,
        "allswell dismiss t_…       how it ended was seen",
        "allswell dismiss q_….1     it stays open, and can be answered later",
    )


def dismiss(
    what: Annotated[
        str,
        Argument(metavar="ID", help="A task or a question; a task by its only name, too.", of=("task", "question")),
    ],
    by: Annotated[str | None, Option("--by", metavar="NAME", help="Who has seen it. Default: you.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Say that something was seen: it is no longer told as needing you.

    Nothing is decided by it. A question stays open and holds what it held; `allswell` goes on counting what waits for
    it. What happens to a task afterwards is told again.
    """
    from allswell.doors.cli.people import deciding
    from allswell.doors.shapes.dismissed import DismissedShape
    from allswell.doors.shapes.named import named

    frame = Frame(store, json=json)
    frame.for_humans("dismiss")
    who = deciding(by)

    async def work(watch: Watch) -> tuple[str, str]:
        views = watch.views
        id_ = await _meant(views, what)
        await watch.dismiss(id_, who)
        return id_, await _told(views, id_)

    id_, words = frame.run(work)
    about = named(id_)
    frame.say(DismissedShape(about["task_id"], about["question_id"], who), sentence(words))


async def _meant(views: Views, what: str) -> str:
    """A question or a task; of a task that waits for an answer, the question."""
    from allswell.domain.names import TaskId
    from allswell.engine.finding import find, find_question

    services = {question.service for question in await views.view_questions()} - {None}
    id_ = await find_question(views, what) if what in services else await find(views, what)
    if id_.startswith("r_"):
        raise Refused("not_a_task", f"{id_} is a run; dismiss a task of it, or `allswell cancel {id_}`", where="ID")
    row = await views.view_task(TaskId(id_)) if id_.startswith("t_") else None
    if row is not None and any(wait.kind == "question" for wait in row.waits):
        return await find_question(views, id_)
    return id_


async def _told(views: Views, id_: str) -> str:
    from allswell.domain.names import QuestionId, TaskId

    if id_.startswith("q_"):
        question = await views.view_question(QuestionId(id_))
        waits = question is not None and (question.waited or question.service is not None)
        return f"{paint(id_, 'bold')} is dismissed; it stays open" + (
            ", and what waits for it waits on" if waits else ""
        )
    row = await views.view_task(TaskId(id_))
    return f"{paint(plain(id_ if row is None else row.task.name), 'bold')} is dismissed"
