"""The working tree of each task that wants one: made for its first attempt, found again by the next.

It is removed when its task is done, after whatever was not committed has been kept in a snapshot, whole; the branch
stays. At any other end it stays too: the next attempt goes on there, or somebody wants to look.
"""

from __future__ import annotations

from pathlib import Path

from allswell.runtime.receipts import Home
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot import take
from allswell.runtime.worktree import make_worktree, remove_worktree


def worktree_for(task: str, cwd: str, home: Home) -> str:
    """The folder in which a task is worked on, made if need be; it blocks."""
    place = home.worktrees.absolute()
    if not (place / task / ".git").exists():
        make_worktree(Path(cwd), place, task)
    top = find_top(Path(cwd).resolve())
    inside = Path() if top is None else Path(cwd).resolve().relative_to(top.resolve())
    return str(place / task / inside)


def put_away(task: str, attempt: int, home: Home) -> None:
    """Remove the working tree of a task that is done; what was not committed is kept first. It blocks."""
    folder = home.worktrees.absolute() / task
    if not (folder / ".git").exists():
        return
    reason = "its task is done, and its worktree is put away"
    kept = take(folder, task, attempt, reason=reason, home=home.folder)
    if kept.whole:  # else something in it is nowhere else: it stays
        remove_worktree(folder)
