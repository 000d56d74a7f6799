"""Why something stands where it stands, what comes next, and what somebody could do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.engine.status.explanation import Kind, Todo
from allswell.views.fields import Moment, moment, named
from allswell.views.receipt import WorkShape

if TYPE_CHECKING:
    from allswell.engine.status.explanation import Explanation, Link, Next, Span


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
        ids, since = named(link.id), moment(link.since)
        return cls(kind=link.kind, name=link.name, state=link.state, says=link.says, since_at=since, **ids)


class NextShape(Struct, frozen=True):
    """What happens by itself; `expected_at` is null for what follows from the thing before it."""

    expected_at: Moment | None
    what: str
    routine: bool

    @classmethod
    def of(cls, coming: Next) -> NextShape:
        """One thing that will happen."""
        return cls(moment(coming.at), coming.what, coming.routine)


class SpanShape(Struct, frozen=True):
    """A stretch of a task's life."""

    kind: Literal["waiting", "asked", "paused", "ready", "held"]
    began_at: Moment
    ended_at: Moment
    says: str
    agent_id: str | None
    token: int | None
    outcome: str | None

    @classmethod
    def of(cls, span: Span) -> SpanShape:
        """One stretch."""
        return cls(span.kind, moment(span.start), moment(span.end), span.says, span.agent, span.token, span.outcome)


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
    next: list[NextShape]
    todo: tuple[Todo, ...]
    spent: list[SpanShape]
    work: WorkShape | None

    @classmethod
    def of(cls, told: Explanation, work: WorkShape | None) -> ExplanationShape:
        """An explanation, and where the work is that is done."""
        return cls(
            kind=told.kind,
            name=told.name,
            state=told.state,
            seen_at=moment(told.now),
            chain=[LinkShape.of(link) for link in told.chain],
            beside=told.beside,
            next=[NextShape.of(one) for one in told.next],
            todo=told.todo,
            spent=[SpanShape.of(span) for span in told.spent],
            work=work,
            **named(told.id),
        )
