"""One fact of the journal. Kinds and fields are those of docs/reference/events.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from allswell.doors.shapes.fields import outside
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.journal import Entry


class EventShape(Struct, frozen=True):
    """An event in its place; which fields `data` has depends on its kind."""

    position: tuple[int, int]
    occurred_at: Moment
    kind: str
    task_id: str | None
    run_id: str | None
    agent_id: str | None
    token: int | None
    data: dict[str, Any]

    @classmethod
    def of(cls, entry: Entry) -> EventShape:
        """An entry of the journal."""
        event = entry.event
        return cls(
            position=(entry.position.xid, entry.position.id),
            occurred_at=moment(entry.at),
            kind=event.kind,
            task_id=event.task,
            run_id=event.run,
            agent_id=event.agent,
            token=event.token,
            data=outside(event.data),
        )
