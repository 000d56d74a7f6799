"""An agent's ledger: what counts for it and against it, what does not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.ledger import Ledger, LedgerLine


class LedgerLineShape(Struct, frozen=True):
    """One thing that happened; `idle_ms` is how long the agent was idle by its own fault."""

    occurred_at: Moment
    weight: Literal["for", "against", "idle", "nothing"]
    what: str
    why: str
    request_id: str | None
    task_id: str | None
    idle_ms: int

    @classmethod
    def of(cls, line: LedgerLine) -> LedgerLineShape:
        """One line."""
        request, task = line.request or None, line.task or None
        return cls(moment(line.at), line.weight, line.what, line.why, request, task, line.idle_ms)


class LedgerShape(Struct, frozen=True):
    """All of it since a moment; `score` and `degraded` are what routing goes by now.

    Of a long time only the last `events_looked_at` events of the journal were looked at, about; null: all of them.
    """

    agent_id: str
    since_at: Moment
    score: int
    degraded: bool
    healthy_at: Moment | None
    idle_ms: int
    lines: list[LedgerLineShape]
    events_looked_at: int | None

    @classmethod
    def of(cls, ledger: Ledger, since: int, score: int, healthy_at: int | None) -> LedgerShape:
        """An agent's, with how it stands now."""
        lines = [LedgerLineShape.of(line) for line in ledger.lines]
        degraded = healthy_at is not None
        return cls(ledger.agent, moment(since), score, degraded, moment(healthy_at), ledger.idle_ms, lines, ledger.cut)
