"""Which files a snapshot has that its base had not, or had differently."""

from __future__ import annotations

import os
from pathlib import Path

from allswell.domain.receipt import Change
from allswell.domain.snapshot import Snapshot, can_be_kept, spell, unspell
from allswell.runtime.git import Git, scratch_folder
from allswell.runtime.snapshot.manifest import load, load_baseline
from allswell.runtime.snapshot.take import LIMITS


def changed_files(snapshot: Snapshot, since: str | None = None) -> list[Change]:
    """What differs from the snapshot's base, or from the commit `since`; by path."""
    if snapshot.kind == "folder":
        return _in_folder(Path(os.fsdecode(unspell(snapshot.name))))
    objects = unspell(snapshot.repository or "")
    with scratch_folder() as scratch:
        git = Git(objects, timeout=LIMITS.git_timeout, scratch=scratch, git_dir=objects)
        base = since or snapshot.base or git.run("hash-object", "-t", "tree", "--stdin").decode().strip()
        told = git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", base, snapshot.id).split(b"\0")
    pairs = zip(told[::2], told[1::2], strict=False)
    return [Change(how.decode(), spell(path)) for how, path in pairs if can_be_kept(path)]


def _in_folder(place: Path) -> list[Change]:
    made = load(place)
    baseline, _ = load_baseline(place.parent)
    before = {} if baseline is None else {one.path: one for one in baseline.files}
    changed = [Change("M" if one.path in before else "A", one.path) for one in made.files if one.kept]
    there = {one.path for one in made.files} | {one.path for one in made.left_out}
    changed += [Change("D", path) for path in before if path not in there]
    return sorted(changed, key=lambda change: change.path)
