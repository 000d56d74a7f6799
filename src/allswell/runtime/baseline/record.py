"""A baseline as it is written down, beside the store: one small file for each attempt, and the bytes apart.

    baselines/<task>.<attempt>.json       what was noted when it began
    baselines/<task>.<attempt>.end.json   the same of its end, to tell the two apart
    baselines/contents/<sha256>           the bytes of what was noted; the same bytes once, for however many attempts

Nothing is flushed to the disk: a baseline must outlive a killed supervisor, not a power cut, and is asked for at the
beginning of every attempt. What is torn is as good as missing: a record is read whole or not at all, and bytes that are
not what their name says are not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.snapshot import ref_name
from allswell.runtime.own_files import create, own_folder, read_file, write_all

_BIGGEST = 64 << 20
_ROOM, _FILES = 1 << 30, 100_000
"""How much room all contents may take, in bytes and files. What is let go of is told as not kept."""
_LOOKED_AFTER = "00"
"""With what the digest of new content begins when all of them are looked after: of one in 256."""


class Noted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One path as it was when the attempt began."""

    path: str
    """Spelled, relative to the baseline's folder."""
    kind: str = ""
    """As git says it: 100644, 100755, or 120000 for a link; empty: HEAD has it, and it was not there."""
    size: int = 0
    mode: int = 0
    mtime: int = 0
    """Nanoseconds, as `ctime`: a file of the same size, times and inode is the same file."""
    ctime: int = 0
    inode: int = 0
    sha256: str = ""
    """Of its bytes, or of a link's target; empty if it was not read."""
    kept: bool = False
    """Whether its bytes are among the contents."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stood in a folder when an attempt began, as far as HEAD does not say it."""

    task: str
    attempt: int
    folder: str
    """The top of the working tree, or the folder itself without git; spelled."""
    kind: Literal["git", "folder"]
    taken_at: int
    repository: str | None = None
    """The git folder that holds its objects, spelled; it outlives a worktree that is removed."""
    head: str | None = None
    """The commit that it stood on; None: there was none."""
    noted: tuple[Noted, ...] = ()
    cut: str = ""
    """Why not everything was looked at; empty: all of it was."""
    inside: tuple[Baseline, ...] = ()
    """Repositories in it, each with its own HEAD."""

    @property
    def whole(self) -> bool:
        """Whether every path that is not noted was as HEAD has it, or without git was not there."""
        return not self.cut and all(one.whole for one in self.inside)


def _name(task: str, attempt: int, *, end: bool) -> str:
    ref_name(task, attempt)  # what cannot be a ref is no good as a file either
    return f"{task}.{attempt}{'.end' if end else ''}.json"


def attempts_noted(place: Path, task: str) -> list[int]:
    """The attempts at a task of which something was noted when they began."""
    names = (path.name.removeprefix(f"{task}.").removesuffix(".json") for path in place.glob(f"{task}.*.json"))
    return sorted(int(name) for name in names if name.isdecimal())


def read_baseline(place: Path, task: str, attempt: int, *, end: bool = False) -> Baseline | None:
    """What was noted when an attempt began, or at its end; None if nothing that can be read was."""
    try:
        return msgspec.json.decode(read_file(place / _name(task, attempt, end=end), _BIGGEST), type=Baseline)
    except (OSError, msgspec.DecodeError):
        return None


def write_baseline(place: Path, made: Baseline, *, end: bool) -> None:
    """Write a baseline down, in the place of an earlier one of the same attempt; `OSError` if that cannot be."""
    _put(place / _name(made.task, made.attempt, end=end), msgspec.json.encode(made))


def forget_baseline(place: Path, task: str, attempt: int) -> None:
    """Let go of what was noted for an attempt that nobody will ask about; its bytes may be others' too, and stay."""
    with contextlib.suppress(OSError), own_folder(place) as inside:
        os.unlink(_name(task, attempt, end=False), dir_fd=inside)


def keep_content(place: Path, data: bytes) -> str:
    """Keep bytes under their digest, which is returned; `OSError` if that cannot be."""
    digest = hashlib.sha256(data).hexdigest()
    path = place / "contents" / digest
    try:
        known = path.lstat()
    except OSError:
        known = None
    if known is not None and stat.S_ISREG(known.st_mode) and known.st_size == len(data):
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)  # it is still asked for
        return digest
    _put(path, data)
    if digest.startswith(_LOOKED_AFTER):
        _forget(path.parent)
    return digest


def _forget(contents: Path) -> None:
    """Let go of the contents that were not asked for the longest, once all of them take too much room."""
    with own_folder(contents) as inside, os.scandir(inside) as there:
        files = []
        for one in there:
            with contextlib.suppress(OSError):  # somebody else lets go of it as well
                status = one.stat(follow_symlinks=False)
                files.append((status.st_mtime_ns, status.st_size, one.name))
        files.sort()
        room, count = sum(size for _, size, _ in files) - _ROOM, len(files) - _FILES
        for _, size, name in files:
            if room <= 0 and count <= 0:
                return
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=inside)
            room, count = room - size, count - 1


def content(place: Path, digest: str) -> bytes | None:
    """Bytes that were kept; None if they are not there, or are not what their name says."""
    try:
        data = read_file(place / "contents" / digest, _BIGGEST)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def _put(path: Path, data: bytes) -> None:
    """A file of ours: there as a whole under its name, or not at all."""
    draft = f".{os.urandom(8).hex()}.tmp"
    with own_folder(path.parent, make=True) as inside:
        try:
            opened = create(draft, inside)
            try:
                write_all(opened, data)
            finally:
                os.close(opened)
            os.replace(draft, path.name, src_dir_fd=inside, dst_dir_fd=inside)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=inside)
            raise
