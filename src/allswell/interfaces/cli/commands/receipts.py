"""`receipts`, `recover` and `diff`: what attempts have left and changed, and giving work back."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from time import time_ns
from typing import TYPE_CHECKING, Annotated

from allswell.engine.status.explanation import many
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, remark, write
from allswell.interfaces.cli.options import Argument, Option
from allswell.interfaces.cli.registry import DECIDING, LOOKING, Commands
from allswell.interfaces.cli.rendering import (
    Column,
    block,
    cut,
    paint,
    pairs,
    plain,
    sentence,
    table,
    typed_here,
    typed_in,
    when,
)

if TYPE_CHECKING:
    from allswell.domain.receipts.snapshot import Snapshot
    from allswell.runtime.workspace.recover import Recovery
    from allswell.views.attempt import VerificationShape
    from allswell.views.detail import ShownReceiptShape
    from allswell.views.receipt import ReceiptShape, SnapshotShape, WorkShape


_PAGE = 50
_FILES = 20
_CHECKED = 40
"""Lines of what a verification printed that are shown."""
_LONGEST = 200
_SAID = 10
"""Lines of a command's output that are shown with its receipt."""


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    app.add(
        LOOKING,
        "diff",
        diff,
        "allswell diff t_…                     of its last attempt",
        "allswell diff t_… --attempt 1 --stat  which files, and how much",
        "allswell diff t_… | git apply         once more, somewhere else",
    )
    app.add(LOOKING, "receipts", receipts, "allswell receipts", "allswell receipts --task t_… --json")
    app.add(
        DECIDING,
        "recover",
        recover,
        "allswell recover t_…                     what would happen",
        "allswell recover t_… --into ../rescued   all of it, into another folder",
        "allswell recover t_… --apply             back to where it was",
    )


