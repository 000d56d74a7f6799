"""What one attempt has changed, on a screen of its own: git is asked for it, so only while somebody looks at it."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from allswell.domain.access import check_beside
from allswell.domain.task import Task
from allswell.doors.http.call import Call
from allswell.doors.page.query import number_of
from allswell.doors.page.task import row_of
from allswell.errors import Refused
from allswell.runtime.attempt.changes import Changes, changes_of
from allswell.runtime.receipts import Home

_AT_ONCE = asyncio.Semaphore(2)
"""Each of them runs git."""
_LINES = 3_000
_KINDS = {"+": "added", "-": "gone", "@": "place"}


class DiffLine(Struct, frozen=True):
    """One line of a difference."""

    kind: str
    text: str


class ChangedScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    task: Task
    attempt: int
    changes: Changes | None
    wrong: str
    """Why there is nothing to show."""
    lines: list[DiffLine]
    more: int


async def look(call: Call) -> ChangedScreen:
    """Look at what an attempt has changed."""
    check_beside(call.key, "diff")
    task = (await row_of(call)).task
    attempt = number_of(call, "attempt")
    now = (await call.views.view_agenda()).now
    title = f"Changes of {task.name}"
    try:
        async with _AT_ONCE:
            found = await asyncio.to_thread(changes_of, Home(call.house.home), task.id, attempt or None)
    except Refused as refused:
        return ChangedScreen(title, now, task, attempt, None, str(refused), [], 0)
    text = found.difference.text.decode("utf-8", "replace").split("\n")
    lines = read_diff(text[:_LINES])
    return ChangedScreen(title, now, task, found.attempt, found, "", lines, max(len(text) - _LINES, 0))


def read_diff(text: list[str]) -> list[DiffLine]:
    """Each line with its kind. What stands above the first `@@` of a file is about the file, whatever it looks like."""
    lines, inside = [], False
    for line in text:
        if line.startswith("diff "):
            inside, kind = False, "file"
        elif not inside and not line.startswith("@"):
            kind = "file" if line.startswith(("+++ ", "--- ")) else "about"
        else:
            inside, kind = True, _KINDS.get(line[:1], "same")
        lines.append(DiffLine(kind, line))
    return lines
