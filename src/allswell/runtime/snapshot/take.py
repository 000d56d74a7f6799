"""Taking a snapshot: of a repository into its own objects, of any other folder into a folder of ours.

When git cannot do it at all (it hangs, its folder cannot be written, the repository is broken), the work is copied as a
folder would be: what the survey found if there was one, everything otherwise, whether or not the attempt has touched
it: what nobody had committed may be nowhere else. `notes` says so. Losing it is the only thing not done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from allswell.domain.snapshot import Limits, Snapshot, ref_name, spell
from allswell.errors import Refused
from allswell.runtime.git import Git, GitFailed, scratch_folder
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot import folder as folders
from allswell.runtime.snapshot.manifest import home_of
from allswell.runtime.snapshot.progress import Progress
from allswell.runtime.snapshot.record import Header
from allswell.runtime.snapshot.storing import particulars, store_files, write_commit, write_staged, write_tree
from allswell.runtime.snapshot.survey import Survey, survey
from allswell.timing.clock import Clock, SystemClock

LIMITS = Limits()


def take(  # noqa: PLR0913 - all but three are keywords, for callers with wishes
    folder: str | os.PathLike[str],
    task: str,
    attempt: int,
    *,
    reason: str,
    limits: Limits = LIMITS,
    clock: Clock | None = None,
    since: int | None = None,
    home: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Snapshot:
    """Keep everything in `folder` that git does not ignore, untracked files too, without changing anything there.

    In a repository the whole working tree is taken, wherever in it `folder` is. Elsewhere, where no baseline was kept,
    only what has changed after the moment `since` (wall clock, ms) is copied, into the folder of ours `home`, by
    default the nearest `.allswell` upward. If nothing has changed since the last snapshot of this attempt, that one is
    returned. It blocks, at most for `limits.timeout` and a few calls of git.
    """
    clock = clock or SystemClock()
    limits.validated()
    ref_name(task, attempt)
    place = _folder(folder)
    reason = reason.encode("utf-8", "backslashreplace").decode()
    late = _deadline(clock, limits.timeout)
    order = folders.SnapshotOrder(task, attempt, reason, clock.wall(), limits, late, _home(place, home), since)
    order = msgspec.structs.replace(order, progress=progress or Progress())
    top = find_top(place)
    if top is None:
        return folders.take_folder(place, order)
    found = Survey()
    try:
        return _into_git(top, order, found)
    except (GitFailed, OSError) as failed:
        order = msgspec.structs.replace(order, late=_deadline(clock, limits.timeout), everything=True)
        only = [*found.to_read, *found.clean] if found.looked else None
        said = failed.message if isinstance(failed, GitFailed) else str(failed)
        order.progress.failed = said if found.looked else ""
        notes = [f"copied without git: {said}", *found.notes]
        if found.looked:
            notes.append("what git has unchanged was not copied")
        return folders.take_folder(top, order, only=only, left_out=found.left_out, notes=tuple(notes))


def keep_baseline(
    folder: str | os.PathLike[str],
    task: str,
    attempt: int,
    *,
    limits: Limits = LIMITS,
    clock: Clock | None = None,
    home: str | os.PathLike[str] | None = None,
) -> None:
    """Note how a folder without git looks before an attempt; in a repository HEAD says that, and nothing is done."""
    clock = clock or SystemClock()
    place = _folder(folder)
    if find_top(place) is None:
        late = _deadline(clock, limits.validated().timeout)
        order = folders.SnapshotOrder(task, attempt, "baseline", clock.wall(), limits, late, _home(place, home))
        folders.keep_baseline(place, order)


def _into_git(top: Path, order: folders.SnapshotOrder, found: Survey) -> Snapshot:
    header = Header(order.task, order.attempt, order.reason, order.now, spell(os.fsencode(top)), "")
    limits, late = order.limits, order.late
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with scratch_folder() as scratch:
            git = Git(os.fsencode(top), timeout=limits.git_timeout, scratch=scratch)
            survey(git, opened, found, late)
            if order.progress.failed:
                raise GitFailed(order.progress.failed)
            staged = write_staged(git, found)
            stored = store_files(git, opened, found, limits, late, order.progress)
            tree = write_tree(git, found, stored)
            return write_commit(git, tree, particulars(found, stored), staged, found, header)
    finally:
        os.close(opened)


def _folder(folder: str | os.PathLike[str]) -> Path:
    place = Path(folder)
    if not place.is_dir():
        raise Refused("no_folder", f"{folder} is not a folder, so there is nothing to keep", where="folder")
    return place.resolve()


def _home(folder: Path, home: str | os.PathLike[str] | None) -> Path:
    return home_of(folder) if home is None else Path(home).absolute()


def _deadline(clock: Clock, timeout: int) -> Callable[[], bool]:
    end = clock.monotonic() + timeout
    return lambda: clock.monotonic() >= end
