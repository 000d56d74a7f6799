"""The difference between two baselines, shown as git shows it: two trees, written into objects of our own.

Nothing is written into a repository: its objects are read, and what was noted is put beside them in a scratch folder.
So this also works where there is no repository at all. A file whose bytes were not kept is in neither tree; that it
differs is told without showing how.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from allswell.domain.ids import TaskId
from allswell.domain.receipts.receipt import Change, Receipt
from allswell.domain.receipts.snapshot import SnapshotLimits, spell, unspell
from allswell.errors import Refused
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.baseline import (
    Baseline,
    BaselineEntry,
    attempts_noted,
    content,
    read_baseline,
    take_baseline,
)
from allswell.runtime.workspace.git import Git, common_dir_of, find_top, git_dir_of, scratch_folder

_LIMITS = SnapshotLimits(git_timeout=120_000)
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs, by path, and how it looks."""

    changed: tuple[Change, ...] = ()
    text: bytes = b""
    """As `git diff` prints it; it can be applied."""
    unshown: tuple[str, ...] = ()
    """Paths that differ and are not in the text: their bytes were not kept."""


def difference(then: tuple[Path, Baseline], now: tuple[Path, Baseline], *, stat: bool = False) -> Difference:
    """What differs between two baselines of one folder, each with the place that its contents are kept in.

    It blocks; `GitFailed` if git or its objects are gone.
    """
    with scratch_folder() as scratch:
        trees = _ScratchTrees(scratch, then, now)
        old, new = trees.tree(*then), trees.tree(*now)
        text = trees.run(*_DIFF, *(("--stat",) if stat else ()), old, new)
        said = trees.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new).split(b"\0")
    changed = [Change(how.decode(), spell(path)) for how, path in zip(said[::2], said[1::2], strict=False)]
    changed += [Change(how, path) for path, how in trees.unshown.items()]
    return Difference(
        changed=tuple(sorted(changed, key=lambda one: one.path)), text=text, unshown=tuple(sorted(trees.unshown))
    )


