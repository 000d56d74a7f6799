"""Tasks as they are listed: which of them, and each with what shows where it stands."""

from __future__ import annotations

import msgspec

from allswell.domain.lease import Lease
from allswell.domain.names import Millis, RunId, TaskId
from allswell.domain.task import Task, Wait


class TaskFilter(msgspec.Struct, frozen=True):
    """Which tasks to list."""

    open: bool | None = None
    run: RunId | None = None
    name: str | None = None
    role: str | None = None
    states: tuple[str, ...] = ()  # derived ones, as `State` names them
    after: str = ""  # where the last page ended: only ids greater than this one, of the newest only smaller ones
    limit: int = 1_000
    ids: tuple[TaskId, ...] | None = None  # only these; those that do not exist are missing
    text: str = ""  # only those with this in their name, id, role or holder; `folded`
    newest: bool = False  # the greatest ids first


LAST = "\U0010ffff"
"""Behind every id: where the newest tasks begin."""


def folded(text: str) -> str:
    """Text as it is compared where upper and lower case count the same: ASCII letters only, as every store can."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


class TaskRow(msgspec.Struct, frozen=True):
    """A task with what shows where it stands, for reading only."""

    task: Task
    lease: Lease | None
    ready: bool
    due: Millis | None
    waits: tuple[Wait, ...]
