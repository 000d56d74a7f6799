"""Tasks: handed over, listed, shown, explained, called off."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from allswell.domain.ids import TaskId
from allswell.domain.task.model import State, TaskFilter
from allswell.engine.lookup import find, find_run, find_task
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.views.detail import ShownTaskShape, load_task
from allswell.views.explanation import ExplanationShape, load_explanation
from allswell.views.task import CancelledShape, JoinedRunShape, SubmittedManyShape, TasksShape

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
    runs = [JoinedRunShape(id_, name, name in made.opened) for name, id_ in made.runs.items()]
    return SubmittedManyShape(len(ids), Raw(msgspec.json.encode(ids)), runs)


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
    open_ = None if asked.all or asked.state or asked.name is not None else True
    run = None if asked.run is None else await find_run(call.views, asked.run)
    states = tuple(str(one) for one in asked.state)
    which = TaskFilter(open_, run, asked.name, asked.role, states, asked.after, asked.limit + 1)
    found = await call.views.view_tasks(which)
    return TasksShape.of(found[: asked.limit], more=len(found) > asked.limit)


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
    id_ = await find_task(call.views, call.named("task"))
    await call.watch.cancel(id_, why_.reason, command=call.command)
    return CancelledShape(id_, None, cancelled=True)


ROUTES = (
    Route("POST", "/tasks", submit_tasks, Submission, (SubmittedManyShape,), status=201),
    Route("GET", "/tasks", list_tasks, TasksParams, (TasksShape,)),
    Route("GET", "/tasks/{task}", show_task, NoParams, (ShownTaskShape,)),
    Route("POST", "/tasks/{task}/cancel", cancel_task, ReasonParams, (CancelledShape,)),
    Route("GET", "/why/{id}", explain, NoParams, (ExplanationShape,)),
)