class _ScratchTrees:
    """Makes both trees, in scratch folders of ours beside each other: index files, objects by git, objects by us."""

    def __init__(self, scratch: Path, then: tuple[Path, Baseline], now: tuple[Path, Baseline]) -> None:
        self._scratch = scratch
        place = _repository(then[1], now[1]) or _nowhere(scratch)
        self._git = Git(place, timeout=_LIMITS.git_timeout, scratch=scratch, git_dir=place)
        self._objects = scratch.parent / "objects"
        """Objects that git writes. Git may run as the repository's owner, who could put a link here under a name that
        we would write to; so what we write goes to `_blobs`."""
        self._blobs = scratch.parent / "blobs"
        for folder, writes in ((self._objects, True), (self._blobs, False)):
            folder.mkdir(mode=0o700)
            self._git.let_in(folder, writes=writes)
        shared = {*_shared(then[1]), *_shared(now[1]), os.path.join(place, b"objects"), os.fsencode(self._blobs)}
        self._extra = {
            "GIT_OBJECT_DIRECTORY": str(self._objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(_quoted(os.fsdecode(one)) for one in sorted(shared)),
        }
        self._format = self.run("rev-parse", "--show-object-format").decode().strip()
        self._trees = 0
        self.unshown: dict[str, str] = {}
        """Path and how it differs, of what cannot be shown."""
        self._left_out = self._paths_left_out(then, now)

    def run(self, *arguments: str | bytes, index: str = "index", stdin: bytes = b"") -> bytes:
        """A call of git that writes into the scratch folder only."""
        extra = {**self._extra, "GIT_INDEX_FILE": str(self._scratch / index)}
        return self._git.run(*arguments, stdin=stdin, extra=extra)

    def tree(self, place: Path, side: Baseline) -> str:
        """The tree of a folder as it was noted."""
        self._trees += 1
        index = f"index{self._trees}"
        self._fill(place, side, index, b"")
        return self.run("write-tree", "--missing-ok", index=index).decode().strip()

    def _fill(self, place: Path, side: Baseline, index: str, under: bytes) -> None:
        if not under:
            self.run("read-tree", side.head or "--empty", index=index)
        elif side.head is not None:  # a repository inside is a folder like any other once its own entry is removed
            self._update(index, [(under.rstrip(b"/"), None)])
            self.run("read-tree", "-i", b"--prefix=" + under, side.head, index=index)
        entries: list[tuple[bytes, tuple[str, str] | None]] = []
        for note in side.noted:
            path = under + unspell(note.path)
            data = content(place, note.sha256) if note.kept and spell(path) not in self._left_out else None
            entries.append((path, None if data is None else (note.kind, self._write(data))))
        entries += [(unspell(path), None) for path in self._left_out if unspell(path).startswith(under)]
        self._update(index, entries)
        for inner, below in _inside(side, under):
            self._fill(place, inner, index, below)

    def _update(self, index: str, entries: list[tuple[bytes, tuple[str, str] | None]]) -> None:
        nothing = "0" * (64 if self._format == "sha256" else 40)
        gone = [b"0 %s\t%s\0" % (nothing.encode(), path) for path, entry in entries if entry is None]
        there = [b"%s %s\t%s\0" % (entry[0].encode(), entry[1].encode(), path) for path, entry in entries if entry]
        if gone or there:
            self.run("update-index", "--replace", "-z", "--index-info", index=index, stdin=b"".join(gone + there))

    def _write(self, data: bytes) -> str:
        """Write bytes as an object; `git hash-object` would take a process for each."""
        whole = b"blob %d\0" % len(data) + data
        oid = hashlib.new(self._format, whole, usedforsecurity=False).hexdigest()
        path = self._blobs / oid[:2] / oid[2:]
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o711)
        if not path.exists():
            path.write_bytes(zlib.compress(whole, 1))
            path.chmod(0o644)
        return oid

    def _paths_left_out(self, then: tuple[Path, Baseline], now: tuple[Path, Baseline]) -> set[str]:
        """Paths left out of both trees because one side's bytes were not kept; `unshown` lists those that differ."""
        sides = [dict(_notes(side, b"")) for _, side in (then, now)]
        places = (then[0], now[0])
        missing = {
            path
            for notes, place in zip(sides, places, strict=True)
            for path, note in notes.items()
            if note.kind and not (note.kept and (place / "contents" / note.sha256).exists())
        }
        for path in missing:
            before, after = (notes.get(path) for notes in sides)
            if before != after:
                was, is_ = before is None or bool(before.kind), after is None or bool(after.kind)
                self.unshown[path] = "M" if was and is_ else "D" if was else "A"
        return missing


def _notes(side: Baseline, under: bytes) -> Iterator[tuple[str, BaselineEntry]]:
    for note in side.noted:
        yield spell(under + unspell(note.path)), msgspec.structs.replace(note, path="")
    for inner, below in _inside(side, under):
        yield from _notes(inner, below)


def _inside(side: Baseline, under: bytes) -> list[tuple[Baseline, bytes]]:
    top = len(unspell(side.folder).rstrip(b"/")) + 1
    return [(inner, under + unspell(inner.folder)[top:] + b"/") for inner in side.inside]


def _shared(side: Baseline) -> list[bytes]:
    own = [] if side.repository is None else [os.path.join(unspell(side.repository), b"objects")]
    return own + [one for inner in side.inside for one in _shared(inner)]


def _repository(*sides: Baseline) -> bytes | None:
    return next((unspell(side.repository) for side in sides if side.repository is not None), None)


