"""One thing with all that is known about it: a task, a run, a question or a receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from allswell.domain.agents.cost import add_up, together, usd
from allswell.domain.ids import QuestionId, RunId, TaskId, question_id
from allswell.domain.lease.cost import limit_of, token_limit_of
from allswell.domain.run.run import Run, last_of
from allswell.domain.task.model import TaskFilter
from allswell.errors import Refused
from allswell.views.attempt import AttemptShape, ProofShape
from allswell.views.fields import as_shape
from allswell.views.flow import FlowShape
from allswell.views.question import QuestionShape
from allswell.views.receipt import ReceiptShape, WorkShape
from allswell.views.run import BuildShape, RunShape, SpentShape
from allswell.views.task import TaskShape

if TYPE_CHECKING:
    from allswell.store.views import Views
    from allswell.views.artifacts import Artifacts


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
    max_tokens: int | None
    """How many tokens it may use, in and out; null: any number."""
    verification: ProofShape | None
    """What must pass before "done" counts, and what has failed; null where its holder's word is enough. Until it has
    passed, `result` is what the holder says."""
    worktree: str | None
    """Its worktree, where there is one beside the store: what its attempts left there may not be committed."""


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


# One loader for each: every door shows what it gives.

_PAGE = 1_000


async def load_task(views: Views, artifacts: Artifacts, id_: str) -> ShownTaskShape:
    """A task with what it was given, what it came to, its attempts, its questions, and what lies beside the store."""
    task = TaskId(id_)
    row = await views.view_task(task)
    if row is None:
        raise Refused("unknown_task", f"there is no task {id_}", where="task")
    payload, result = await views.view_payload(task)
    attempts = await views.view_attempts(task)
    expenses = {one.token: one for one in await views.view_expenses(task)}
    asked = [await views.view_question(question_id(task, number)) for number in range(1, row.task.record.questions + 1)]
    left = await artifacts.of_task(task, [ended.token for ended in attempts])
    return ShownTaskShape(
        task=TaskShape.of(row),
        payload=Raw((payload or "null").encode()),
        result=Raw((result or "null").encode()),
        attempts=[AttemptShape.of(attempt, expenses.get(attempt.token)) for attempt in attempts],
        questions=[QuestionShape.of(question) for question in asked if question is not None],
        notes=row.task.record.notes,
        receipt_ids=left.receipt_ids,
        work=left.work,
        spent=as_shape(together(expenses.values()), SpentShape),
        max_cost_usd=usd(limit_of(row.task)),
        max_tokens=token_limit_of(row.task),
        verification=ProofShape.of(row),
        worktree=left.worktree,
    )


async def load_question(views: Views, id_: str) -> ShownQuestionShape:
    """A question."""
    question = await views.view_question(QuestionId(id_))
    if question is None:
        raise Refused("unknown_question", f"there is no question {id_}", where="question")
    return ShownQuestionShape(QuestionShape.of(question))


async def load_run(views: Views, artifacts: Artifacts, id_: str) -> ShownRunShape:
    """A run with all its tasks, also those of the runs in which it went on; with its flow, or the build that it is."""
    chain = await chain_of(views, id_)
    spent = await views.view_spent("run", [run.id for run in chain])
    flow = await artifacts.flow(id_)
    shape = RunShape.of(chain[0], chain[-1], None if flow is None else flow.run_ids[0], add_up(spent.values()))
    return ShownRunShape(shape, await _counts(views, chain), flow, None if flow else await _build(views, chain[0]))


async def chain_of(views: Views, id_: str) -> tuple[Run, ...]:
    """A run and those in which it went on, in order; `Refused` if there is no such run."""
    run = await views.view_run(RunId(id_))
    if run is None:
        raise Refused("unknown_run", f"there is no run {id_!r}", where="run")
    return last_of(run, {one.id: one for one in await views.view_runs()})


async def _counts(views: Views, chain: Sequence[Run]) -> dict[str, int]:
    """How many tasks stand where: a run that went on has the tasks of that name anew."""
    states: dict[str, str] = {}
    for run in chain:
        after = ""
        while rows := await views.view_tasks(TaskFilter(run=run.id, after=after, limit=_PAGE)):
            states |= {row.task.name if len(chain) > 1 else row.task.id: row.state for row in rows}
            after = rows[-1].task.id
    return dict(Counter(states.values()))


async def _build(views: Views, run: Run) -> BuildShape | None:
    from allswell.build.state import BuildRows, kept_spec  # it takes a while

    spec = await kept_spec(views, run.id)
    if spec is None:
        return None
    return BuildShape.of(run.id, spec.name, await BuildRows(views, run.id).look(spec, run.created_at))
