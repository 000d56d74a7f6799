"""Huey on SQLite: taking a task deletes it; there is no lease, so nothing can lapse and nothing comes back."""

import sys
from pathlib import Path

from huey import SqliteHuey
from story import LOST, Story

story = Story("none: dequeue() deletes the row")
huey = SqliteHuey(filename=str(Path(sys.argv[1]) / "huey.db"), fsync=True)


@huey.task()
def noop() -> None:
    """Nothing."""


noop()
held = huey.dequeue()
story.say("A", "huey.dequeue()", f"task {held.id[:8]}")
story.say("B", "huey.dequeue()", huey.dequeue())
assert huey.pending_count() == 0
story.end(LOST, "if A dies now, the task is gone: no other worker ever sees it")