def _nowhere(scratch: Path) -> bytes:
    """A repository with nothing in it."""
    place = scratch / "nowhere"
    for name in (place, place / "objects", place / "refs"):
        name.mkdir()
        name.chmod(0o755)
    (place / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    return os.fsencode(place)


def _quoted(path: str) -> str:
    text = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


# What an attempt has changed: the difference between its beginning and its end.
#
# The beginning is what was noted then. The end is what was noted at its end; where that is missing, the branch or the
# snapshot that its receipt names; and where there is none, as of one that still runs, what is in its folder now.

_NOW = SnapshotLimits(max_file=4 << 20, max_bytes=512 << 20, max_files=100_000, timeout=30_000, git_timeout=30_000)


class AttemptChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt has changed, from its beginning to its end or to this moment."""

    attempt: int
    until: str
    """`its end` or `now`."""
    gap: str = ""
    """Why the notes of its beginning or its end are not complete; files that they miss are compared with HEAD."""
    difference: Difference


def changes_of(home: StateDir, task: TaskId, attempt: int | None = None, *, stat: bool = False) -> AttemptChanges:
    """What an attempt at a task has changed, the last one if none is named; `Refused` if nothing is known of it."""
    known = attempts_noted(home.baselines, task)
    found = {one.receipt.attempt: one.receipt for one in home.receipts.of_task(task)}
    known = sorted({*known, *(number for number, one in found.items() if one.branch is not None)})
    number = attempt if attempt is not None else known[-1] if known else 0
    if number not in known:
        which = "no attempt at" if attempt is None else f"attempt {attempt} at"
        text = f"{which} {task} has begun in a folder here, so nothing is known of what it changed"
        raise Refused("no_baseline", text, where="TASK")
    receipt = found.get(number)
    then = read_baseline(home.baselines, task, number) or _base(receipt)
    if then is None:
        raise Refused("no_baseline", f"what was noted of attempt {number} at {task} cannot be read", where="TASK")
    now = read_baseline(home.baselines, task, number, end=True) or _kept(receipt, then)
    if now is not None:
        shown = difference((home.baselines, then), (home.baselines, now), stat=stat)
        return AttemptChanges(attempt=number, until="its end", gap=then.cut or now.cut, difference=shown)
    with tempfile.TemporaryDirectory(prefix="allswell-diff-") as scratch:
        place = Path(scratch)
        now = take_baseline(place, Path(_folder(then)), task, number, bounds=_NOW)
        shown = difference((home.baselines, then), (place, now), stat=stat)
    return AttemptChanges(attempt=number, until="now", gap=then.cut or now.cut, difference=shown)


def _folder(then: Baseline) -> str:
    folder = os.fsdecode(unspell(then.folder))
    if not Path(folder).is_dir():
        raise Refused("no_folder", f"{folder} is gone, and nothing was noted of the end of this attempt", where="TASK")
    return folder


def _base(receipt: Receipt | None) -> Baseline | None:
    """The commit at which its branch began, for an agent that is a Python function: nothing is noted of its folder."""
    branch = None if receipt is None else receipt.branch
    return None if receipt is None or branch is None else _at(receipt, branch.repository, branch.base)


def _kept(receipt: Receipt | None, then: Baseline) -> Baseline | None:
    if receipt is not None and receipt.branch is not None:
        return _at(receipt, receipt.branch.repository, receipt.branch.commit)
    kept = None if receipt is None else receipt.snapshot
    if receipt is None or kept is None or kept.kind != "git" or then.kind != "git":
        return None
    return msgspec.structs.replace(then, head=kept.id, noted=(), inside=(), cut="", repository=kept.repository)


def _at(receipt: Receipt, folder: str, commit: str) -> Baseline | None:
    """A commit, as if it had been noted."""
    top = find_top(Path(folder))
    if top is None:
        return None
    return Baseline(
        task=receipt.task,
        attempt=receipt.attempt,
        folder=folder,
        kind="git",
        taken_at=receipt.began_at,
        head=commit,
        repository=spell(common_dir_of(git_dir_of(os.fsencode(top)))),
    )
