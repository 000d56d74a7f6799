"""Discarding what steps left: kept in a snapshot first, then put back as it was when each attempt began (F11).

Only what those attempts changed is touched, and only if it is still as they left it. What another step may have done
too is put back only if that step's work is discarded as well; the outputs of finished steps, and whatever was there
before the attempt began, stay as they are. Where it is not certain how things were, nothing is discarded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allswell.domain.snapshot import Limits, Snapshot, spell, unspell
from allswell.domain.step_changes import StepChanges
from allswell.errors import AllswellError, Refused
from allswell.flows.run.standing import CutOff
from allswell.runtime.baseline import Baseline, Before, before, read_baseline
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.receipts import Home
from allswell.runtime.snapshot import take
from allswell.runtime.snapshot.reading import LINK

_LIMITS = Limits()


class Discarded(msgspec.Struct, frozen=True):
    """What was done."""

    kept: Snapshot
    """What holds all that was there before anything was put back."""
    left: tuple[str, ...] = ()
    """Paths that stay as they are, because another step may have made them, or nobody knows how they were."""


def discard(home: Path, folder: Path, cuts: Sequence[CutOff]) -> list[Discarded]:
    """Put back what these steps changed; where it is kept, and what was left alone. It blocks."""
    known = [(cut, *_begun(home, cut)) for cut in cuts]
    discarded = {cut.step for cut in cuts}
    found = []
    for cut, changes, then in known:
        why = "discarded, to be tried again"
        kept = take(folder, cut.task, cut.attempt, reason=why, limits=_LIMITS, home=home)
        missing = {left.path for left in kept.left_out}
        lost = [left.path for left, _ in cut.own if left.path in missing and left.how != "D"]
        if lost:
            text = f"{lost[0]} could not be kept in a snapshot, so nothing was discarded; move it away yourself"
            raise Refused("not_kept", text, where="--choose")
        mine = [left.path for left, also in cut.own if set(also) <= discarded]
        others = [left.path for left, also in cut.own if not set(also) <= discarded]
        unknown = _put_back(Home(home).baselines, then, changes, mine)
        found.append(Discarded(kept, tuple(sorted([*others, *unknown]))))
    return found


def _begun(home: Path, cut: CutOff) -> tuple[StepChanges, Baseline]:
    """What it changed and how things were when it began; `Refused` where that is not certain."""
    changes = cut.changes
    then = None if changes is None else read_baseline(Home(home).baselines, changes.task, changes.attempt)
    if changes is None or then is None:
        why = "nobody has noted how things were when it began"
    elif changes.gap:
        why = changes.gap
    elif changes.more:
        why = f"it changed {len(changes.files) + changes.more:,} files, which is more than is kept track of"
    else:
        return changes, then
    text = (
        f"what {cut.step} changed is not certain ({why}), so nothing was discarded; put its files back, or retry_step"
    )
    raise Refused("not_certain", text, where="--choose")


def _put_back(place: Path, then: Baseline, changes: StepChanges, paths: Sequence[str]) -> list[str]:
    """Make paths what they were; those that stay as they are, because nobody knows."""
    top = Path(os.fsdecode(unspell(changes.top)))
    safe = [path for path in paths if _is_inside(top, path)]
    noted = {one.path for one in then.noted}
    head = then.head
    committed: set[str] = set()
    if head is not None:
        committed = _check_out(top, head, [path for path in safe if path not in noted])
    made = [path for path in safe if path not in committed and _made(top, path, before(place, then, path))]
    return [path for path in paths if path not in committed and path not in made]


def _is_inside(top: Path, path: str) -> bool:
    """Whether a path's folder is where it seems to be: an attempt may have put a link in its place."""
    folder = (top / os.fsdecode(unspell(path))).parent
    return folder.resolve() == folder


def _made(top: Path, path: str, was: Before) -> bool:
    """Make one path what it was, wholly or not at all; whether that went well."""
    target = top / os.fsdecode(unspell(path))
    if was.where not in ("absent", "kept"):
        return False
    try:
        if was.where == "absent":
            target.unlink(missing_ok=True)
            return True
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{os.urandom(6).hex()}.allswell")
        content = was.content or b""
        try:
            if was.kind == LINK:
                draft.symlink_to(os.fsdecode(content))
            else:
                draft.write_bytes(content)
                draft.chmod(was.mode or 0o644)
            draft.replace(target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    except OSError:
        return False
    return True


def _check_out(top: Path, head: str, paths: Sequence[str]) -> set[str]:
    """Give files what a commit has of them, by an index of our own: the repository's stays as it is. Which it has."""
    wanted = {unspell(path) for path in paths}
    try:
        with scratch_folder() as scratch:
            git = Git(os.fsencode(top), timeout=_LIMITS.git_timeout, scratch=scratch)
            git.run("read-tree", head)
            there = wanted & set(git.run("ls-files", "-z", "--cached").split(b"\0"))
            if there:
                git.run("checkout-index", "-f", "-z", "--stdin", stdin=b"\0".join(sorted(there)) + b"\0")
    except AllswellError as error:
        text = f"git could not put the files back ({error}); all of them are kept: `allswell recover`"
        raise Refused("not_put_back", text, where="--choose") from error
    return {spell(path) for path in there}