def receipts(
    task: Annotated[
        str | None, Option("--task", "-t", metavar="ID", help="Only receipts of this task.", of=("task",))
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", min=1, help="Only the last N.")] = _PAGE,
    *,
    context: CliContext,
) -> None:
    """List receipts, the newest last: of attempts that did not end well, or left work on a branch."""
    from allswell.views.receipt import ReceiptsShape

    found = typed_in(context.beside(context.artifacts.receipts(task, limit=limit)).receipts[::-1])
    now = time_ns() // 1_000_000
    rows = [
        [
            one.receipt_id,
            one.name,
            _status(one),
            when(one.ended_at, now),
            str(len(one.changed) + one.changed_more or ""),
            one.reason,
        ]
        for one in found
    ]
    heads = (
        Column("RECEIPT"),
        Column("NAME", 12),
        Column("STATUS"),
        Column("ENDED"),
        Column("FILES", None, right=True),
        Column("", 10),
    )
    context.say(
        ReceiptsShape(found),
        table(heads, rows) if rows else "No receipts: no attempt here has ended badly, or left its work on a branch.",
    )


def shown_receipt(context: CliContext, what: str) -> tuple[ShownReceiptShape, str] | None:
    """A receipt for `allswell show`: by its id or its file; None if this names none."""
    from allswell.views.detail import ShownReceiptShape

    found = context.beside(context.artifacts.receipt(what))
    if found is None:
        return None
    lines = [] if context.json else context.beside(context.artifacts.last_lines(found, _SAID))
    found = typed_in(found)
    return ShownReceiptShape(found), _told(found, [cut(plain(line), _LONGEST) for line in lines])


def _status(receipt: ReceiptShape) -> str:
    return receipt.status.value.replace("_", " ") + (" (partial)" if receipt.partial else "")


def _told(receipt: ReceiptShape, said: Sequence[str] = ()) -> str:

    now = time_ns() // 1_000_000
    used = receipt.used
    kept = receipt.snapshot
    streams = [one for one in (receipt.stdout, receipt.stderr) if one is not None]
    facts = pairs(
        [
            ("receipt", f"{paint(plain(receipt.name), 'bold')}  {receipt.receipt_id}"),
            ("status", paint(_status(receipt), "warn")),
            ("attempt", f"{receipt.attempt} of {receipt.task_id}, by {plain(receipt.agent_id)}"),
            ("ended", when(receipt.ended_at, now)),
            ("command", plain(shlex.join(receipt.argv))),
            ("in", plain(receipt.cwd)),
            ("session", plain(receipt.session or "")),
            ("open call", plain(receipt.open_call or "")),
            ("printed", "\n".join(f"{plain(one.path)} ({one.bytes:,} bytes)" for one in streams)),
            ("kept in", "" if kept is None else plain(kept.name)),
            ("branch", "" if receipt.branch is None else plain(receipt.branch.name)),
            (
                "used",
                ""
                if used is None
                else f"{(used.user_ms + used.system_ms) / 1_000:.1f} s of processor, {used.max_rss_kb // 1024} MB",
            ),
        ]
    )
    parts = [facts, sentence(plain(receipt.says))]
    if said:
        parts.append(f"{paint('end of its output', 'dim')}\n" + block("\n".join(said), "  "))
    if receipt.verification is not None:
        parts.append(_verification(receipt.verification))
    if receipt.evidence:
        lines = [f"{one.sign.value}, after {one.at / 1_000:.1f} s: {plain(one.what)}" for one in receipt.evidence]
        parts.append(f"{paint('evidence', 'dim')}\n" + block("\n".join(lines), "  "))
    if receipt.changed:
        lines = [f"  {change.how} {plain(change.path)}" for change in receipt.changed[:_FILES]]
        more = len(receipt.changed) + receipt.changed_more - _FILES
        parts.append(f"{paint('changed', 'dim')}\n" + "\n".join(lines + ([f"  and {more} more"] if more > 0 else [])))
    advice = receipt.advice
    typed = [*advice.look[1:], *advice.recover, *advice.resume, *advice.merge]
    if typed:
        lines = [f"  {plain(one)}" for one in typed]  # each in one line, however long: it is copied
        parts.append("\n".join([paint("next", "dim"), *lines]))
    return "\n\n".join(parts)


def _verification(came: VerificationShape) -> str:
    """What came of the verification, with the end of what it printed."""
    lines = came.output.strip().splitlines()
    more = f" (the last {_CHECKED} lines)" if len(lines) > _CHECKED or came.left_out else ""
    printed = f", and printed{more}" if lines else ", and printed nothing"
    head = paint(f"verification: {plain(came.says)}{printed}", "dim")
    return head + ("\n" + block("\n".join(lines[-_CHECKED:]), "  ") if lines else "")


# --- recovering -------------------------------------------------------------------------------------------------------


def recover(
    what: Annotated[str, Argument(metavar="TASK", help="The task, or one of its receipts.", of=("task",))],
    into: Annotated[str | None, Option("--into", metavar="DIR", help="Write it into this folder.")] = None,
    apply: Annotated[bool, Option("--apply", help="Write it back to where it was.")] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Number of the attempt. Default: the last.")
    ] = None,
    *,
    context: CliContext,
) -> None:
    """Bring back the work of an attempt that did not end well.

    A file is replaced only if it was not changed since; otherwise it stays, and the saved one is put beside it as
    NAME.recovered. With neither --into nor --apply, nothing is written: it lists what was kept.
    """
    from allswell.interfaces.cli.commands import show
    from allswell.views.receipt import RecoverShape, RecoveryShape

    if into is not None and apply:
        raise Refused("usage", "either --into DIR or --apply, not both", where="--apply")
    receipt = _with_work(context, what, attempt)
    work, kept = context.beside(_work_of(context, receipt)), receipt.snapshot
    if into is None and not apply:
        said = show.work_text(work) if work is not None else "" if kept is None else _offered(kept, what)
        context.say(RecoverShape(work, None if work is not None else kept, None), said)
        return
    if work is not None or kept is None:
        text = f"nothing has to be recovered: the attempt ended well, and the work of {what!r} is where it was left"
        hint = f"`{shlex.join(['allswell', 'recover', what])}` says where"
        raise Refused("no_snapshot", text, where="TASK", hint=hint)
    from allswell.runtime.receipts import Receipts
    from allswell.runtime.workspace.recover import recover as give_back
    from allswell.views.fields import as_shape

    stored = Receipts(context.home / "receipts").find(receipt.path if what.endswith(".json") else receipt.receipt_id)
    if stored is None or stored.receipt.snapshot is None:
        text = f"the work of {what!r} is kept on the machine of the server: give it back there"
        raise Refused("not_remote", text, where="TASK")
    snapshot = stored.receipt.snapshot
    if apply:
        _check_place(context, snapshot)
    done = give_back(snapshot, into=into, apply=apply)
    context.say(RecoverShape(None, kept, as_shape(done, RecoveryShape)), _given_back(done))


