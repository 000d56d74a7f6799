"""`receipts` lists what attempts have left that did not end well, or on branches; `recover` gives work back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from allswell.doors.cli.advice import typed_here
from allswell.doors.cli.commands import DECIDING, LOOKING, Commands
from allswell.doors.cli.frame import Frame
from allswell.doors.cli.options import Argument, Json, Option, Store
from allswell.doors.cli.render import Column, block, paint, pairs, plain, sentence, table, when
from allswell.engine.explaining.words import many
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.receipt import Receipt
    from allswell.domain.snapshot import Snapshot
    from allswell.doors.shapes.receipt import ReceiptShape
    from allswell.doors.shapes.shown import ShownReceiptShape
    from allswell.doors.shapes.verification import VerificationShape
    from allswell.runtime.receipts import Receipts
    from allswell.runtime.snapshot import Recovery

_PAGE = 50
_FILES = 20
_CHECKED = 40
"""Lines of what a verification printed that are shown."""
_SAID = 10
"""Lines of a command's output that are shown with its receipt."""


def add_to(app: Commands) -> None:
    """Add these commands to the command line."""
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
        str | None, Option("--task", "-t", metavar="ID", help="Only those of this task.", of=("task",))
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", min=1, help="The last N.")] = _PAGE,
    store: Store = None,
    json: Json = False,
) -> None:
    """List the receipts of attempts that did not end well, or left their work on a branch, the newest last."""
    from time import time_ns

    from allswell.doors.shapes.moment import millis
    from allswell.doors.shapes.receipt import ReceiptsShape

    frame = Frame(store, json=json)
    found = _listed_there(frame, task, limit) if frame.is_elsewhere else _listed_here(frame, task, limit)
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
    frame.say(
        ReceiptsShape(found),
        table(heads, rows) if rows else "No receipts: no attempt here has ended badly, or left its work on a branch.",
    )


def _listed_here(frame: Frame, task: str | None, limit: int) -> list[ReceiptShape]:
    from allswell.doors.shapes.receipt import ReceiptShape

    found = [one for one in _kept(frame).all() if task in (None, one.receipt.task, one.receipt.name)][-limit:]
    return [ReceiptShape.of(one.receipt, one.path, typed_here) for one in found]


def _listed_there(frame: Frame, task: str | None, limit: int) -> list[ReceiptShape]:
    from urllib.parse import quote

    from allswell.doors.shapes.receipt import ReceiptPageShape

    which = "" if task is None else f"&task={quote(task, safe='')}"
    return frame.ask(f"/receipts?limit={min(limit, 1_000)}{which}", ReceiptPageShape).receipts[::-1]


def _kept(frame: Frame) -> Receipts:
    from allswell.runtime.receipts import Receipts

    return Receipts(frame.home / "receipts")


def left_by(frame: Frame, task: str, attempts: Iterable[int]) -> list[str]:
    """The ids of the receipts that these attempts at a task have left here."""
    folder = frame.home / "receipts"
    ids = [f"rc_{task.removeprefix('t_')}.{attempt}" for attempt in attempts]
    return [id_ for id_ in ids if (folder / f"{id_}.json").is_file()]


def shown(frame: Frame, what: str) -> tuple[ShownReceiptShape, str] | None:
    """A receipt for `allswell show`: by its id or its file; None if this names none."""
    if not what.startswith("rc_") and not what.endswith(".json"):
        return None
    from allswell.doors.shapes.receipt import ReceiptShape
    from allswell.doors.shapes.shown import ShownReceiptShape

    if frame.is_elsewhere and what.startswith("rc_"):
        from urllib.parse import quote

        there = frame.ask(f"/receipts/{quote(what, safe='')}", ShownReceiptShape)
        return there, _told(there.receipt)
    found = _kept(frame).find(what)
    if found is None:
        if what.startswith("rc_"):
            raise Refused(
                "unknown_receipt", f"there is no receipt {what!r}; `allswell receipts` lists them", where="ID"
            )
        return None
    from allswell.doors.cli.ending import last_lines

    shape = ReceiptShape.of(found.receipt, found.path, typed_here)
    return ShownReceiptShape(shape), _told(shape, last_lines(found.receipt, _SAID))


def _status(receipt: ReceiptShape) -> str:
    return receipt.status.value.replace("_", " ") + (" (partial)" if receipt.partial else "")


