"""The answer to "why?": whatever is asked about, its explanation."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.names import QuestionId, TaskId
from allswell.engine.explaining.chain import explain
from allswell.engine.explaining.facts import gather
from allswell.engine.explaining.runs import TASKS_MOST, explain_question, explain_run
from allswell.engine.explaining.shapes import Explanation, Next, Todo
from allswell.engine.explaining.words import time_stands
from allswell.errors import Refused
from allswell.store.views import Views


async def why(views: Views, id_: str, most: int = TASKS_MOST) -> Explanation:
    """Why a task, a question or a run stands where it stands; while time stands still, nothing is promised.

    Of a run, so many tasks are looked at as `most` says.
    """
    told = await _explained(views, id_, most)
    stands = (await views.view_agenda()).stands
    if not stands:
        return told
    go_on = Todo("Let time go on", "allswell watch")
    return replace(told, next=(Next(None, time_stands(stands)),), todo=(go_on, *told.todo))


async def _explained(views: Views, id_: str, most: int) -> Explanation:
    if id_.startswith("q_"):
        question = await views.view_question(QuestionId(id_))
        if question is not None:
            return await explain_question(views, question)
    elif id_.startswith("r_"):
        for run in await views.view_runs():
            if run.id == id_:
                return await explain_run(views, run, most)
    else:
        row = await views.view_task(TaskId(id_))
        if row is not None:
            return explain(row, await gather(views, row))
    raise Refused("unknown_id", f"there is no {id_}", where="id")
