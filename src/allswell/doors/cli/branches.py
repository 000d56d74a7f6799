"""Where the work of a task is that had a worktree of its own and has ended well: for `show`, `why` and `recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.frame import Frame
from allswell.doors.cli.render import paint, plain, sentence

if TYPE_CHECKING:
    from allswell.domain.receipt import Receipt
    from allswell.doors.shapes.work import WorkShape

_FILES = 20
_MERGED = {True: "merged", False: "not merged", None: "whether it is merged cannot be told"}


def brought_home(frame: Frame, task: str) -> Receipt | None:
    """The last receipt of a task that tells of a branch."""
    from allswell.runtime.receipts import Receipts

    kept = Receipts(frame.home / "receipts")
    pattern = f"rc_{task.removeprefix('t_')}.*.json"
    ids = sorted((path.stem for path in kept.folder.glob(pattern)), key=lambda id_: int(id_.rpartition(".")[2] or 0))
    found = [one.receipt for id_ in ids if (one := kept.find(id_)) is not None and one.receipt.branch is not None]
    return found[-1] if found else None


def shape(receipt: Receipt | None) -> WorkShape | None:
    """It as data; None if there is nothing to tell."""
    if receipt is None or receipt.branch is None:
        return None
    from allswell.doors.shapes.work import WorkShape

    return WorkShape.of(receipt, receipt.branch, merged=_merged(receipt))


def words(receipt: Receipt) -> str:
    """It for people: where it is, what changed, what to type."""
    from allswell.domain.receipt import where_it_is

    merged = _merged(receipt)
    head = " ".join(where_it_is(receipt))
    if receipt.advice.merge:
        head = f"{head} It is {_MERGED[merged]}." if merged is not None else f"{head} {_MERGED[None].capitalize()}."
    lines = [f"  {one.how} {plain(one.path)}" for one in receipt.changed[:_FILES]]
    more = len(receipt.changed) + receipt.changed_more - _FILES
    lines += [f"  and {more} more"] if more > 0 else []
    typed = [*receipt.advice.look[1:], *(() if merged else receipt.advice.merge)]
    return "\n".join([paint("work", "dim"), sentence(plain(head)), *lines, *(f"  {plain(one)}" for one in typed)])


def _merged(receipt: Receipt) -> bool | None:
    from allswell.runtime.worktree import is_merged

    branch = receipt.branch
    return None if branch is None or branch.commit == branch.base else is_merged(branch)
