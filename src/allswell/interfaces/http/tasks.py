"""Routes of tasks (submitted, listed, shown, explained, cancelled), of questions, runs and deliveries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from allswell.domain.ids import TaskId
from allswell.domain.notify.delivery import DeliveryFilter
from allswell.domain.task.model import State
from allswell.engine.lookup import find, find_question, find_run, find_task
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.views.delivery import DeliveriesShape, DeliveryShape, RevisedShape
from allswell.views.detail import ShownRunShape, ShownTaskShape, load_run, load_task
from allswell.views.explanation import ExplanationShape, load_explanation
from allswell.views.question import DecidedShape, QuestionsShape, load_questions
from allswell.views.run import RunShape, RunsShape, load_runs
from allswell.views.task import (
    CancelledShape,
    DismissedShape,
    RetriedShape,
    SubmittedManyShape,
    TasksShape,
    joined_runs,
    load_tasks,
)

Limit = Annotated[int, Meta(ge=1, le=1_000, description="Maximum number of results.")]
Length = Annotated[int | str, Meta(description="Milliseconds, or a text such as 15m.")]


class TaskParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A task as it is handed over: `name` is all that it must have."""

    name: str
    payload: Any = UNSET
    role: str | UnsetType = UNSET
    services: list[str] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    needs: Annotated[list[str], Meta(description="Ids of tasks, or names of those beside it.")] | UnsetType = UNSET
    barred: list[str] | UnsetType = UNSET
    run: Annotated[str, Meta(description="A run's id, or its name: an open one, or a new one.")] | UnsetType = UNSET
    not_before: Annotated[int, Meta(description="Milliseconds since 1970.")] | UnsetType = UNSET
    critical: bool | UnsetType = UNSET
    if_need_fails: Literal["skip", "run"] | UnsetType = UNSET
    timeout: Length | UnsetType = UNSET
    idle: Length | UnsetType = UNSET
    retries: int | UnsetType = UNSET
    max_cost_usd: Annotated[float, Meta(description="The limit of what its attempts may cost in all.")] | UnsetType = (
        UNSET
    )
    max_tokens: (
        Annotated[int, Meta(description="The limit of the tokens that its attempts may use in all.")] | UnsetType
    ) = UNSET
    verify: (
        Annotated[str | list[str], Meta(description="A command that must pass before done counts; takes an operator.")]
        | UnsetType
    ) = UNSET
    key: Annotated[str, Meta(description="Under the same key it is made once.")] | UnsetType = UNSET

    def fields(self) -> dict[str, Any]:
        """What was given, by name."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not UNSET}


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to hand over; those of one submission may need each other by name."""

    tasks: Annotated[list[TaskParams], Meta(min_length=1, max_length=10_000)]
    run_timeout: Length | None = None


async def submit_tasks(call: RequestContext, given: Submission) -> SubmittedManyShape:
    """Hand tasks over. Once their ids are answered, they are durable.

    With an Idempotency-Key the same submission makes its tasks once, however often it is sent.
    """
    tasks = [one.fields() for one in given.tasks]
    if call.command is not None:
        for number, one in enumerate(tasks):
            one.setdefault("key", f"{call.command}#{number}")
    ids: list[TaskId] = []
    made = await call.watch.submit_all(tasks, run_timeout=given.run_timeout, told=ids.extend)
    return SubmittedManyShape(len(ids), Raw(msgspec.json.encode(ids)), joined_runs(made))


class TasksParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks; without any of it, those that are open."""

    state: tuple[State, ...] = ()
    all: bool = False
    run: str | None = None
    name: str | None = None
    role: str | None = None
    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100


async def list_tasks(call: RequestContext, asked: TasksParams) -> TasksShape:
    """List tasks, the oldest first, a page at a time."""
    page, more = await load_tasks(
        call.views,
        states=[str(one) for one in asked.state],
        ended=asked.all,
        run=asked.run,
        name=asked.name,
        role=asked.role,
        after=asked.after,
        limit=asked.limit,
    )
    return TasksShape.of(page, more=more)


async def show_task(call: RequestContext, _: NoParams) -> ShownTaskShape:
    """Show a task with what it was given, its attempts and its questions."""
    return await load_task(call.views, call.artifacts, await find_task(call.views, call.named("task")))


async def explain(call: RequestContext, _: NoParams) -> ExplanationShape:
    """Say why a task, a run or a question stands where it stands, what comes next, and what can be done."""
    id_ = await find(call.views, call.named("id"))
    return ExplanationShape.of(*await load_explanation(call.views, call.artifacts, id_, call.place))


class ReasonParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: str = "cancelled"


async def cancel_task(call: RequestContext, why_: ReasonParams) -> CancelledShape:
    """Call a task off, whoever holds it."""
    return (await call.operator().cancel(await find_task(call.views, call.named("task")), why_.reason)).shape


# Questions and their answers, runs, and what could not be delivered.


class QuestionsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Those that are open, or all."""

    all: bool = False
    limit: Limit = 100


async def list_questions(call: RequestContext, asked: QuestionsParams) -> QuestionsShape:
    """List what waits for a human, the oldest first."""
    return await load_questions(call.views, call.artifacts, asked.limit, open_only=not asked.all)


