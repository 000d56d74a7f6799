"""Noting what is in a folder when an attempt begins: quickly, within bounds, and changing nothing there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from allswell.domain.snapshot import LeftOut, Limits, can_be_kept, spell, unspell
from allswell.runtime.baseline.look import BaselineLook, look_by_git, look_by_walking
from allswell.runtime.baseline.record import Baseline, Noted, keep_content, read_baseline, write_baseline
from allswell.runtime.git import Git, GitFailed, scratch_folder
from allswell.runtime.git.own_folder import common_dir_of, git_dir_of
from allswell.runtime.repository import find_top, head_of
from allswell.runtime.snapshot.reading import WHOLE, kind, open_file, open_here
from allswell.timing.clock import Clock, SystemClock

BOUNDS = Limits(max_file=WHOLE, max_bytes=32 << 20, max_files=5_000, timeout=500, git_timeout=3_000)
"""Bytes are kept of files up to `max_file`, small ones first, until `max_bytes` or the time is reached; the others are
told by size and times. `max_files` bounds how many are noted at all."""
_REPOSITORIES = 20
"""Repositories inside that are looked into, at any depth."""


def take_baseline(
    place: Path,
    folder: str | os.PathLike[str],
    task: str,
    attempt: int,
    *,
    bounds: Limits = BOUNDS,
    clock: Clock | None = None,
    end: bool = False,
) -> Baseline:
    """Note what is in a folder, in a repository in its whole working tree, and write that down below `place`.

    With `end` it is noted as the end of the attempt, beside its beginning, and of the very folder that was noted then:
    an agent may have removed its `.git`, and what lies around it is not its work.

    It blocks, for a call of git or a walk and the reading of what is not committed, all of it bounded. What could not
    be looked at is said in `cut`; `OSError` means that nothing could be written down.
    """
    clock = clock or SystemClock()
    began = clock.wall()
    deadline = clock.monotonic() + bounds.validated().timeout
    work = Path(folder).resolve()
    taking = _Taking(place, task, attempt, began, bounds, lambda: clock.monotonic() >= deadline)
    then = read_baseline(place, task, attempt) if end else None
    made = taking.note(Path(os.fsdecode(unspell(then.folder))) if then is not None else find_top(work) or work)
    write_baseline(place, made, end=end)
    return made


class _Taking:
    """One baseline being taken: what is left of its bounds."""

    def __init__(
        self, place: Path, task: str, attempt: int, began: int, bounds: Limits, late: Callable[[], bool]
    ) -> None:
        self._place = place
        self._of = (task, attempt)
        self._began = began
        self._bounds = bounds
        self._late = late
        self._ours = open_here()
        self._bytes = bounds.max_bytes
        self._files = bounds.max_files
        self._repositories = _REPOSITORIES

    def note(self, top: Path) -> Baseline:
        """One working tree or folder, and the repositories inside."""
        task, attempt = self._of
        by_git = os.path.lexists(top / ".git")
        head: str | None = None
        noted: tuple[Noted, ...] = ()
        try:
            opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            found = BaselineLook(cut=f"{top} cannot be opened: {error.strerror}")
        else:
            try:
                found = self._look(top, opened) if by_git else look_by_walking(opened, self._files, self._late)
                head = found.head
                noted = self._note_all(found, opened)
            finally:
                os.close(opened)
        inside = []
        for path in found.inside:
            self._repositories -= 1
            if self._repositories < 0 or self._late() or not can_be_kept(path):
                found.cut = found.cut or f"there was no time to look into {spell(path)}"
                break
            inside.append(self.note(Path(os.fsdecode(os.path.join(os.fsencode(top), path)))))
        return Baseline(
            task=task,
            attempt=attempt,
            folder=spell(os.fsencode(top)),
            kind="git" if by_git else "folder",
            taken_at=self._began,
            repository=spell(common_dir_of(git_dir_of(os.fsencode(top)))) if by_git else None,
            head=head,
            noted=noted,
            cut=found.cut,
            inside=tuple(inside),
        )

    def _look(self, top: Path, opened: int) -> BaselineLook:
        try:
            with scratch_folder() as scratch:
                git = Git(os.fsencode(top), timeout=self._bounds.git_timeout, scratch=scratch)
                return look_by_git(git, opened, self._files)
        except (GitFailed, OSError) as error:
            return BaselineLook(head=head_of(top), cut=error.message if isinstance(error, GitFailed) else str(error))

    def _note_all(self, found: BaselineLook, top: int) -> tuple[Noted, ...]:
        self._files -= len(found.paths)
        noted = []
        for path, status in sorted(found.paths.items(), key=lambda one: 0 if one[1] is None else one[1].st_size):
            if status is None:
                noted.append(Noted(spell(path)))
            elif not stat.S_ISDIR(status.st_mode):
                noted.append(self._note(path, status, top))
        return tuple(sorted(noted, key=lambda one: one.path))

    def _note(self, path: bytes, status: os.stat_result, top: int) -> Noted:
        known = noted_as(path, status)
        plain = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        bounds = self._bounds
        if (
            not plain
            or status.st_size > min(bounds.max_file, self._bytes)
            or self._late()
            or (status.st_dev, status.st_ino) in self._ours
        ):
            return known
        read = open_file(path, top)
        if isinstance(read, LeftOut):
            return known
        data = b"".join(read.chunks)
        if read.outcome() != "same":
            return known
        self._bytes -= len(data)
        digest = keep_content(self._place, data)
        return noted_as(path, status, digest)


def noted_as(path: bytes, status: os.stat_result, digest: str = "") -> Noted:
    """What is noted of a file, with the digest of its bytes if they were kept."""
    return Noted(
        spell(path),
        kind(status.st_mode),
        status.st_size,
        stat.S_IMODE(status.st_mode),
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        digest,
        bool(digest),
    )
