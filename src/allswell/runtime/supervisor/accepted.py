"""Work in a worktree that counts as done by the word of somebody who did not supervise it.

It was verified by hand, accepted by a human, or verified by the supervisor that came after the one that died. It is put
where the work of every task that is done is put: on the task's branch, with a receipt that says so. Until then it lies
in the worktree, which nobody removes.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from allswell.domain.claim import RUN_ROLE
from allswell.domain.receipt import Receipt, Verification, advise, receipt_id
from allswell.domain.task import STATES, State, Task
from allswell.errors import AllswellError
from allswell.runtime.git.own_folder import common_dir_of, git_dir_of
from allswell.runtime.receipts import Home
from allswell.runtime.supervisor.worktree import COMMITTING, message_for
from allswell.runtime.warden import allowed_environment
from allswell.runtime.worktree import Worktree


async def bring_home_accepted(home: Home, task: Task, came: Verification | None = None) -> Receipt | None:
    """Commit what a task's last attempt left in its worktree; the receipt that says where it is.

    None where there is no worktree here, or nothing in it. `came` is what verified it, if that was just now. A command
    under `allswell run` keeps its worktree as it is: whoever ran it goes on there.
    """
    path = home.worktrees.absolute() / task.id
    kept = home.receipts.find(receipt_id(task.id, task.record.token))
    if task.role == RUN_ROLE or STATES[task.state] is not State.DONE or kept is None:
        return None
    if kept.receipt.branch is not None or not await asyncio.to_thread((path / ".git").exists):
        return None  # it was brought home, with what could not be committed left where it is
    tree = Worktree(_top(path), path, f"allswell/{task.id}")
    errands = tree.errands(allowed_environment({}), limit=COMMITTING)
    receipt = kept.receipt
    try:
        left = await tree.commit_rest(errands, message_for(task.id, task.name, receipt.attempt))
    except AllswellError:  # it stays as it is, and is told of as it is
        left = await tree.left(errands)
    stands = await asyncio.to_thread(tree.stands, left)
    if stands is None:
        await asyncio.to_thread(tree.remove, with_branch=True)
        return None
    branch, changed = stands
    told = advise(replace(receipt, branch=branch, verification=came or receipt.verification, changed=tuple(changed)))
    await asyncio.to_thread(home.receipts.write, told)
    if branch.worktree is None:
        await asyncio.to_thread(tree.remove)
    return told


def _top(path: Path) -> Path:
    """The working tree that a worktree was made of; whether they agree is checked before anything is done."""
    shared = os.path.realpath(os.fsdecode(common_dir_of(git_dir_of(os.fsencode(path)))))
    return Path(shared).parent