def _told(receipt: ReceiptShape, said: Sequence[str] = ()) -> str:
    from time import time_ns

    from allswell.doors.shapes.moment import millis

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
        parts.append(f"{paint('the end of what it said', 'dim')}\n" + block("\n".join(said), "  "))
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
    from allswell.doors.cli.verifying import told

    lines = came.output.strip().splitlines()
    more = f" (the last {_CHECKED} lines)" if len(lines) > _CHECKED or came.left_out else ""
    printed = f", and printed{more}" if lines else ", and printed nothing"
    head = paint(f"verification: {told(came)}{printed}", "dim")
    return head + ("\n" + block("\n".join(lines[-_CHECKED:]), "  ") if lines else "")


# --- recovering -------------------------------------------------------------------------------------------------------


def recover(
    what: Annotated[
        str, Argument(metavar="TASK", help="The task whose work is wanted, or one of its receipts.", of=("task",))
    ],
    into: Annotated[str | None, Option("--into", metavar="DIR", help="Write it into this folder.")] = None,
    apply: Annotated[bool, Option("--apply", help="Write it back to where it was.")] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Of this attempt. Default: the last.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Give back the work of an attempt that did not end well.

    Nothing that is there is overwritten: a saved file replaces only what nobody has touched since; anything else stays,
    and the saved one is put beside it as NAME.recovered. With neither --into nor --apply, it only says what there is.
    """
    from allswell.domain.snapshot import Snapshot
    from allswell.doors.cli import branches
    from allswell.doors.shapes.snapshot import RecoveryShape, SnapshotShape
    from allswell.doors.shapes.work import RecoverShape

    frame = Frame(store, json=json)
    if into is not None and apply:
        raise Refused("usage", "either --into DIR or --apply, not both", where="--apply")
    snapshot = _snapshot(frame, what, attempt)
    if not isinstance(snapshot, Snapshot):
        if into is None and not apply:
            frame.say(RecoverShape(branches.shape(snapshot), None, None), branches.words(snapshot))
            return
        text = f"nothing was cut off, so nothing is to be recovered: the work of {what!r} is where it was left"
        hint = f"`{shlex.join(['allswell', 'recover', what])}` tells where"
        raise Refused("no_snapshot", text, where="TASK", hint=hint)
    if into is None and not apply:
        frame.say(RecoverShape(None, SnapshotShape.of(snapshot), None), _offered(snapshot, what))
        return
    from allswell.runtime.snapshot import recover as give_back

    if apply:
        _check_place(frame, snapshot)
    done = give_back(snapshot, into=into, apply=apply)
    frame.say(RecoverShape(None, SnapshotShape.of(snapshot), RecoveryShape.of(done)), _given_back(done))


def _check_place(frame: Frame, snapshot: Snapshot) -> None:
    """Receipts lie where agents can write: what is given back goes to the folder one is in, or to one the task had."""
    import os
    from pathlib import Path

    from allswell.domain.snapshot import unspell
    from allswell.runtime.attempt.belief import is_place, known_of
    from allswell.runtime.receipts import Home

    folder = os.fsdecode(unspell(snapshot.folder))
    home, here = Home(frame.home), str(Path.cwd())
    if is_place(folder, snapshot.task, None, home, [here]):
        return
    known = frame.look(lambda views: known_of(views, snapshot.task))
    agents = [spec.cwd for spec in frame.settings.fleet.agents.values()]
    if not is_place(folder, snapshot.task, known, home, agents):
        text = f"its receipt says that the work came from {folder}, and nothing says that this task was worked on there"
        raise Refused("other_folder", f"{text}; go there to apply it, or use --into DIR", where="--apply")


def _snapshot(frame: Frame, what: str, attempt: int | None) -> Snapshot | Receipt:
    """The last snapshot of a task, or that of one of its attempts; its receipt, if that tells of a branch instead."""
    kept = _kept(frame)
    one = kept.find(what) if what.startswith("rc_") or what.endswith(".json") else None
    every = kept.all()
    found = [one] if one is not None else [seen for seen in every if what in (seen.receipt.task, seen.receipt.name)]
    if not found:
        from allswell.engine.finding import did_you_mean

        known = [name for seen in every for name in (seen.receipt.task, seen.receipt.name)]
        hint = did_you_mean(what, known) or "; `allswell receipts` lists what there is"
        raise Refused("no_snapshot", f"no attempt at {what!r} has left a receipt here{hint}", where="TASK")
    tasks = {seen.receipt.task for seen in found}
    if len(tasks) > 1:
        text = f"several tasks are called {what!r}: {', '.join(sorted(tasks))}; name one by its id"
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
