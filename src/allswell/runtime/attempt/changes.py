"""What an attempt has changed since it began: from what was noted then, and where its work is now.

The other side is what was noted at its end; where that is missing, the branch or the snapshot that its receipt names;
and as long as it runs, what is in its folder at this moment.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from allswell.domain.names import TaskId
from allswell.domain.receipt import Receipt
from allswell.domain.snapshot import Limits, spell, unspell
from allswell.errors import Refused
from allswell.runtime.baseline import Baseline, Difference, attempts_noted, difference, read_baseline, take_baseline
from allswell.runtime.git.own_folder import common_dir_of, git_dir_of
from allswell.runtime.receipts import Home
from allswell.runtime.repository import find_top

_NOW = Limits(max_file=4 << 20, max_bytes=512 << 20, max_files=100_000, timeout=30_000, git_timeout=30_000)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt has changed, from its beginning to its end or to this moment."""

    attempt: int
    until: str
    """Its end, or now."""
    gap: str = ""
    """Why not all is known of its beginning: then it is compared with HEAD."""
    difference: Difference


def changes_of(home: Home, task: TaskId, attempt: int | None = None, *, stat: bool = False) -> Changes:
    """What an attempt at a task has changed, the last one if none is named; `Refused` if nothing is known of it."""
    known = attempts_noted(home.baselines, task)
    found = {one.receipt.attempt: one.receipt for one in home.receipts.of_task(task)}
    known = sorted({*known, *(number for number, one in found.items() if one.branch is not None)})
    number = attempt if attempt is not None else known[-1] if known else 0
    if number not in known:
        which = "no attempt at" if attempt is None else f"attempt {attempt} at"
        text = f"{which} {task} has begun in a folder here, so nothing is known of what it changed"
        raise Refused("no_baseline", text, where="TASK")
    receipt = found.get(number)
    then = read_baseline(home.baselines, task, number) or _base(receipt)
    if then is None:
        raise Refused("no_baseline", f"what was noted of attempt {number} at {task} cannot be read", where="TASK")
    now = read_baseline(home.baselines, task, number, end=True) or _kept(receipt, then)
    if now is not None:
        shown = difference((home.baselines, then), (home.baselines, now), stat=stat)
        return Changes(attempt=number, until="its end", gap=then.cut or now.cut, difference=shown)
    with tempfile.TemporaryDirectory(prefix="allswell-diff-") as scratch:
        place = Path(scratch)
        now = take_baseline(place, Path(_folder(then)), task, number, bounds=_NOW)
        shown = difference((home.baselines, then), (place, now), stat=stat)
    return Changes(attempt=number, until="now", gap=then.cut or now.cut, difference=shown)


def _folder(then: Baseline) -> str:
    folder = os.fsdecode(unspell(then.folder))
    if not Path(folder).is_dir():
        raise Refused("no_folder", f"{folder} is gone, and nothing was noted of the end of this attempt", where="TASK")
    return folder


def _base(receipt: Receipt | None) -> Baseline | None:
    """The beginning of a branch, for an agent that is a function: nothing was noted of its folder."""
    branch = None if receipt is None else receipt.branch
    return None if receipt is None or branch is None else _at(receipt, branch.repository, branch.base)


def _kept(receipt: Receipt | None, then: Baseline) -> Baseline | None:
    if receipt is not None and receipt.branch is not None:
        return _at(receipt, receipt.branch.repository, receipt.branch.commit)
    kept = None if receipt is None else receipt.snapshot
    if receipt is None or kept is None or kept.kind != "git" or then.kind != "git":
        return None
    return msgspec.structs.replace(then, head=kept.id, noted=(), inside=(), cut="", repository=kept.repository)


def _at(receipt: Receipt, folder: str, commit: str) -> Baseline | None:
    """A commit, as if it had been noted."""
    top = find_top(Path(folder))
    if top is None:
        return None
    return Baseline(
        task=receipt.task,
        attempt=receipt.attempt,
        folder=folder,
        kind="git",
        taken_at=receipt.began_at,
        head=commit,
        repository=spell(common_dir_of(git_dir_of(os.fsencode(top)))),
    )
