"""What can be read about a task: all of it, why it stands where it stands, and the receipts of its attempts."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from allswell.domain.access import Act, check_act
from allswell.domain.names import TaskId, can_name
from allswell.doors.mcp.desk import WatchDesk
from allswell.doors.shapes.explanation import ExplanationShape
from allswell.doors.shapes.receipt import ReceiptShape, ReceiptsShape
from allswell.doors.showing import shown_task
from allswell.engine.explaining.why import why
from allswell.errors import Refused
from allswell.runtime.receipts import Receipts

MEDIA_TYPE = "application/json"
_URI = re.compile(r"allswell://tasks/([^/?#]{1,200})(?:/(why|receipts))?")


class Template(NamedTuple):
    """One kind of thing that can be read."""

    uri: str
    name: str
    title: str
    description: str


TEMPLATES = (
    Template(
        "allswell://tasks/{task_id}",
        "task",
        "A task",
        "A task with what it was given, what it came to, its attempts and its questions.",
    ),
    Template(
        "allswell://tasks/{task_id}/why",
        "why",
        "Why a task stands where it stands",
        "Why a task stands where it stands, what comes next, and what can be done.",
    ),
    Template(
        "allswell://tasks/{task_id}/receipts",
        "receipts",
        "The receipts of a task",
        "What its attempts on the server's machine left: how they ended, what they changed, how to go on from there.",
    ),
)


async def read(desk: WatchDesk, uri: str) -> bytes:
    """What stands at an address, as JSON; `Refused` where that is nothing, or not for this key."""
    found = _URI.fullmatch(uri)
    if found is None or not can_name(found[1]):
        hint = f"there are: {', '.join(one.uri for one in TEMPLATES)}"
        raise Refused("unknown_resource", f"nothing is to be read at {uri[:200]!r}", where="uri", hint=hint)
    task, part = TaskId(found[1]), found[2]
    views = desk.watch.views
    if await views.view_task(task) is None:
        raise Refused("unknown_task", f"there is no task {task!r}, or it is none of yours", where="uri")
    if part is None:
        return msgspec.json.encode(await shown_task(views, task, desk.home))
    if part == "why":
        return msgspec.json.encode(ExplanationShape.of(await why(views, task), None))
    check_act(desk.key, Act.LOOK)  # they tell of the server's own machine: paths, programs, who else worked on it
    kept = [one for one in Receipts(desk.home / "receipts").all() if one.receipt.task == task]
    return msgspec.json.encode(ReceiptsShape([ReceiptShape.of(one.receipt, one.path, str) for one in kept]))
