"""Writing a snapshot into a repository's objects, and naming it by one ref: nothing else of the repository is touched.

    refs/allswell/<task>/<attempt>   a commit whose tree is the working tree, every byte as on disk
      parent: HEAD, if there is a commit
      parent: its particulars, a commit with
                snapshot.json   what is not in the tree, exact permissions, repositories inside
                index, index.N  the index as it was, and those of repositories inside
                staged          the tree of the index, so that what was only staged is not lost to `git gc`
                conflict        the sides of unresolved conflicts: 1 base, 2 ours, 3 theirs
      parent: the snapshot that had this ref before, so that a second one never costs the first

A file that could not be read keeps its staged version in the tree, so that a diff tells no deletions that never were;
`snapshot.json` lists it, and recovering leaves it alone.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from allswell.domain.snapshot import Candidate, LeftOut, Limits, Snapshot, Why, ration, ref_name, spell
from allswell.runtime.git import Git, GitFailed
from allswell.runtime.snapshot.progress import Progress
from allswell.runtime.snapshot.reading import in_use, open_file, open_here
from allswell.runtime.snapshot.record import HEADER, Header, Inside, Particulars, read_header, to_snapshot
from allswell.runtime.snapshot.survey import Survey

_MUCH = 32 << 20
"""Bytes from which on nothing is compressed, and few large files stay one pack: otherwise git reads them all again, to
write each as an object of its own. Somebody waits, and most of what is so large is compressed already."""
IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Allswell"), ("EMAIL", "allswell@localhost"))
}


@dataclass(slots=True)
class Stored:
    """Files whose bytes are in the repository now."""

    entries: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Git's mode and the object."""
    left_out: list[LeftOut] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def store_files(
    git: Git, top: int, found: Survey, limits: Limits, late: Callable[[], bool], progress: Progress
) -> Stored:
    """Put every file that has to be read into the repository, as far as the limits allow."""
    stored = Stored(left_out=[LeftOut(spell(path) + "/", Why.OUT_OF_TIME) for path in found.unseen])
    stored.left_out += found.left_out
    ours = open_here()
    wanted = {}
    for path, status in found.to_read.items():
        if (status.st_dev, status.st_ino) in ours:
            stored.left_out.append(in_use(path))
        elif (known := progress.find(path, status)) is not None:
            stored.entries[path] = known
        else:
            wanted[path] = status.st_size
    _adopt(git, top, found, stored, wanted)
    chosen, left_out = ration((Candidate(path, size, path in found.tracked) for path, size in wanted.items()), limits)
    stored.left_out += left_out
    progress.begin(sum(one.size for one in chosen))
    if chosen:
        began = time.time_ns()
        _import(git, top, chosen, stored, _Bounds(late, limits, progress))
        for one in chosen:
            if one.path in stored.entries and one.path in found.to_read and spell(one.path) not in stored.torn:
                progress.note(one.path, found.to_read[one.path], began, *stored.entries[one.path])
    return stored


def _adopt(git: Git, top: int, found: Survey, stored: Stored, wanted: dict[bytes, int]) -> None:
    """Files of repositories inside that have not changed: this repository may have their objects already."""
    if not found.clean:
        return
    oids = {entry.oid for entry in found.clean.values()}
    out = git.run("cat-file", "--buffer", "--batch-check", stdin=b"".join(oid + b"\n" for oid in oids))
    have = {line.split(b" ")[0] for line in out.split(b"\n") if b" blob " in line}
    for path, entry in found.clean.items():
        if entry.oid in have:
            stored.entries[path] = (entry.mode.decode(), entry.oid.decode())
            continue
        try:
            wanted[path] = os.stat(path, dir_fd=top, follow_symlinks=False).st_size
        except OSError:
            stored.left_out.append(LeftOut(spell(path), Why.VANISHED))
        found.tracked.add(path)


@dataclass(slots=True)
class _Bounds:
    """How long reading may go on, and who is told how far it has come."""

    late: Callable[[], bool]
    limits: Limits
    progress: Progress


