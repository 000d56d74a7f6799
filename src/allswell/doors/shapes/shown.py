"""One thing with all that is known about it: a task, a run, a question or a receipt."""

from __future__ import annotations

from msgspec import Raw, Struct

from allswell.doors.shapes.attempt import AttemptShape
from allswell.doors.shapes.build import BuildShape
from allswell.doors.shapes.flow import FlowShape
from allswell.doors.shapes.question import QuestionShape
from allswell.doors.shapes.receipt import ReceiptShape
from allswell.doors.shapes.run import RunShape
from allswell.doors.shapes.spent import SpentShape
from allswell.doors.shapes.task import TaskShape
from allswell.doors.shapes.verification import ProofShape
from allswell.doors.shapes.work import WorkShape


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
