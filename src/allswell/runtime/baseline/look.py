"""What stands in a folder beside what HEAD has: in a repository by one call of git, elsewhere by walking it.

Git is called as everywhere (`allswell.runtime.git`), on a copy of the index: no filter or hook runs, and the index of
the repository stays as it is, byte for byte. Repositories inside are named, not entered.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from allswell.domain.snapshot import LeftOut, can_be_kept
from allswell.runtime.git import Git
from allswell.runtime.repository import head_of
from allswell.runtime.snapshot.survey import walk

_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
_FIELDS = {b"1": 8, b"u": 10}
"""How many fields stand before the path, by what a line begins with."""
_GITLINK = b"160000"


@dataclass(slots=True)
class BaselineLook:
    """Paths that are not as HEAD has them, or that git does not track; without git every path."""

    head: str | None = None
    """The commit that the working tree stands on."""
    paths: dict[bytes, os.stat_result | None] = field(default_factory=dict)
    """None: it is not there."""
    inside: list[bytes] = field(default_factory=list)
    """Repositories in it."""
    cut: str = ""
    """Why not everything was looked at."""


def look_by_git(git: Git, top: int, most: int) -> BaselineLook:
    """What git says, of the working tree that is open as `top`; at most so many paths."""
    try:
        shutil.copy2(os.path.join(git.git_dir, b"index"), os.fsencode(git.index))
        git.index.chmod(0o644)  # git may run as the repository's owner
    except FileNotFoundError:
        pass  # nothing was ever added
    found = BaselineLook(head=_head(git))
    for line in git.run(*_STATUS).split(b"\0"):
        how = line[:1]
        if how == b"?":
            path = line[2:]
            if path.endswith(b"/"):
                found.inside.append(path[:-1])
                continue
        elif how in _FIELDS:
            path = line.split(b" ", _FIELDS[how])[-1]
        else:
            continue
        if can_be_kept(path) and not _take(found, top, path, most):
            break
    found.inside += _submodules(git, top)
    return found


def _head(git: Git) -> str | None:
    plain = head_of(Path(os.fsdecode(git.top)))
    return plain or git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", good=(0, 1, 128)).decode().strip() or None


def look_by_walking(top: int, most: int, late: Callable[[], bool]) -> BaselineLook:
    """Every file of a folder without git, open as `top`."""
    found = BaselineLook()
    left_out: list[LeftOut] = []
    for path in walk(top, left_out):
        if late():
            found.cut = "there was no time to look at everything"
            break
        if not _take(found, top, path, most):
            break
    if left_out and not found.cut:
        found.cut = f"{left_out[0].path} could not be looked into"
    return found


def _take(found: BaselineLook, top: int, path: bytes, most: int) -> bool:
    if len(found.paths) >= most:
        found.cut = f"there are more than {most} files to note"
        return False
    found.paths[path] = stat_at(path, top)
    return True


def stat_at(path: bytes, top: int) -> os.stat_result | None:
    """How a file below an open folder stands; None if it is not there."""
    try:
        return os.stat(path, dir_fd=top, follow_symlinks=False)
    except OSError:
        return None


def _submodules(git: Git, top: int) -> list[bytes]:
    """Submodules that are checked out; git would enter them with their own configuration, so they are only named."""
    if stat_at(b".gitmodules", top) is None:
        return []
    lines = git.run("ls-files", "-z", "-s").split(b"\0")
    paths = [line.partition(b"\t")[2] for line in lines if line.startswith(_GITLINK)]
    return [path for path in paths if can_be_kept(path) and stat_at(path + b"/.git", top) is not None]
