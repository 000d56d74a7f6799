"""The board: open tasks as short lines, those first that need somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.moment import Moment, moment
from allswell.doors.shapes.status import StatusShape

if TYPE_CHECKING:
    from allswell.engine.explaining.board import Board, Line


class BoardLineShape(Struct, frozen=True):
    """One open task in short: `who` has it or is waited for, and what lies `ahead`."""

    task_id: str
    name: str
    state: str
    trouble: int
    who: str
    since_at: Moment | None
    progress: float | None
    note: str
    due_at: Moment | None
    ahead: str

    @classmethod
    def of(cls, line: Line) -> BoardLineShape:
        """One task."""
        return cls(
            task_id=line.task,
            name=line.name,
            state=line.state,
            trouble=line.trouble,
            who=line.who,
            since_at=moment(line.since),
            progress=line.progress,
            note=line.note,
            due_at=moment(line.due),
            ahead=line.ahead,
        )


class BoardShape(Struct, frozen=True):
    """The watch as a table, those tasks first that need somebody."""

    status: StatusShape
    tasks: list[BoardLineShape]

    @classmethod
    def of(cls, store: str, seen: Board) -> BoardShape:
        """The board of a store."""
        return cls(StatusShape.of(store, seen.overview), [BoardLineShape.of(line) for line in seen.lines])