def _check_place(context: CliContext, snapshot: Snapshot) -> None:
    """Receipts lie where agents can write: what is given back goes to the folder one is in, or to one the task had."""
    from allswell.domain.receipts.snapshot import unspell
    from allswell.runtime.attempt.orphans import is_place, known_of
    from allswell.runtime.receipts import StateDir

    folder = os.fsdecode(unspell(snapshot.folder))
    home, here = StateDir(context.home), str(Path.cwd())
    if is_place(folder, snapshot.task, None, home, [here]):
        return
    known = context.look(lambda views: known_of(views, snapshot.task))
    agents = [spec.cwd for spec in context.settings.fleet.agents.values()]
    if not is_place(folder, snapshot.task, known, home, agents):
        text = f"its receipt says that the work came from {folder}, and this task was not run there, as far as is known"
        raise Refused("other_folder", f"{text}; go there to apply it, or use --into DIR", where="--apply")


async def _work_of(context: CliContext, receipt: ReceiptShape) -> WorkShape | None:
    """Where the work is, if the receipt tells of a branch; whether that is merged is known of the last attempt."""
    if receipt.branch is None:
        return None
    from allswell.views.receipt import WorkShape

    work = await context.artifacts.work(receipt.task_id)
    return work if work and work.receipt_id == receipt.receipt_id else WorkShape.of(receipt, receipt.branch, None)


def _with_work(context: CliContext, what: str, attempt: int | None) -> ReceiptShape:
    """The last receipt of a task, or of one of its attempts, that tells of a branch; else the one with a snapshot."""
    named = what.startswith("rc_") or what.endswith(".json")
    one = context.beside(context.artifacts.receipt(what)) if named else None
    found = [one] if one is not None else context.beside(context.artifacts.receipts(what)).receipts[::-1]
    if not found:
        from allswell.engine.lookup import did_you_mean

        every = context.beside(context.artifacts.receipts()).receipts
        hint = did_you_mean(what, [name for seen in every for name in (seen.task_id, seen.name)])
        hint = hint or "; `allswell receipts` lists what there is"
        raise Refused("no_snapshot", f"no attempt at {what!r} has left a receipt here{hint}", where="TASK")
    tasks = {seen.task_id for seen in found}
    if len(tasks) > 1:
        text = f"several tasks have the name {what!r}: {', '.join(sorted(tasks))}; name one by its id"
        raise Refused("ambiguous", text, where="TASK")
    meant = [seen for seen in found if attempt in (None, seen.attempt)]
    if done := [seen for seen in meant if seen.branch is not None]:
        return done[-1]
    kept = [(seen.snapshot.attempt, seen.snapshot.taken_at, seen) for seen in meant if seen.snapshot is not None]
    if not kept:
        if attempt is None:
            text = f"no work has been kept of any attempt at {what!r}"
        else:
            text = f"attempt {attempt} at {what!r} has kept no work"
        raise Refused("no_snapshot", text, where="TASK")
    return max(kept, key=lambda one: one[:2])[2]


