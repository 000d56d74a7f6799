"""Telling what has changed in a folder since a baseline was taken there.

A path was, when the attempt began, what its note says; a path without a note was as HEAD had it then, and where HEAD
had nothing it was not there. Looked at are all paths that could differ from that: those that differ from HEAD now or
are not tracked, those that were noted, and those that differ between HEAD then and HEAD now. What stands there now is
read from the disk, so it does not matter whether the attempt has committed, staged or ignored it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from allswell.domain.receipt import Change
from allswell.domain.snapshot import LeftOut, Limits, can_be_kept, spell, unspell
from allswell.errors import Unavailable
from allswell.runtime.baseline.look import BaselineLook, look_by_git, look_by_walking, stat_at
from allswell.runtime.baseline.record import Baseline, Noted, content
from allswell.runtime.baseline.take import noted_as
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.snapshot.reading import kind, open_file, open_here
from allswell.timing.clock import Clock, SystemClock

_LOOK = Limits(max_files=200_000, timeout=30_000, git_timeout=30_000)
_RACY = 50
"""Milliseconds by which the kernel's time of a change may lie before ours."""
_NS_PER_MS = 1_000_000
_NAMED = 200
_SHA1 = 40
"""Digits of an object's name in a repository of the older format."""


class Digest(Protocol):
    """Of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """What they come to."""
        ...


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as it was when an attempt began: A added, M changed, D deleted; by path."""

    changed: tuple[Change, ...] = ()
    """Paths are relative to the baseline's folder, those of repositories inside too."""
    since: Literal["began", "head", "time"] = "began"
    """What it was compared with: what was noted; HEAD, or the kernel's times, where the notes have gaps."""
    gap: str = ""
    """Why the notes have gaps."""


@dataclass(frozen=True, slots=True)
class Before:
    """How one path was when the attempt began."""

    where: Literal["absent", "kept", "head", "unknown"]
    """It was not there; its bytes are `content`; `head` has it; or nobody knows its bytes any more."""
    content: bytes | None = None
    kind: str = ""
    """As git says it: 100644, 100755, or 120000 for a link, whose target is `content`."""
    mode: int = 0
    head: str | None = None
    """The commit that has it, for `head`."""


def changes_since(then: Baseline, *, limits: Limits = _LOOK, clock: Clock | None = None) -> Comparison:
    """What has been added, changed and deleted since; `Unavailable` if the folder cannot be looked at. It blocks."""
    clock = clock or SystemClock()
    top = unspell(then.folder)
    try:
        opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{then.folder} cannot be looked at: {error.strerror}") from error
    try:
        if then.kind == "git":
            changed = _by_git(then, opened, limits)
        else:
            end = clock.monotonic() + limits.timeout
            now = look_by_walking(opened, limits.max_files, lambda: clock.monotonic() >= end)
            changed = _by_times(then, opened, now)
    finally:
        os.close(opened)
    gap = then.cut
    for one in then.inside:
        under = one.folder[len(then.folder.rstrip("/")) + 1 :]
        try:
            inner = changes_since(one, limits=limits, clock=clock)
        except Unavailable as error:
            gap = gap or error.message
            continue
        changed += [Change(change.how, f"{under}/{change.path}") for change in inner.changed]
        gap = gap or inner.gap
    since: Literal["began", "head", "time"] = "began" if not gap else "head" if then.kind == "git" else "time"
    return Comparison(changed=tuple(sorted(changed, key=lambda one: one.path)), since=since, gap=gap)


def before(place: Path, then: Baseline, path: str) -> Before:
    """How a path, spelled, was when the attempt began, and its bytes if they were kept."""
    for one in then.inside:
        under = one.folder[len(then.folder.rstrip("/")) + 1 :] + "/"
        if path.startswith(under):
            return before(place, one, path[len(under) :])
    note = next((one for one in then.noted if one.path == path), None)
    if note is None:
        if then.kind == "git" and then.head is not None:
            entry = _entries(then, [unspell(path)]).get(unspell(path))
            if entry is not None:
                return Before("head", kind=entry[0], head=then.head)
        return Before("unknown" if then.cut else "absent")
    if not note.kind:
        return Before("absent")
    data = content(place, note.sha256) if note.kept else None
    return Before("unknown" if data is None else "kept", data, note.kind, note.mode)


