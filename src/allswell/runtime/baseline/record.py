"""A baseline as it is written down, beside the store: one small file for each attempt, and the bytes apart.

    baselines/<task>.<attempt>.json   what was noted
    baselines/contents/<sha256>       the bytes of what was noted; the same bytes once, for however many attempts

Nothing is flushed to the disk: a baseline must outlive a killed supervisor, not a power cut, and is asked for at the
beginning of every attempt. What is torn is as good as missing: a record is read whole or not at all, and bytes that are
not what their name says are not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.snapshot import ref_name

_BIGGEST = 64 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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


def _name(task: str, attempt: int) -> str:
    ref_name(task, attempt)  # what cannot be a ref is no good as a file either
    return f"{task}.{attempt}.json"


def read_baseline(place: Path, task: str, attempt: int) -> Baseline | None:
    """What was noted when an attempt began; None if nothing that can be read was."""
    path = place / _name(task, attempt)
    try:
        if path.stat().st_size > _BIGGEST:
            return None
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except (OSError, msgspec.DecodeError):
        return None


def write_baseline(place: Path, made: Baseline) -> None:
    """Write a baseline down, in the place of an earlier one of the same attempt; `OSError` if that cannot be."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    _put(place, _name(made.task, made.attempt), msgspec.json.encode(made))


def keep_content(place: Path, data: bytes) -> str:
    """Keep bytes under their digest, which is returned; `OSError` if that cannot be."""
    digest = hashlib.sha256(data).hexdigest()
    contents = place / "contents"
    try:
        if (contents / digest).stat().st_size == len(data):
            return digest
    except OSError:
        contents.mkdir(parents=True, exist_ok=True, mode=0o700)
    _put(contents, digest, data)
    return digest


def content(place: Path, digest: str) -> bytes | None:
    """Bytes that were kept; None if they are not there, or are not what their name says."""
    try:
        data = (place / "contents" / digest).read_bytes()
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == digest else None


def _put(folder: Path, name: str, data: bytes) -> None:
    draft = folder / f".{name[:80]}.{os.urandom(4).hex()}.tmp"
    opened = os.open(draft, _NEW, 0o600)
    try:
        with open(opened, "wb") as into:
            into.write(data)
        os.replace(draft, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
