"""A task with all that is known about it, for the doors that show it whole: HTTP and MCP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw

from allswell.domain.expense import together, usd
from allswell.domain.names import TaskId, question_id
from allswell.domain.paying import limit_of
from allswell.doors.shapes.attempt import AttemptShape
from allswell.doors.shapes.question import QuestionShape
from allswell.doors.shapes.shown import ShownTaskShape
from allswell.doors.shapes.spent import SpentShape
from allswell.doors.shapes.task import TaskShape
from allswell.doors.shapes.verification import ProofShape
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.store.views import Views


async def shown_task(views: Views, id_: TaskId, home: Path) -> ShownTaskShape:
    """What it was given, what it came to, its attempts, its questions, and the receipts in our folder."""
    row = await views.view_task(id_)
    if row is None:
        raise Refused("unknown_task", f"there is no task {id_}", where="task")
    payload, result = await views.view_payload(id_)
    attempts = await views.view_attempts(id_)
    told = {one.token: one for one in await views.view_expenses(id_)}
    asked = [await views.view_question(question_id(id_, number)) for number in range(1, row.task.record.questions + 1)]
    folder = home / "receipts"
    left = [f"rc_{id_.removeprefix('t_')}.{ended.token}" for ended in attempts]
    return ShownTaskShape(
        task=TaskShape.of(row),
        payload=Raw((payload or "null").encode()),
        result=Raw((result or "null").encode()),
        attempts=[AttemptShape.of(attempt, told.get(attempt.token)) for attempt in attempts],
        questions=[QuestionShape.of(question) for question in asked if question is not None],
        notes=row.task.record.notes,
        receipt_ids=[one for one in left if (folder / f"{one}.json").is_file()],
        work=None,
        spent=SpentShape.of(together(told.values())),
        max_cost_usd=usd(limit_of(row.task)),
        verification=ProofShape.of(row),
    )