def _import(git: Git, top: int, chosen: Sequence[Candidate], stored: Stored, bounds: _Bounds) -> None:
    """Read the chosen files into one pack. Git is given bytes and never opens a file of the working tree itself."""
    marks = git.scratch / "marks"
    modes: dict[int, tuple[bytes, str]] = {}
    # What was read is lost with a git that is killed, and to read it again takes longer than to let it finish.
    longest = bounds.limits.timeout + 2 * bounds.limits.git_timeout
    swiftly = {"GIT_CONFIG_PARAMETERS": "'pack.compression=0' 'fastimport.unpackLimit=0'"}
    much = swiftly if bounds.progress.total > _MUCH else {}
    words = ("fast-import", "--quiet", "--done", f"--export-marks={marks}")
    with git.feed(*words, time=longest, extra=much) as into:
        for number, one in enumerate(chosen, start=1):
            if bounds.late():
                stored.left_out.append(LeftOut(spell(one.path), Why.OUT_OF_TIME))
                continue
            read = open_file(one.path, top)
            if isinstance(read, LeftOut):
                stored.left_out.append(read)
                continue
            into.write(b"blob\nmark :%d\ndata %d\n" % (number, read.size))
            for chunk in read.chunks:
                into.write(chunk)
                bounds.progress.done += len(chunk)
            into.write(b"\n")
            outcome = read.outcome()
            if outcome == "lost":
                stored.left_out.append(LeftOut(spell(one.path), Why.CHANGED, "it shrank while it was read"))
                continue
            if outcome == "torn":
                stored.torn.append(spell(one.path))
            modes[number] = (one.path, read.mode)
        into.write(b"done\n")
    for line in marks.read_text(encoding="ascii").splitlines():
        mark, oid = line[1:].split(" ")
        if int(mark) in modes:
            path, mode = modes[int(mark)]
            stored.entries[path] = (mode, oid)


def write_tree(git: Git, found: Survey, stored: Stored) -> str:
    """The tree of the working tree, made from the copied index; what was there of it before stays as it was."""
    nothing = "0" * len(git.run("hash-object", "--stdin").strip())
    held = set(stored.entries)
    inside = [nested.path for nested in found.nested if any(path.startswith(nested.path + b"/") for path in held)]
    lines = [b"0 %s\t%s\0" % (nothing.encode(), path) for path in (*found.gone, *inside)]
    lines += [b"%s %s 0\t%s\0" % (mode.encode(), oid.encode(), path) for path, (mode, oid) in stored.entries.items()]
    if lines:
        git.run("update-index", "-z", "--index-info", stdin=b"".join(lines))
    return git.run("write-tree", "--missing-ok").decode().strip()


def write_staged(git: Git, found: Survey) -> dict[str, str]:
    """Trees that keep alive what only the index points to; called before the copied index is changed."""
    if not found.stages:
        try:
            return {"staged": git.run("write-tree", "--missing-ok").decode().strip()}
        except GitFailed as failed:
            found.notes.append(f"what was staged is kept in the raw index only: {failed.message}")
            return {}
    # With unresolved conflicts an index has no tree: its stages are laid out as folders, in an index of their own.
    whole = git.run("ls-files", "-z", "-s").split(b"\0")[:-1]
    lines = []
    for record in whole:
        about, _, path = record.partition(b"\t")
        mode, oid, stage = about.split(b" ")
        lines.append(b"%s %s 0\t%s/%s\0" % (mode, oid, stage, path))
    own = {"GIT_INDEX_FILE": str(git.scratch / "conflict")}
    git.run("update-index", "-z", "--index-info", stdin=b"".join(lines), extra=own)
    return {"conflict": git.run("write-tree", "--missing-ok", extra=own).decode().strip()}


