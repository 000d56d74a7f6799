"""Discarding what a step left: kept on a recovery ref first, then put back as it is committed (F11).

Only files that the step's receipt names are touched. Without git there is nothing to put them back from.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from allswell.domain.snapshot import Snapshot, unspell
from allswell.errors import Refused
from allswell.flows.run.standing import CutOff
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot import Limits, take

_LIMITS = Limits()


def discard(folder: Path, cut: CutOff) -> Snapshot:
    """Put the files that a step left uncommitted back to what is committed; where they are kept meanwhile."""
    top = find_top(folder)
    if top is None:
        text = f"{folder} is in no git repository, so there is nothing to put its files back from; choose retry_step"
        raise Refused("no_repository", text, where="--choose")
    kept = take(folder, cut.task, cut.attempt, reason="discarded, to be tried again", limits=_LIMITS)
    paths = [unspell(path) for path in cut.context.uncommitted_changes]
    held = {left.path for left in kept.left_out}
    lost = [path for path in cut.context.uncommitted_changes if path in held]
    if lost or kept.kind != "git":
        what = lost[0] if lost else str(folder)
        text = f"{what} could not be kept on the recovery ref, so nothing was discarded; move it away yourself"
        raise Refused("not_kept", text, where="--choose")
    _put_back(top, paths)
    return kept


def _put_back(top: Path, paths: Sequence[bytes]) -> None:
    with scratch_folder() as scratch:
        git = Git(os.fsencode(top), timeout=_LIMITS.git_timeout, scratch=scratch)
        git.run("read-tree", "HEAD")  # into an index of our own: the repository's stays as it is
        known = set(git.run("ls-files", "-z", "--cached").split(b"\0"))
        there = [path for path in paths if path in known]
        if there:
            git.run("checkout-index", "-f", "-z", "--stdin", stdin=b"\0".join(there) + b"\0")
    for path in paths:
        if path not in known:
            with contextlib.suppress(OSError):
                (top / os.fsdecode(path)).unlink()