def _offered(snapshot: SnapshotShape, what: str) -> str:
    head = f"The work of attempt {snapshot.attempt} is in {plain(snapshot.name)}, from {plain(snapshot.folder)}."
    lines = [
        sentence(" ".join([head, *(f"{plain(note)[:1].upper()}{plain(note)[1:]}." for note in snapshot.notes)])),
        *_listed("not in it", [f"{one.path} ({one.why.value})" for one in snapshot.left_out]),
        *_listed("changed while it was read", list(snapshot.torn)),
        f"  {typed_here(f'allswell recover {quote(plain(what))} --into DIR')}",
        f"  {typed_here(f'allswell recover {quote(plain(what))} --apply')}",
    ]
    return "\n".join(lines)


def _listed(what: str, paths: Sequence[str]) -> list[str]:
    """What is to be said about these files, and the first of them."""
    if not paths:
        return []
    more = [f"  and {len(paths) - _FILES} more"] if len(paths) > _FILES else []
    return [f"{paint(what, 'dim')}:", *(f"  {plain(path)}" for path in paths[:_FILES]), *more]


def _given_back(done: Recovery) -> str:
    written = len(done.written) + len(done.replaced)
    same = many(done.same, "was there already", "were there already")
    said = [f"{many(written, 'file')} written to {plain(done.folder)}, {same}."]
    untouched = sum(one.why.value == "not_copied" for one in done.missing)
    if untouched:
        was = "was" if untouched == 1 else "were"
        said.append(f"{untouched} {was} not touched by the attempt, and not copied.")
    missing = [f"{one.path} ({one.why.value})" for one in done.missing if one.why.value != "not_copied"]
    lines = [
        sentence(" ".join(said)),
        *_listed("put beside what is there", [f"{one.path} → {one.recovered}" for one in done.conflicts]),
        *_listed("deleted by the attempt, and left", done.deleted),
        *_listed("not in the snapshot", missing),
    ]
    return "\n".join(lines)


# `diff`: what an attempt has changed since it began, whatever its end.

_COLOURS = {"+": "ready", "-": "failed", "@": "held"}


def diff(
    what: Annotated[
        str,
        Argument(metavar="TASK", help="The task or one of its receipts; a name if only one task has it.", of=("task",)),
    ],
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Number of the attempt. Default: the last.")
    ] = None,
    stat: Annotated[bool, Option("--stat", help="Only file names and numbers of lines.")] = False,
    *,
    context: CliContext,
) -> None:
    """Show the changes of an attempt as a diff; while it runs, those so far.

    Changes from before the attempt, committed or not, are left out. If there was too much to record when it began, the
    diff is against HEAD, and a line says so.
    """
    if what.startswith("rc_"):
        from allswell.domain.receipts.receipt import attempt_of_receipt, task_of_receipt

        task, attempt = task_of_receipt(what), attempt or attempt_of_receipt(what)
    else:
        from allswell.engine.lookup import find_task

        task = context.look(lambda views: find_task(views, what))
    found, text = context.beside(context.artifacts.diff(task, attempt, stat=stat))
    if context.json:
        context.say(found)
        return
    if found.gap:
        remark(
            f"allswell: since HEAD, because not all was noted when attempt {found.attempt} began: {plain(found.gap)}"
        )
    for path in found.unshown:
        remark(f"allswell: {plain(path)} differs too; its content was not kept")
    if not found.changed:
        earlier = (
            f"; --attempt {found.attempt - 1} shows the one before" if attempt is None and found.attempt > 1 else ""
        )
        remark(f"allswell: attempt {found.attempt} has changed nothing from {found.since} to {found.until}{earlier}")
    _print(text)


def _print(text: bytes) -> None:
    """To a pipe as it is, so that it can be applied; at a terminal nothing in it can do harm."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        return
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        style = "bold" if line.startswith(("diff ", "+++ ", "--- ")) else _COLOURS.get(line[:1])
        write((paint(plain(line), style) if style else plain(line)) + "\n")
