"""`receipts`, `recover` and `diff`: what attempts have left and changed, and giving work back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.domain.ids import is_file_name
from allswell.engine.status.explanation import many
from allswell.errors import Refused
from allswell.interfaces.cli.context import CliContext, remark, write
from allswell.interfaces.cli.options import Argument, Json, Option, Store
from allswell.interfaces.cli.registry import DECIDING, LOOKING, Commands
from allswell.interfaces.cli.rendering import Column, block, paint, pairs, plain, sentence, table, typed_here, when

if TYPE_CHECKING:
    from allswell.domain.ids import TaskId
    from allswell.domain.receipts.receipt import Receipt
    from allswell.domain.receipts.snapshot import Snapshot
    from allswell.runtime.receipts import Receipts
    from allswell.runtime.workspace.recover import Recovery
    from allswell.store.views import Views
    from allswell.views.attempt import VerificationShape
    from allswell.views.detail import ShownReceiptShape
    from allswell.views.receipt import ReceiptShape


_PAGE = 50
_FILES = 20
_CHECKED = 40
"""Lines of what a verification printed that are shown."""
_SAID = 10
"""Lines of a command's output that are shown with its receipt."""


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
    _add_diff(app)
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
    store: Store = None,
    json: Json = False,
) -> None:
    """List receipts, the newest last: of attempts that did not end well, or left work on a branch."""
    from time import time_ns

    from allswell.views.fields import millis
    from allswell.views.receipt import ReceiptsShape

    context = CliContext(store, json=json)
    found = _listed_there(context, task, limit) if context.is_elsewhere else _listed_here(context, task, limit)
    now = time_ns() // 1_000_000
    rows = [
        [
            one.receipt_id,
            one.name,
            _status(one),
            when(millis(one.ended_at), now),
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


def _listed_here(context: CliContext, task: str | None, limit: int) -> list[ReceiptShape]:
    from allswell.views.receipt import ReceiptShape

    found = [one for one in _kept(context).all() if task in (None, one.receipt.task, one.receipt.name)][-limit:]
    return [ReceiptShape.of(one.receipt, one.path, typed_here) for one in found]


def _listed_there(context: CliContext, task: str | None, limit: int) -> list[ReceiptShape]:
    from urllib.parse import quote

    from allswell.views.receipt import ReceiptPageShape

    which = "" if task is None else f"&task={quote(task, safe='')}"
    return context.ask(f"/receipts?limit={min(limit, 1_000)}{which}", ReceiptPageShape).receipts[::-1]


def _kept(context: CliContext) -> Receipts:
    from allswell.runtime.receipts import Receipts

    return Receipts(context.home / "receipts")


def left_by(context: CliContext, task: str, attempts: Iterable[int]) -> list[str]:
    """The ids of the receipts that these attempts at a task have left here."""
    folder = context.home / "receipts"
    ids = [f"rc_{task.removeprefix('t_')}.{attempt}" for attempt in attempts]
    return [id_ for id_ in ids if is_file_name(id_) and (folder / f"{id_}.json").is_file()]


def shown(context: CliContext, what: str) -> tuple[ShownReceiptShape, str] | None:
    """A receipt for `allswell show`: by its id or its file; None if this names none."""
    if not what.startswith("rc_") and not what.endswith(".json"):
        return None
    from allswell.views.detail import ShownReceiptShape
    from allswell.views.receipt import ReceiptShape

    if context.is_elsewhere and what.startswith("rc_"):
        from urllib.parse import quote

        there = context.ask(f"/receipts/{quote(what, safe='')}", ShownReceiptShape)
        return there, _told(there.receipt)
    found = _kept(context).find(what)
    if found is None:
        if what.startswith("rc_"):
            raise Refused(
                "unknown_receipt", f"there is no receipt {what!r}; `allswell receipts` lists them", where="ID"
            )
        return None
    from allswell.interfaces.cli.run_display import last_lines

    shape = ReceiptShape.of(found.receipt, found.path, typed_here)
    return ShownReceiptShape(shape), _told(shape, last_lines(found.receipt, _SAID))


def _status(receipt: ReceiptShape) -> str:
    return receipt.status.value.replace("_", " ") + (" (partial)" if receipt.partial else "")


def _told(receipt: ReceiptShape, said: Sequence[str] = ()) -> str:
    from time import time_ns

    from allswell.views.fields import millis

    now = time_ns() // 1_000_000
    used = receipt.used
    kept = receipt.snapshot
    streams = [one for one in (receipt.stdout, receipt.stderr) if one is not None]
    facts = pairs(
        [
            ("receipt", f"{paint(plain(receipt.name), 'bold')}  {receipt.receipt_id}"),
            ("status", paint(_status(receipt), "warn")),
            ("attempt", f"{receipt.attempt} of {receipt.task_id}, by {plain(receipt.agent_id)}"),
            ("ended", when(millis(receipt.ended_at), now)),
            ("command", plain(shlex.join(receipt.argv))),
            ("in", plain(receipt.cwd)),
            ("session", plain(receipt.session or "")),
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
        lines = [f"{one.sign.value}, after {one.after_ms / 1_000:.1f} s: {plain(one.what)}" for one in receipt.evidence]
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
    from allswell.interfaces.cli.commands.verify import told

    lines = came.output.strip().splitlines()
    more = f" (the last {_CHECKED} lines)" if len(lines) > _CHECKED or came.left_out else ""
    printed = f", and printed{more}" if lines else ", and printed nothing"
    head = paint(f"verification: {told(came)}{printed}", "dim")
    return head + ("\n" + block("\n".join(lines[-_CHECKED:]), "  ") if lines else "")


# --- recovering -------------------------------------------------------------------------------------------------------


def recover(
    what: Annotated[str, Argument(metavar="TASK", help="The task, or one of its receipts.", of=("task",))],
    into: Annotated[str | None, Option("--into", metavar="DIR", help="Write it into this folder.")] = None,
    apply: Annotated[bool, Option("--apply", help="Write it back to where it was.")] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Number of the attempt. Default: the last.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Bring back the work of an attempt that did not end well.

    A file is replaced only if it was not changed since; otherwise it stays, and the saved one is put beside it as
    NAME.recovered. With neither --into nor --apply, nothing is written: it lists what was kept.
    """
    from allswell.domain.receipts.snapshot import Snapshot
    from allswell.interfaces.cli.commands import show
    from allswell.views.receipt import RecoverShape, RecoveryShape, SnapshotShape

    context = CliContext(store, json=json)
    if into is not None and apply:
        raise Refused("usage", "either --into DIR or --apply, not both", where="--apply")
    snapshot = _snapshot(context, what, attempt)
    if not isinstance(snapshot, Snapshot):
        if into is None and not apply:
            context.say(RecoverShape(show.work_view(snapshot), None, None), show.work_text(snapshot))
            return
        text = f"nothing has to be recovered: the attempt ended well, and the work of {what!r} is where it was left"
        hint = f"`{shlex.join(['allswell', 'recover', what])}` says where"
        raise Refused("no_snapshot", text, where="TASK", hint=hint)
    if into is None and not apply:
        context.say(RecoverShape(None, SnapshotShape.of(snapshot), None), _offered(snapshot, what))
        return
    from allswell.runtime.workspace.recover import recover as give_back

    if apply:
        _check_place(context, snapshot)
    done = give_back(snapshot, into=into, apply=apply)
    context.say(RecoverShape(None, SnapshotShape.of(snapshot), RecoveryShape.of(done)), _given_back(done))


def _check_place(context: CliContext, snapshot: Snapshot) -> None:
    """Receipts lie where agents can write: what is given back goes to the folder one is in, or to one the task had."""
    import os
    from pathlib import Path

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


def _snapshot(context: CliContext, what: str, attempt: int | None) -> Snapshot | Receipt:
    """The last snapshot of a task, or that of one of its attempts; its receipt, if that tells of a branch instead."""
    kept = _kept(context)
    one = kept.find(what) if what.startswith("rc_") or what.endswith(".json") else None
    every = kept.all()
    found = [one] if one is not None else [seen for seen in every if what in (seen.receipt.task, seen.receipt.name)]
    if not found:
        from allswell.engine.lookup import did_you_mean

        known = [name for seen in every for name in (seen.receipt.task, seen.receipt.name)]
        hint = did_you_mean(what, known) or "; `allswell receipts` lists what there is"
        raise Refused("no_snapshot", f"no attempt at {what!r} has left a receipt here{hint}", where="TASK")
    tasks = {seen.receipt.task for seen in found}
    if len(tasks) > 1:
        text = f"several tasks have the name {what!r}: {', '.join(sorted(tasks))}; name one by its id"
        raise Refused("ambiguous", text, where="TASK")
    snapshots = [
        seen.receipt.snapshot
        for seen in found
        if seen.receipt.snapshot is not None and attempt in (None, seen.receipt.attempt)
    ]
    done = [
        seen.receipt for seen in found if seen.receipt.branch is not None and attempt in (None, seen.receipt.attempt)
    ]
    if done:
        return done[-1]
    if not snapshots:
        if attempt is None:
            text = f"no work has been kept of any attempt at {what!r}"
        else:
            text = f"attempt {attempt} at {what!r} has kept no work"
        raise Refused("no_snapshot", text, where="TASK")
    return max(snapshots, key=lambda snapshot: (snapshot.attempt, snapshot.taken_at))


def _offered(snapshot: Snapshot, what: str) -> str:
    from shlex import quote

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


def _add_diff(app: Commands) -> None:
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
        str,
        Argument(metavar="TASK", help="The task or one of its receipts; a name if only one task has it.", of=("task",)),
    ],
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Number of the attempt. Default: the last.")
    ] = None,
    stat: Annotated[bool, Option("--stat", help="Only file names and numbers of lines.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Show the changes of an attempt as a diff; while it runs, those so far.

    Changes from before the attempt, committed or not, are left out. If there was too much to record when it began, the
    diff is against HEAD, and a line says so.
    """
    context = CliContext(store, json=json)
    if what.startswith("rc_"):
        from allswell.domain.receipts.receipt import task_of_receipt

        task, attempt = task_of_receipt(what), attempt or _number(what)
    else:
        task = context.look(lambda views: _task(views, what))
    from allswell.views.receipt import DiffShape

    text = None
    if context.is_elsewhere:
        which = "" if attempt is None else f"&attempt={attempt}"
        found = context.ask(f"/tasks/{task}/diff?stat={'true' if stat else 'false'}{which}", DiffShape)
    else:
        from allswell.runtime.receipts import StateDir
        from allswell.runtime.workspace.diff import changes_of

        changes = changes_of(StateDir(context.home), task, attempt, stat=stat)
        text, found = changes.difference.text, DiffShape.of(task, changes)
    if json:
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
    _print(found.diff.encode() if text is None else text)


async def _task(views: Views, what: str) -> TaskId:
    from allswell.engine.lookup import find_task

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