def _by_git(then: Baseline, top: int, limits: Limits) -> list[Change]:
    folder = unspell(then.folder)
    with scratch_folder() as scratch:
        git = Git(folder, timeout=limits.git_timeout, scratch=scratch)
        now = look_by_git(git, top, limits.max_files)
        paths = {*now.paths, *(unspell(note.path) for note in then.noted)}
        if now.head is not None and then.head is not None and now.head != then.head:
            moved = git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", then.head, now.head).split(b"\0")
            paths |= {path for path in moved if can_be_kept(path)}
    return _told(then, top, paths, _entries(then, paths))


def _entries(then: Baseline, paths: Collection[bytes]) -> dict[bytes, tuple[str, str]]:
    """Git's mode and object of those paths that HEAD had when the attempt began."""
    if then.head is None or not paths:
        return {}
    with scratch_folder() as scratch:
        git = Git(unspell(then.folder), timeout=_LOOK.git_timeout, scratch=scratch)
        named = sorted(paths) if len(paths) <= _NAMED else []  # else all of them: a command line has its limits
        lines = git.run("ls-tree", "-r", "-z", "--full-tree", then.head, "--", *named).split(b"\0")
    found = {}
    for line in lines:
        about, _, path = line.partition(b"\t")
        if path in paths:
            mode, _, oid = about.decode().split(" ")
            found[path] = (mode, oid)
    return found


def _told(then: Baseline, top: int, paths: set[bytes], had: dict[bytes, tuple[str, str]]) -> list[Change]:
    notes = {unspell(note.path): note for note in then.noted}
    changed = []
    ours = open_here()
    for path in paths:
        status = stat_at(path, top)
        there = status is not None and not stat.S_ISDIR(status.st_mode)
        note, entry = notes.get(path), had.get(path)
        was = bool(note.kind) if note is not None else entry is not None
        how = ""
        if status is None or not there:
            how = "D" if was else ""
        elif not was:
            how = "A"
        elif (status.st_dev, status.st_ino) in ours:
            how = ""  # a store of ours: to open it would drop its locks
        elif note is not None:
            how = "" if _is_as_noted(note, path, status, top) else "M"
        elif entry is not None:
            how = "" if _is_blob(entry, path, status, top) else "M"
        if how:
            changed.append(Change(how, spell(path)))
    return changed


def _by_times(then: Baseline, top: int, now: BaselineLook) -> list[Change]:
    """Without git: by the notes; where these have gaps, by the kernel's own time of a file's last change."""
    paths = {*now.paths, *(unspell(note.path) for note in then.noted)}
    told = _told(then, top, paths, {})
    if not then.cut:
        return told
    since = (then.taken_at - _RACY) * _NS_PER_MS
    new = {change.path for change in told if change.how == "A"}
    late = {spell(path) for path, one in now.paths.items() if one is not None and one.st_ctime_ns >= since}
    kept = [change for change in told if change.path not in new]
    return kept + [Change("M", path) for path in sorted(new & late)]


def _is_as_noted(note: Noted, path: bytes, status: os.stat_result, top: int) -> bool:
    if (now := noted_as(path, status, note.sha256)) == note:
        return True
    if not note.sha256 or (now.kind, now.size) != (note.kind, note.size):
        return False
    return _hash(hashlib.sha256(), path, top, header=False) == note.sha256


def _is_blob(entry: tuple[str, str], path: bytes, status: os.stat_result, top: int) -> bool:
    mode, oid = entry
    if mode != kind(status.st_mode):
        return False
    name = "sha1" if len(oid) == _SHA1 else "sha256"
    return _hash(hashlib.new(name, usedforsecurity=False), path, top, header=True) == oid


def _hash(digest: Digest, path: bytes, top: int, *, header: bool) -> str | None:
    """The digest of a file's bytes, behind git's header or alone; None if it cannot be read."""
    read = open_file(path, top)
    if isinstance(read, LeftOut):
        return None
    if header:
        digest.update(b"blob %d\0" % read.size)
    for chunk in read.chunks:
        digest.update(chunk)
    return digest.hexdigest() if read.outcome() == "same" else None