class AnswerParams(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the question's options, and what the next holder should know."""

    option: str
    text: str = ""
    subtasks: list[TaskParams] = []
    timeout: Length | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    by: str = ""


async def answer_question(call: RequestContext, given: AnswerParams) -> DecidedShape:
    """Decide a question; the option acts."""
    answered = await call.operator(given.by).answer(
        call.named("question"),
        given.option,
        given.text,
        subtasks=[one.fields() for one in given.subtasks],
        timeout=given.timeout,
        max_cost_usd=given.max_cost_usd,
        max_tokens=given.max_tokens,
    )
    return answered.shape


class SeenParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Who has seen it, beside the key that says so."""

    by: str = ""


async def dismiss_question(call: RequestContext, given: SeenParams) -> DismissedShape:
    """Say that a question was seen: it stays open, and is no longer told as needing somebody."""
    id_ = await find_question(call.views, call.named("question"))
    return (await call.operator(given.by).dismiss(id_)).shape


async def dismiss_task(call: RequestContext, given: SeenParams) -> DismissedShape:
    """Say that the end of a task was seen: it is no longer told as needing somebody."""
    id_ = await find_task(call.views, call.named("task"))
    return (await call.operator(given.by).dismiss(id_)).shape


class RetryParams(Struct, frozen=True, forbid_unknown_fields=True):
    """With those that were skipped because of it; even if it is done; into which run."""

    with_dependents: bool = False
    again: bool = False
    run: str | None = None
    by: str = ""


async def retry_task(call: RequestContext, given: RetryParams) -> RetriedShape:
    """Hand an ended task over again, as a new one that carries its history.

    With an Idempotency-Key it is handed over once, and answered with the same ids however often it is sent.
    """
    operator = call.operator(given.by)
    dependents = given.with_dependents
    return (await operator.retry(call.named("task"), dependents=dependents, again=given.again, run=given.run)).shape


class RunsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """How many."""

    limit: Limit = 100


async def list_runs(call: RequestContext, asked: RunsParams) -> RunsShape:
    """List runs, the newest first."""
    return await load_runs(call.views, call.artifacts, asked.limit)


class RunParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A run; nothing in it outlives its timeout."""

    name: str
    timeout: Length | None = None
    key: str | None = None


async def open_run(call: RequestContext, given: RunParams) -> RunShape:
    """Open a run; under the same `key`, or Idempotency-Key, it is opened once."""
    id_ = await call.watch.open_run(given.name, timeout=given.timeout, key=given.key or call.command)
    run = await call.watch.run(id_)
    if run is None:
        raise Refused("unknown_run", f"there is no run {id_!r}", where="run")
    return RunShape.of(run)


async def show_run(call: RequestContext, _: NoParams) -> ShownRunShape:
    """Show a run with all its tasks, also those of runs in which it went on; and its flow, or the build that it is."""
    return await load_run(call.views, call.artifacts, await find_run(call.views, call.named("run")))


async def end_run(call: RequestContext, why: ReasonParams) -> CancelledShape:
    """End a run and everything in it that is still open."""
    return (await call.operator().cancel(await find_run(call.views, call.named("run")), why.reason)).shape


class DeliveriesParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which deliveries."""

    sink: str | None = None
    given_up: bool = False
    limit: Limit = 100


async def list_deliveries(call: RequestContext, asked: DeliveriesParams) -> DeliveriesShape:
    """List what sinks still have to deliver, and what they have given up."""
    which = DeliveryFilter(asked.sink, given_up=True if asked.given_up else None, limit=asked.limit)
    return DeliveriesShape([DeliveryShape.of(one) for one in await call.views.view_deliveries(which)])


class DeliverySelection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of those that were given up or are failing: these, or all of a sink, or all."""

    delivery_ids: list[str] | None = None
    sink: str | None = None


async def retry_deliveries(call: RequestContext, meant: DeliverySelection) -> RevisedShape:
    """Try deliveries again, at once and as patiently as new ones."""
    return (await call.operator().revise("retried", meant.delivery_ids, meant.sink, "delivery_ids")).shape


async def drop_deliveries(call: RequestContext, meant: DeliverySelection) -> RevisedShape:
    """Drop deliveries: nobody will be told."""
    return (await call.operator().revise("dropped", meant.delivery_ids, meant.sink, "delivery_ids")).shape


ROUTES = (
    Route("POST", "/tasks", submit_tasks, Submission, (SubmittedManyShape,), status=201),
    Route("GET", "/tasks", list_tasks, TasksParams, (TasksShape,)),
    Route("GET", "/tasks/{task}", show_task, NoParams, (ShownTaskShape,)),
    Route("POST", "/tasks/{task}/cancel", cancel_task, ReasonParams, (CancelledShape,)),
    Route("GET", "/why/{id}", explain, NoParams, (ExplanationShape,)),
)
DECISION_ROUTES = (
    Route("GET", "/questions", list_questions, QuestionsParams, (QuestionsShape,)),
    Route("POST", "/questions/{question}/answer", answer_question, AnswerParams, (DecidedShape,)),
    Route("POST", "/questions/{question}/dismiss", dismiss_question, SeenParams, (DismissedShape,)),
    Route("POST", "/tasks/{task}/dismiss", dismiss_task, SeenParams, (DismissedShape,)),
    Route("POST", "/tasks/{task}/retry", retry_task, RetryParams, (RetriedShape,), status=201),
    Route("GET", "/runs", list_runs, RunsParams, (RunsShape,)),
    Route("POST", "/runs", open_run, RunParams, (RunShape,), status=201),
    Route("GET", "/runs/{run}", show_run, NoParams, (ShownRunShape,)),
    Route("POST", "/runs/{run}/end", end_run, ReasonParams, (CancelledShape,)),
    Route("GET", "/deliveries", list_deliveries, DeliveriesParams, (DeliveriesShape,)),
    Route("POST", "/deliveries/retry", retry_deliveries, DeliverySelection, (RevisedShape,)),
    Route("POST", "/deliveries/drop", drop_deliveries, DeliverySelection, (RevisedShape,)),
)
