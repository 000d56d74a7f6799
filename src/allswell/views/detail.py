"""One thing with all that is known about it: a task, a run, a question or a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from allswell.domain.agents.cost import together, usd
from allswell.domain.ids import TaskId, is_file_name, question_id
from allswell.domain.lease.cost import limit_of
from allswell.errors import Refused
from allswell.views.attempt import AttemptShape, ProofShape
from allswell.views.flow import FlowShape
from allswell.views.question import QuestionShape
from allswell.views.receipt import ReceiptShape, WorkShape
from allswell.views.run import BuildShape, RunShape, SpentShape
from allswell.views.task import TaskShape

if TYPE_CHECKING:
    from allswell.store.views import Views


class ShownTaskShape(Struct, frozen=True):
    """A task with what it was given, what it came to, its attempts and its questions."""

    task: TaskShape
    payload: Raw
    result: Raw
    attempts: list[AttemptShape]
    questions: list[QuestionShape]
    notes: tuple[str, ...]
    receipt_ids: list[str]
    work: WorkShape | None
    spent: SpentShape
    max_cost_usd: float | None
    """What it may cost; null: anything."""
    verification: ProofShape | None
    """What must pass before "done" counts, and what has failed; null where its holder's word is enough. Until it has
    passed, `result` is what the holder says."""
    worktree: str | None
    """Its worktree, where there is one on this machine: what its attempts left there may not be committed."""


class ShownRunShape(Struct, frozen=True):
    """A run, how many of its tasks stand where, and the folder of the flow, or the build, that it is a run of."""

    run: RunShape
    tasks: dict[str, int]
    flow: FlowShape | None
    build: BuildShape | None


class ShownQuestionShape(Struct, frozen=True):
    """A question."""

    question: QuestionShape


class ShownReceiptShape(Struct, frozen=True):
    """A receipt."""

    receipt: ReceiptShape


# A task with all that is known about it, for the interfaces that show it whole: HTTP and MCP.


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
        receipt_ids=[one for one in left if is_file_name(one) and (folder / f"{one}.json").is_file()],
        work=None,
        spent=SpentShape.of(together(told.values())),
        max_cost_usd=usd(limit_of(row.task)),
        verification=ProofShape.of(row),
        worktree=None,
    )
