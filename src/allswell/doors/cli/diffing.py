"""`diff`: what an attempt has changed since it began, whatever its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.commands import LOOKING, Commands
from allswell.doors.cli.frame import Frame, remark, write
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import paint, plain

if TYPE_CHECKING:
    from allswell.domain.names import TaskId
    from allswell.store.views import Views

_COLOURS = {"+": "ready", "-": "failed", "@": "held"}


def add_to(app: Commands) -> None:
    """Add the command to the command line."""
    app.add(
        LOOKING,
        "diff",
        diff,
        "allswell diff t_…                     of its last attempt",
        "allswell diff t_… --attempt 1 --stat  which files, and how much",
        "allswell diff t_… | git apply         once more, somewhere else",
    )


def diff(
    what: Annotated[
        str, Argument(metavar="TASK", help="The task, or one of its receipts; a name where it is unique.", of=("task",))
    ],
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Of this attempt. Default: the last.")
    ] = None,
    stat: Annotated[bool, Option("--stat", help="Only which files, and how much.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what an attempt has changed since it began, whatever its end; while it runs, up to now.

    What was there before, committed or not, is not part of it. Where there was too much to note at its beginning, it is
    compared with HEAD, and says so.
    """
    frame = Frame(store, json=json)
    if what.startswith("rc_"):
        from allswell.domain.receipt import task_of_receipt

        task, attempt = task_of_receipt(what), attempt or _number(what)
    else:
        task = frame.look(lambda views: _task(views, what))
    from allswell.doors.shapes.diff import DiffShape

    text = None
    if frame.is_elsewhere:
        which = "" if attempt is None else f"&attempt={attempt}"
        found = frame.ask(f"/tasks/{task}/diff?stat={'true' if stat else 'false'}{which}", DiffShape)
    else:
        from allswell.runtime.attempt.changes import changes_of
        from allswell.runtime.receipts import Home

        changes = changes_of(Home(frame.home), task, attempt, stat=stat)
        text, found = changes.difference.text, DiffShape.of(task, changes)
    if json:
        frame.say(found)
        return
    if found.gap:
        remark(
            f"allswell: since HEAD, because not all was noted when attempt {found.attempt} began: {plain(found.gap)}"
        )
    for path in found.unshown:
        remark(f"allswell: {plain(path)} differs too; its bytes were not kept")
    if not found.changed:
        earlier = (
            f"; --attempt {found.attempt - 1} shows the one before" if attempt is None and found.attempt > 1 else ""
        )
        remark(f"allswell: attempt {found.attempt} has changed nothing from {found.since} to {found.until}{earlier}")
    _print(found.diff.encode() if text is None else text)


async def _task(views: Views, what: str) -> TaskId:
    from allswell.engine.finding import find_task

    return await find_task(views, what)


def _number(receipt: str) -> int | None:
    last = receipt.rpartition(".")[2]
    return int(last) if last.isdecimal() else None


def _print(text: bytes) -> None:
    """To a pipe as it is, so that it can be applied; at a terminal nothing in it can do harm."""
    import sys

    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        style = "bold" if line.startswith(("diff ", "+++ ", "--- ")) else _COLOURS.get(line[:1])
        write((paint(plain(line), style) if style else plain(line)) + "\n")
