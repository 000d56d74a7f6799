"""A working tree for each task that wants one, on a branch of its own: `.allswell/worktrees/TASK`, `allswell/TASK`.

It is made for the first attempt and found again by the next, also by another supervisor of the same home. It is removed
when its task is done, after whatever was not committed has been kept in a snapshot; the branch stays. At any other end
it stays too: somebody may want to look.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from allswell.errors import Refused
from allswell.runtime.receipts import Home
from allswell.runtime.snapshot import find_top, take

_PATIENCE = 60.0


def worktree_for(task: str, cwd: str, home: Home) -> str:
    """The folder in which a task is worked on, made if need be; it blocks."""
    top = find_top(Path(cwd))
    if top is None:
        raise Refused(
            "no_repository", f"worktree = true needs a git repository, and {cwd} is in none", where="worktree"
        )
    folder = home.worktrees.absolute() / task
    if not (folder / ".git").exists():
        home.worktrees.mkdir(parents=True, exist_ok=True)
        branch = f"allswell/{task}"
        known = _git(top, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}").returncode == 0
        made = _git(
            top, "worktree", "add", *(() if known else ("-b", branch)), str(folder), *((branch,) if known else ())
        )
        if made.returncode:
            text = f"no worktree could be made for {task}: {made.stderr.strip()[-500:]}"
            raise Refused("no_worktree", text, where="worktree")
    inside = Path(cwd).resolve().relative_to(top.resolve())
    return str(folder / inside)


def put_away(task: str, attempt: int, home: Home) -> None:
    """Remove the working tree of a task that is done; what was not committed is kept first. It blocks."""
    folder = home.worktrees / task
    if not (folder / ".git").exists():
        return
    if _git(folder, "status", "--porcelain").stdout.strip():
        take(folder, task, attempt, reason="its task is done, and its worktree is put away")
    _git(folder, "worktree", "remove", "--force", str(folder.absolute()))


def _git(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(where), *words], capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
