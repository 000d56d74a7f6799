"""Which snapshots there are."""

from __future__ import annotations

import os
from pathlib import Path

from allswell.domain.snapshot import REFS, Snapshot, spell
from allswell.errors import Unavailable
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.own_files import OURS
from allswell.runtime.repository import find_top
from allswell.runtime.snapshot.manifest import SNAPSHOTS, home_of, latest, load, names_in
from allswell.runtime.snapshot.manifest import to_snapshot as of_folder
from allswell.runtime.snapshot.record import read_header, read_particulars, to_snapshot
from allswell.runtime.snapshot.take import LIMITS


def list_snapshots(folder: str | os.PathLike[str], *, home: str | os.PathLike[str] | None = None) -> list[Snapshot]:
    """Every snapshot of a repository or folder that is the newest of its attempt, oldest first."""
    place = Path(folder).resolve()
    top = find_top(place)
    there = top or place
    # Beside the work itself is where earlier versions put them.
    homes = dict.fromkeys((home_of(there) if home is None else Path(home).absolute(), there / OURS))
    found = [snapshot for one in homes for snapshot in _in_folder(there, one)]
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


def _in_folder(top: Path, home: Path) -> list[Snapshot]:
    found = []
    for task in names_in(home / SNAPSHOTS):
        for attempt in names_in(home / SNAPSHOTS / task):
            place = home / SNAPSHOTS / task / attempt
            number = latest(place) if attempt.isdecimal() else None
            if number is None:
                continue
            try:
                made = load(place / str(number))
            except Unavailable:
                continue  # one that is damaged hides no other
            if (made.folder or spell(os.fsencode(home.parent))) == spell(os.fsencode(top)):
                found.append(of_folder(place, number, made, top))
    return found
