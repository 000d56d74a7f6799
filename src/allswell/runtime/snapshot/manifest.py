"""What a snapshot without git says about itself, and where it lies.

    .allswell/snapshots/<task>/<attempt>/
      baseline.json      the manifest when the attempt began, if someone asked for it
      1/manifest.json    path, size, sha256, mode and mtime of every file
      1/files/…          those that changed, as they were
      2/…                a later snapshot of the same attempt, if anything had changed by then

That is the `.allswell` of the store whose attempt it is, never one of its own beside the work: whoever types `allswell`
there would then be shown that one instead of the store. A caller without a store gets the nearest `.allswell` upward.
Everything here is reached below a folder descriptor (`own_files`): agents can write beside it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from allswell.domain.names import TaskId
from allswell.domain.snapshot import LeftOut, Snapshot, ref_name, spell
from allswell.errors import Refused, Unavailable
from allswell.runtime.own_files import OURS, own_folder, read_file
from allswell.settings.nearby import nearest_store

SNAPSHOTS = "snapshots"
_BIGGEST = 1 << 29
"""Bytes of a manifest; a million files need a quarter of that."""


class ManifestEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One file of a manifest."""

    path: str
    kind: str
    """As git says it: 100644, 100755, or 120000 for a link."""
    size: int
    mode: int
    mtime: int
    """Nanoseconds; `ctime` and `inode` only tell whether it is worth reading again."""
    sha256: str = ""
    """Of its bytes, or of a link's target; empty if it was not read."""
    ctime: int = 0
    inode: int = 0
    target: str = ""
    kept: bool = False
    """Whether its bytes are in the snapshot."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every file of a folder at one moment."""

    taken_at: int
    reason: str
    files: tuple[ManifestEntry, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    torn: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    base: str | None = None
    folder: str = ""
    """The top of what was saved, spelled; earlier versions did not say it."""

    def digest(self) -> str:
        """The same for the same content, whenever and for whatever reason it was taken."""
        plain = tuple(msgspec.structs.replace(one, mtime=0, ctime=0, inode=0, kept=False) for one in self.files)
        same = Manifest(0, "", plain, self.left_out, self.torn, self.notes, self.base)
        return hashlib.sha256(msgspec.json.encode(same)).hexdigest()


def home_of(folder: Path) -> Path:
    """Where snapshots of a folder are kept if nobody says where: in the nearest store's folder upward, else there."""
    with suppress(Refused):  # somebody else's is not ours to write into
        return nearest_store(folder) or folder / OURS
    return folder / OURS


def place_of(home: Path, task: str, attempt: int) -> Path:
    """Where the snapshots of an attempt are."""
    ref_name(task, attempt)  # what cannot be a ref is no good as a folder either
    return home / SNAPSHOTS / task / str(attempt)


def latest(place: Path) -> int | None:
    """The number of the newest snapshot of an attempt."""
    return max((int(name) for name in names_in(place) if name.isdecimal()), default=None)


def names_in(place: Path) -> list[str]:
    """What lies in a folder of ours; nothing where there is none."""
    try:
        with own_folder(place) as opened:
            return sorted(os.listdir(opened))
    except OSError:
        return []


def load_baseline(place: Path) -> tuple[Manifest | None, tuple[str, ...]]:
    """The baseline of an attempt; one that cannot be read is as good as none, and no reason to keep nothing."""
    if "baseline.json" not in names_in(place):
        return None, ()
    try:
        return _load(place / "baseline.json"), ()
    except Unavailable as error:
        return None, (f"everything was copied: {error.message}",)


def load(place: Path) -> Manifest:
    """The manifest of a kept snapshot."""
    return _load(place / "manifest.json")


def to_snapshot(place: Path, number: int, made: Manifest, top: Path) -> Snapshot:
    """The value that callers see, of a snapshot of an attempt; `top` is what was saved where it does not say so."""
    return Snapshot(
        task=TaskId(place.parent.name),
        attempt=int(place.name),
        kind="folder",
        folder=made.folder or spell(os.fsencode(top)),
        name=spell(os.fsencode(place / str(number))),
        id=made.digest(),
        reason=made.reason,
        taken_at=made.taken_at,
        base=made.base,
        previous=_digest_of(place / str(number - 1)) if number > 1 else None,
        left_out=made.left_out,
        torn=made.torn,
        notes=made.notes,
    )


def _digest_of(place: Path) -> str | None:
    try:
        return load(place).digest()
    except Unavailable:
        return None


def _load(path: Path) -> Manifest:
    try:
        return msgspec.json.decode(read_file(path, _BIGGEST), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error
