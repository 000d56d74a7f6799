"""One message between agents, with the nine fields of the protocol's communication log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.domain.comms import CommStatus
from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.comms import Comm


class CommShape(Struct, frozen=True):
    """A row of the communication log; `timeout_min` is null unless somebody waited in vain."""

    request_id: str
    event: str
    source_agent: str
    target_agent: str
    status: CommStatus
    timeout_min: float | None
    blocked_task: str
    resolution: str
    occurred_at: Moment
    retry_count: int

    @classmethod
    def of(cls, comm: Comm) -> CommShape:
        """A row as it is read from the journal."""
        return cls(
            request_id=comm.request,
            event=comm.event,
            source_agent=comm.source,
            target_agent=comm.target,
            status=comm.status,
            timeout_min=comm.timeout_min,
            blocked_task=comm.blocked_task,
            resolution=comm.resolution,
            occurred_at=moment(comm.at),
            retry_count=comm.retries,
        )
