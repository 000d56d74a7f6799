"""Giving work back: into a folder of the caller's choice, or into the place it came from.

Nothing that is there is lost. Into a folder, a file that exists and differs gets the saved one put beside it, as
`NAME.recovered`. Applied to the place it came from, a saved file also replaces one that still is what the snapshot was
based on (a checkout of HEAD, or the baseline), because then nobody has worked on it since; everything else is put
beside. We do not refuse as a whole: whoever recovers wants the files, and a conflict is settled with both at hand.
Files that the attempt had deleted are named and stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from allswell.domain.snapshot import FileVerdict, LeftOut, Snapshot, State, Why, beside, spell, unspell, verdict
from allswell.errors import Refused, Unavailable
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.snapshot.landing import Landing
from allswell.runtime.snapshot.saved import Damaged, File, Saved, SavedInFolder, SavedInGit
from allswell.runtime.snapshot.take import LIMITS


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """A file that could not take its own name, and the one it has instead."""

    path: str
    recovered: str


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What recovering did; paths are spelled and relative to `folder`."""

    folder: str
    written: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    same: int = 0
    """Files that were there already, byte for byte, or that the attempt had never changed."""
    deleted: tuple[str, ...] = ()
    """What the attempt had deleted; nothing was done about it."""
    missing: tuple[LeftOut, ...] = ()
    """What the snapshot knows of and does not hold."""


def recover(snapshot: Snapshot, *, into: str | os.PathLike[str] | None = None, apply: bool = False) -> Recovery:
    """Write a snapshot's files, with their bytes, permissions and links, `into` a folder or where they came from."""
    if (into is None) is not apply:
        raise Refused("bad_recover", "recover needs either a folder (into=…) or apply=True, not both", where="into")
    folder = Path(os.fsdecode(unspell(snapshot.folder))) if into is None else Path(into)
    if into is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                "no_folder", f"{folder} is not a folder that can be written into: {error}", where="into"
            ) from error
    elif not folder.is_dir():
        raise Refused("no_folder", f"{folder} is gone; recover into another folder (into=…)", where="snapshot")
    with _saved(snapshot, folder if apply else None) as saved:
        landing = Landing(folder, saved.fingerprint)
        try:
            return _Recovering(saved, landing, folder, apply=apply).run()
        except OSError as error:
            raise Unavailable(
                f"recovering into {folder} stopped: {error}", hint="run it again: nothing is done twice"
            ) from error
        finally:
            landing.close()


@contextmanager
def _saved(snapshot: Snapshot, top: Path | None) -> Iterator[Saved]:
    """The snapshot's files; with the working tree at `top` in reach, or from the objects alone."""
    if snapshot.kind == "folder":
        yield SavedInFolder(Path(os.fsdecode(unspell(snapshot.name))))
        return
    objects = unspell(snapshot.repository or "")
    if not os.path.isdir(objects):
        raise Refused("no_snapshot", f"the repository {snapshot.repository} is gone", where="snapshot")
    with scratch_folder() as scratch:
        if top is not None and os.path.lexists(top / ".git"):
            git = Git(os.fsencode(top), timeout=LIMITS.git_timeout, scratch=scratch)
        else:
            git = Git(objects, timeout=LIMITS.git_timeout, scratch=scratch, git_dir=objects)
        yield SavedInGit(git, snapshot)


class _Recovering:
    """One recovery: first every file is judged, then what is to be written is written."""

    def __init__(self, saved: Saved, landing: Landing, folder: Path, *, apply: bool) -> None:
        self._saved = saved
        self._landing = landing
        self._folder = folder
        self._apply = apply
        self._same = 0
        self._names: set[bytes] = set()
        """Taken by the snapshot's own files, or given to one of them already."""

    def run(self) -> Recovery:
        listing = self._saved.listing()
        base = listing.base if self._apply else {}
        self._names = {one.path for one in listing.files}
        places = ((one, self._place(one, base.get(one.path))) for one in listing.files)
        todo = [(one, *place) for one, place in places if place is not None]
        written = []
        missing = list(listing.missing)
        for number, (one, chunks) in enumerate(self._saved.contents([one for one, _, _ in todo])):
            _, path, replace = todo[number]
            try:
                self._landing.write(path, one.state[0], one.mode, chunks, replace=replace)
                written.append(todo[number])
            except Damaged as error:
                missing.append(LeftOut(spell(one.path), Why.DAMAGED, str(error)))
        todo = written
        apart = [(one.path, path) for one, path, _ in todo if one.path != path]
        return Recovery(
            folder=spell(os.fsencode(self._folder)),
            written=tuple(spell(path) for one, path, replace in todo if path == one.path and not replace),
            replaced=tuple(spell(path) for _, path, replace in todo if replace),
            conflicts=tuple(Conflict(spell(wanted), spell(given)) for wanted, given in apart),
            same=self._same,
            deleted=tuple(spell(path) for path in listing.deleted),
            missing=tuple(missing),
        )

    def _place(self, one: File, base: State | None) -> tuple[bytes, bool] | None:
        """Where a file goes and whether it replaces what is there; None if there is nothing to do."""
        path = self._landing.free_path(one.path)
        present = self._landing.present(path)
        said = verdict(present, base, one.state)
        if (
            said is FileVerdict.BESIDE
            and base is not None
            and path == one.path
            and self._saved.equals_base(self._folder, path, base)
        ):
            said = FileVerdict.REPLACE
        number = 1
        while said is FileVerdict.BESIDE:
            head, _, last = self._landing.free_path(one.path).rpartition(b"/")
            path = os.path.join(head, beside(last, number))
            number += 1
            if path not in self._names:
                said = verdict(self._landing.present(path), None, one.state)
        self._names.add(path)
        if said in (FileVerdict.SAME, FileVerdict.LEAVE):
            self._same += 1
            return None
        return path, said is FileVerdict.REPLACE