def particulars(found: Survey, stored: Stored) -> Particulars:
    """All that the tree cannot say."""
    runs = {path: mode for path, mode in found.modes.items() if mode & 0o100}
    plain = Counter(mode for path, mode in found.modes.items() if path not in runs).most_common(1)
    executable = Counter(runs.values()).most_common(1)
    usual = plain[0][0] if plain else 0o644, executable[0][0] if executable else 0o755
    return Particulars(
        left_out=tuple(sorted(stored.left_out)),
        torn=tuple(sorted(stored.torn)),
        absent=tuple(spell(path) for path in sorted(found.absent)),
        nested=tuple(Inside(spell(nested.path), nested.head) for nested in found.nested),
        notes=tuple(found.notes),
        plain=usual[0],
        executable=usual[1],
        modes={spell(path): mode for path, mode in sorted(found.modes.items()) if mode not in usual},
    )


def write_commit(
    git: Git, tree: str, about: Particulars, staged: dict[str, str], found: Survey, header: Header
) -> Snapshot:
    """The commit and its ref; the snapshot that is there already if nothing has changed since."""
    ref = ref_name(header.task, header.attempt)
    header = msgspec.structs.replace(header, base=found.head)
    text = msgspec.json.encode(about, order="sorted")
    before = _commit_at(git, ref)
    while True:
        if before is not None:
            earlier = read_header(git, before)
            if earlier is not None and earlier.base == header.base and _same(git, before, earlier, tree, text, staged):
                return to_snapshot(git, ref, before, earlier, about)
        commit, made = _write_commit(git, tree, text, staged, found, msgspec.structs.replace(header, previous=before))
        try:
            # Only over what was seen: of two snapshots of one attempt at once, the second stands on the first.
            git.run("update-ref", ref, commit, before or "0" * len(commit))
        except GitFailed:
            if (now := _commit_at(git, ref)) == before:
                raise
            before = now
        else:
            return to_snapshot(git, ref, commit, made, about)


def _commit_at(git: Git, ref: str) -> str | None:
    return git.run("rev-parse", "-q", "--verify", ref + "^{commit}", good=(0, 1, 128)).decode().strip() or None


def _write_commit(
    git: Git, tree: str, text: bytes, staged: dict[str, str], found: Survey, header: Header
) -> tuple[str, Header]:
    """The commit of the particulars, and on it the snapshot's own."""
    blobs = {"snapshot.json": text, "index": found.raw_index}
    blobs |= {f"index.{number}": nested.raw_index for number, nested in enumerate(found.nested)}
    lines = [
        f"100644 blob {git.run('hash-object', '-w', '--stdin', stdin=data).decode().strip()}\t{name}\0"
        for name, data in blobs.items()
        if data is not None
    ]
    lines += [f"040000 tree {oid}\t{name}\0" for name, oid in staged.items()]
    aside = git.run("mktree", "-z", "--missing", stdin="".join(lines).encode()).decode().strip()
    date = {f"GIT_{role}_DATE": f"{header.taken_at // 1000} +0000" for role in ("AUTHOR", "COMMITTER")}
    identity = IDENTITY | date
    what = f"Particulars of a snapshot of {header.task}, attempt {header.attempt}\n".encode()
    meta = git.run("commit-tree", aside, stdin=what, extra=identity).decode().strip()
    header = msgspec.structs.replace(header, particulars=meta)
    first = " ".join(header.reason.split())[:100]
    message = f"Snapshot of {header.task}, attempt {header.attempt}: {first}\n\n{HEADER}".encode()
    message += msgspec.json.encode(header) + b"\n"
    parents = [part for parent in (header.base, meta, header.previous) if parent is not None for part in ("-p", parent)]
    return git.run("commit-tree", tree, *parents, stdin=message, extra=identity).decode().strip(), header


def _same(git: Git, commit: str, earlier: Header, tree: str, text: bytes, staged: dict[str, str]) -> bool:
    names = [f"{commit}^{{tree}}", *(f"{earlier.particulars}:{name}" for name in staged)]
    trees = git.run("rev-parse", "-q", *names, good=(0, 1, 128)).decode().split()
    if trees != [tree, *staged.values()]:
        return False
    return git.run("cat-file", "blob", f"{earlier.particulars}:snapshot.json", good=(0, 128)) == text
