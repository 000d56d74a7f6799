"""Why something is in its state, what comes next, and what a human can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from allswell.build.overview import why
from allswell.domain.ids import TaskId
from allswell.engine.status.explanation import Explanation, Kind, Link, Span, SuggestedAction, UpcomingStep
from allswell.store.views import Views
from allswell.timing.moment import Moment
from allswell.views.fields import as_shape, named
from allswell.views.receipt import WorkShape

if TYPE_CHECKING:
    from allswell.engine.status.verdict import LocalFacts
    from allswell.views.artifacts import Artifacts

_LOGS = "allswell logs "


class LinkShape(Struct, frozen=True):
    """One link of the chain, from what was asked about down to what really holds it up."""

    kind: Kind
    task_id: str | None
    run_id: str | None
    question_id: str | None
    name: str
    state: str
    says: tuple[str, ...]
    since_at: Moment | None

    @classmethod
    def of(cls, link: Link) -> LinkShape:
        """One link."""
        return as_shape(link, cls, since_at=link.since, **named(link.id))


async def load_explanation(
    views: Views, artifacts: Artifacts, id_: str, place: LocalFacts, most: int | None = None
) -> tuple[Explanation, WorkShape | None]:
    """Why something stands where it stands, as it is seen from a place, and where the work of a task is.

    A log of which nothing is kept is not offered.
    """
    told = await why(views, id_, most, pause=place.pause, still_running=place.still_running)
    todo = []
    for one in told.todo:
        task = one.command.removeprefix(_LOGS)
        row = await views.view_task(TaskId(task)) if task != one.command else None
        if task == one.command or (row is not None and await artifacts.has_log(row.task)):
            todo.append(one)
    return replace(told, todo=tuple(todo)), await artifacts.work(told.id) if told.kind == "task" else None


class ExplanationShape(Struct, frozen=True):
    """The whole explanation of a task, a run or a question."""

    kind: Kind
    task_id: str | None
    run_id: str | None
    question_id: str | None
    name: str
    state: str
    seen_at: Moment
    chain: list[LinkShape]
    beside: tuple[str, ...]
    next: tuple[UpcomingStep, ...]
    todo: tuple[SuggestedAction, ...]
    spent: tuple[Span, ...]
    work: WorkShape | None

    @classmethod
    def of(cls, told: Explanation, work: WorkShape | None) -> ExplanationShape:
        """An explanation, and where the work is that is done."""
        chain = [LinkShape.of(link) for link in told.chain]
        return as_shape(told, cls, seen_at=told.now, chain=chain, work=work, **named(told.id))
