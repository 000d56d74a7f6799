"""Which snapshots there are."""

from __future__ import annotations

import os
from pathlib import Path

from allswell.domain.snapshot import REFS, Snapshot
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot import folder as folders
from allswell.runtime.snapshot.record import read_header, read_particulars, to_snapshot
from allswell.runtime.snapshot.take import LIMITS


def list_snapshots(folder: str | os.PathLike[str]) -> list[Snapshot]:
    """Every snapshot of a repository or folder that is the newest of its attempt, oldest first."""
    place = Path(folder).resolve()
    top = find_top(place)
    found = _in_folder(top or place)
    if top is not None:
        found += _in_git(top)
    return sorted(found, key=lambda snapshot: (snapshot.taken_at, snapshot.name))


def _in_git(top: Path) -> list[Snapshot]:
    found = []
    with scratch_folder() as scratch:
        git = Git(os.fsencode(top), timeout=LIMITS.git_timeout, scratch=scratch)
        for line in git.run("for-each-ref", "--format=%(objectname) %(refname)", REFS + "/").decode().splitlines():
            commit, ref = line.split(" ")
            header = read_header(git, commit)
            if header is not None:
                found.append(to_snapshot(git, ref, commit, header, read_particulars(git, header)))
    return found


def _in_folder(top: Path) -> list[Snapshot]:
    found = []
    for place in sorted((top / folders.PLACE).glob("*/*")):
        number = folders.latest(place)
        if number is not None and place.name.isdecimal():
            made = folders.load(place / str(number))
            found.append(folders.to_snapshot(top, place.parent.name, int(place.name), number, made))
    return found
