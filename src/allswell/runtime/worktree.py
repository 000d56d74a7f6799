"""A worktree for one task: a checkout of its own, on a branch of its own, beside the store.

It is made before the command and removed after it only if nothing in it is worth keeping: no change, no commit. No hook
of the repository's runs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from allswell.errors import Refused, Unavailable
from allswell.runtime.repository import find_top

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
_PATIENCE = 300.0
"""Seconds that a checkout may take."""


class Worktree:
    """A worktree that was made for a task."""

    def __init__(self, top: Path, path: Path, branch: str) -> None:
        self.path = path
        self.branch = branch
        self._top = top
        self._base = _git(path, "rev-parse", "HEAD")

    def inside(self, folder: Path) -> Path:
        """Where a folder of the repository is in the worktree; its top, if the folder is not there."""
        place = self.path / folder.resolve().relative_to(self._top)
        return place if place.is_dir() else self.path

    def remove_if_unused(self) -> bool:
        """Remove it with its branch if nothing was changed or committed; whether it was."""
        try:
            changed = _git(self.path, "status", "--porcelain", "--untracked-files=all", "--ignored")
            if changed or _git(self.path, "rev-parse", "HEAD") != self._base:
                return False
            _git(self._top, "worktree", "remove", str(self.path))
            _git(self._top, "branch", "-D", self.branch)
        except Unavailable:
            return False
        return True


def remove_worktree(path: Path) -> None:
    """Remove a worktree whatever is in it; whoever calls this has kept what is worth keeping. Its branch stays."""
    _git(path, "worktree", "remove", "--force", str(path))


def make_worktree(folder: Path, place: Path, name: str) -> Worktree:
    """A new worktree of the repository around a folder, at its HEAD, below `place`."""
    top = find_top(folder.resolve())
    if top is None:
        raise Refused("no_repository", f"{folder} is in no git repository, so it has no worktrees", where="worktree")
    path, branch = place / name, f"allswell/{name}"
    if path.is_dir():
        return Worktree(top, path, branch)  # of an earlier attempt: what it left there is worth having
    place.mkdir(parents=True, exist_ok=True)
    try:
        _git(top, "worktree", "add", "-b", branch, str(path), "HEAD")
    except Unavailable as error:
        raise Refused(
            "no_worktree", f"no worktree could be made of {top}: {error.message}", where="worktree"
        ) from error
    return Worktree(top, path, branch)


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *_QUIET, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git could not be run: {error}") from error
    if done.returncode != 0:
        raise Unavailable("; ".join(done.stderr.strip().splitlines()[-2:]) or f"git ended with {done.returncode}")
    return done.stdout.strip()
