"""Deciding: questions and their answers, runs, and what could not be delivered."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.access.rights import signed_by
from allswell.domain.notify.delivery import Delivery, DeliveryFilter, again
from allswell.engine.lookup import find_question, find_run, find_task
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.interfaces.http.tasks import Length, Limit, ReasonParams, TaskParams
from allswell.views.delivery import DeliveriesShape, RevisedShape
from allswell.views.detail import ShownRunShape, load_run
from allswell.views.question import DecidedShape, QuestionsShape, load_questions
from allswell.views.run import RunShape, RunsShape, load_runs
from allswell.views.task import CancelledShape, DismissedShape, RetriedShape

_LISTED = 10_000


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
    by: str = ""


async def answer_question(call: RequestContext, given: AnswerParams) -> DecidedShape:
    """Decide a question; the option acts."""
    id_ = await find_question(call.views, call.named("question"))
    parts = [one.fields() for one in given.subtasks]
    await call.watch.answer(
        id_,
        given.option,
        given.text,
        subtasks=parts,
        timeout=given.timeout,
        max_cost_usd=given.max_cost_usd,
        by=given.by,
        command=call.command,
    )
    closed = await call.watch.question(id_)
    return DecidedShape(id_, given.option if closed is None else closed.choice or given.option)


class SeenParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Who has seen it, beside the key that says so."""

    by: str = ""


async def dismiss_question(call: RequestContext, given: SeenParams) -> DismissedShape:
    """Say that a question was seen: it stays open, and is no longer told as needing somebody."""
    id_ = await find_question(call.views, call.named("question"))
    await call.watch.dismiss(id_, given.by, command=call.command)
    return DismissedShape(None, id_, signed_by(call.key, given.by))


async def dismiss_task(call: RequestContext, given: SeenParams) -> DismissedShape:
    """Say that the end of a task was seen: it is no longer told as needing somebody."""
    id_ = await find_task(call.views, call.named("task"))
    await call.watch.dismiss(id_, given.by, command=call.command)
    return DismissedShape(id_, None, signed_by(call.key, given.by))


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
    id_ = await find_task(call.views, call.named("task"))
    run = None if given.run is None else await find_run(call.views, given.run)
    made = await call.watch.retry(
        id_, dependents=given.with_dependents, again=given.again, run=run, by=given.by, command=call.command
    )
    return RetriedShape.of({str(old): str(new) for old, new in made.items()})


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
    id_ = await find_run(call.views, call.named("run"))
    await call.watch.end_run(id_, why.reason, command=call.command)
    return CancelledShape(None, id_, cancelled=True)


class DeliveriesParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which deliveries."""

    sink: str | None = None
    given_up: bool = False
    limit: Limit = 100


async def list_deliveries(call: RequestContext, asked: DeliveriesParams) -> DeliveriesShape:
    """List what sinks still have to deliver, and what they have given up."""
    which = DeliveryFilter(asked.sink, given_up=True if asked.given_up else None, limit=asked.limit)
    return DeliveriesShape.of(await call.views.view_deliveries(which))


class DeliverySelection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of those that were given up or are failing: these, or all of a sink, or all."""

    delivery_ids: list[str] | None = None
    sink: str | None = None


async def retry_deliveries(call: RequestContext, meant: DeliverySelection) -> RevisedShape:
    """Try deliveries again, at once and as patiently as new ones."""
    found = await _meant(call, meant)
    await call.watch.outbox.revise([again(one) for one in found])
    return RevisedShape("retried", [one.id for one in found])


async def drop_deliveries(call: RequestContext, meant: DeliverySelection) -> RevisedShape:
    """Drop deliveries: nobody will be told."""
    found = await _meant(call, meant)
    await call.watch.outbox.revise([], found)
    return RevisedShape("dropped", [one.id for one in found])


async def _meant(call: RequestContext, meant: DeliverySelection) -> list[Delivery]:
    kept = await call.views.view_deliveries(DeliveryFilter(meant.sink, limit=_LISTED))
    failing = [one for one in kept if one.given_up or one.tries]
    if meant.delivery_ids is None:
        return failing
    found = [one for one in kept if one.id in meant.delivery_ids]
    if len(found) < len(set(meant.delivery_ids)):
        raise Refused(
            "unknown_delivery", "no delivery has one of these ids, or it was made by now", where="delivery_ids"
        )
    return found


ROUTES = (
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
