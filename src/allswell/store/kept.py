"""Which attempts need no row of their own (docs/adr/0010)."""

from __future__ import annotations

from allswell.domain.names import TaskId
from allswell.domain.task import Attempt
from allswell.store.port import Changes


def kept_with_task(changes: Changes) -> dict[TaskId, Attempt]:
    """First attempts that end as their task's row is written anyway: a store may keep them there."""
    if not changes.new_attempts:
        return {}
    written = {task.id for task, _ in changes.tasks}
    return {
        ended.task: ended
        for ended in changes.new_attempts
        if ended.token == 1 and ended.late is None and ended.afterwards is None and ended.task in written
    }
