"""Snapshots: the work of an attempt, kept before it is ended, and given back.

`take` is the way in and `recover` the way back. In a repository: `survey` finds what stands in the working tree, which
is written here to the repository's objects; `manifest` is what a snapshot says about itself. Without git:
`folder_snapshot`. The rules (names, limits, what a conflict is) are in `allswell.domain.receipts.snapshot`, the words
for users in docs/snapshots.md.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from allswell.domain.receipts.receipt import Change
from allswell.domain.receipts.snapshot import (
    REFS,
    Candidate,
    OmissionReason,
    OmittedFile,
    Snapshot,
    SnapshotLimits,
    can_be_kept,
    ration,
    ref_name,
    spell,
    unspell,
)
from allswell.errors import Refused, Unavailable
from allswell.runtime.workspace.files import OURS
from allswell.runtime.workspace.folder_snapshot import (
    HEADER,
    SNAPSHOTS,
    FolderMetadata,
    Header,
    NestedRepository,
    Progress,
    SnapshotOrder,
    commit_to_snapshot,
    home_of,
    latest,
    load,
    manifest_to_snapshot,
    names_in,
    read_header,
    read_particulars,
    take_folder,
)
from allswell.runtime.workspace.git import Git, GitFailed, find_top, git_of, scratch_folder
from allswell.runtime.workspace.survey import Survey, in_use, open_file, open_here, survey
from allswell.timing.clock import Clock, SystemClock

# Writing a snapshot into a repository's objects, and naming it by one ref: nothing else of the repository is touched.
#
#     refs/allswell/<task>/<attempt>   a commit whose tree is the working tree, every byte as on disk
#       parent: HEAD, if there is a commit
#       parent: its particulars, a commit with
#                 snapshot.json   what is not in the tree, exact permissions, repositories inside
#                 index, index.N  the index as it was, and those of repositories inside
#                 staged          the tree of the index, so that what was only staged is not lost to `git gc`
#                 conflict        the sides of unresolved conflicts: 1 base, 2 ours, 3 theirs
#       parent: the snapshot that had this ref before, so that a second one never costs the first
#
# A file that could not be read keeps its staged version in the tree, so that a diff tells no deletions that never were;
# `snapshot.json` lists it, and recovering leaves it alone.

_MUCH = 32 << 20
"""Bytes from which on nothing is compressed, and few large files stay one pack: otherwise git reads them all again, to
write each as an object of its own. Somebody waits, and most of what is so large is compressed already."""
IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Allswell"), ("EMAIL", "allswell@localhost"))
}


@dataclass(slots=True)
class StoredFiles:
    """Files whose bytes are in the repository now."""

    entries: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Git's mode and the object."""
    left_out: list[OmittedFile] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def store_files(
    git: Git, top: int, found: Survey, limits: SnapshotLimits, late: Callable[[], bool], progress: Progress
) -> StoredFiles:
    """Put every file that has to be read into the repository, as far as the limits allow."""
    stored = StoredFiles(left_out=[OmittedFile(spell(path) + "/", OmissionReason.OUT_OF_TIME) for path in found.unseen])
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


def _adopt(git: Git, top: int, found: Survey, stored: StoredFiles, wanted: dict[bytes, int]) -> None:
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
            stored.left_out.append(OmittedFile(spell(path), OmissionReason.VANISHED))
        found.tracked.add(path)


@dataclass(slots=True)
class _Bounds:
    """How long reading may go on, and who is told how far it has come."""

    late: Callable[[], bool]
    limits: SnapshotLimits
    progress: Progress


def _import(git: Git, top: int, chosen: Sequence[Candidate], stored: StoredFiles, bounds: _Bounds) -> None:
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
                stored.left_out.append(OmittedFile(spell(one.path), OmissionReason.OUT_OF_TIME))
                continue
            read = open_file(one.path, top, git.owner)
            if isinstance(read, OmittedFile):
                stored.left_out.append(read)
                continue
            into.write(b"blob\nmark :%d\ndata %d\n" % (number, read.size))
            for chunk in read.chunks:
                into.write(chunk)
                bounds.progress.done += len(chunk)
            into.write(b"\n")
            outcome = read.outcome()
            if outcome == "lost":
                stored.left_out.append(
                    OmittedFile(spell(one.path), OmissionReason.CHANGED, "it shrank while it was read")
                )
                continue
            if outcome == "torn":
                stored.torn.append(spell(one.path))
            modes[number] = (one.path, read.mode)
        into.write(b"done\n")
    for line in git.read_scratch(marks.name).decode("ascii").splitlines():
        mark, oid = line[1:].split(" ")
        if int(mark) in modes:
            path, mode = modes[int(mark)]
            stored.entries[path] = (mode, oid)


def write_tree(git: Git, found: Survey, stored: StoredFiles) -> str:
    """The tree of the working tree, made from the copied index; what was there of it before stays as it was."""
    nothing = "0" * len(git.run("hash-object", "--stdin").strip())
    held = set(stored.entries)
    inside = [nested.path for nested in found.nested if any(path.startswith(nested.path + b"/") for path in held)]
    lines = [b"0 %s\t%s\0" % (nothing.encode(), path) for path in (*found.gone, *inside)]
    lines += [b"%s %s 0\t%s\0" % (mode.encode(), oid.encode(), path) for path, (mode, oid) in stored.entries.items()]
    if lines:
        _, complaints = git.ask("update-index", "-z", "--index-info", stdin=b"".join(lines))
        if any(line.startswith("Ignoring path") for line in complaints):
            _leave_out_ignored(git, stored)
    return git.run("write-tree", "--missing-ok").decode().strip()


def _leave_out_ignored(git: Git, stored: StoredFiles) -> None:
    """Note what an index takes from nobody: `.GIT` in any case, a link called `.gitmodules`."""
    taken = set(git.run("ls-files", "-z", "--cached").split(b"\0"))
    for path in sorted(stored.entries.keys() - taken):
        del stored.entries[path]
        stored.left_out.append(OmittedFile(spell(path), OmissionReason.SPECIAL, "git keeps nothing of that name"))


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


def particulars(found: Survey, stored: StoredFiles) -> FolderMetadata:
    """All that the tree cannot say."""
    runs = {path: mode for path, mode in found.modes.items() if mode & 0o100}
    plain = Counter(mode for path, mode in found.modes.items() if path not in runs).most_common(1)
    executable = Counter(runs.values()).most_common(1)
    usual = plain[0][0] if plain else 0o644, executable[0][0] if executable else 0o755
    return FolderMetadata(
        left_out=tuple(sorted(stored.left_out)),
        torn=tuple(sorted(stored.torn)),
        absent=tuple(spell(path) for path in sorted(found.absent)),
        nested=tuple(NestedRepository(spell(nested.path), nested.head) for nested in found.nested),
        notes=tuple(found.notes),
        plain=usual[0],
        executable=usual[1],
        modes={spell(path): mode for path, mode in sorted(found.modes.items()) if mode not in usual},
    )


def write_commit(
    git: Git, tree: str, about: FolderMetadata, staged: dict[str, str], found: Survey, header: Header
) -> Snapshot:
    """The commit and its ref; the snapshot that is there already if nothing has changed since."""
    ref = ref_name(header.task, header.attempt)
    header = msgspec.structs.replace(header, base=found.head)
    text = msgspec.json.encode(about, order="sorted")
    before = git.commit_at(ref)
    while True:
        if before is not None:
            earlier = read_header(git, before)
            if earlier is not None and earlier.base == header.base and _same(git, before, earlier, tree, text, staged):
                return commit_to_snapshot(git, ref, before, earlier, about)
        commit, made = _write_commit(git, tree, text, staged, found, msgspec.structs.replace(header, previous=before))
        try:
            # Only over what was seen: of two snapshots of one attempt at once, the second stands on the first.
            git.run("update-ref", ref, commit, before or "0" * len(commit))
        except GitFailed:
            if (now := git.commit_at(ref)) == before:
                raise
            before = now
        else:
            return commit_to_snapshot(git, ref, commit, made, about)


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


# Taking a snapshot: of a repository into its own objects, of any other folder into a folder of ours.
#
# When git cannot do it at all (it hangs, its folder cannot be written, the repository is broken), the work is copied as
# a folder would be: what the survey found if there was one, everything otherwise, whether or not the attempt has
# touched it: what nobody had committed may be nowhere else. `notes` says so. Losing it is the only thing not done.

LIMITS = SnapshotLimits()


def take(  # noqa: PLR0913 - all but three are keywords, for callers with wishes
    folder: str | os.PathLike[str],
    task: str,
    attempt: int,
    *,
    reason: str,
    limits: SnapshotLimits = LIMITS,
    clock: Clock | None = None,
    since: int | None = None,
    home: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Snapshot:
    """Keep everything in `folder` that git does not ignore, untracked files too, without changing anything there.

    In a repository the whole working tree is taken, wherever in it `folder` is. Elsewhere
    only what has changed after the moment `since` (wall clock, ms) is copied, into the folder of ours `home`, by
    default the nearest `.allswell` upward. If nothing has changed since the last snapshot of this attempt, that one is
    returned. It blocks, at most for `limits.timeout` and a few calls of git.
    """
    clock = clock or SystemClock()
    limits.validated()
    ref_name(task, attempt)
    place = _folder(folder)
    reason = reason.encode("utf-8", "backslashreplace").decode()
    late = _deadline(clock, limits.timeout)
    order = SnapshotOrder(task, attempt, reason, clock.wall(), limits, late, _home(place, home), since)
    order = msgspec.structs.replace(order, progress=progress or Progress())
    top = find_top(place)
    if top is None:
        return take_folder(place, order)
    found = Survey()
    try:
        return _into_git(top, order, found)
    except (GitFailed, OSError) as failed:
        order = msgspec.structs.replace(order, late=_deadline(clock, limits.timeout), everything=True)
        only = [*found.to_read, *found.clean] if found.looked else None
        said = failed.message if isinstance(failed, GitFailed) else str(failed)
        order.progress.failed = said if found.looked else ""
        notes = [f"copied without git: {said}", *found.notes]
        if found.looked:
            notes.append("what git has unchanged was not copied")
        return take_folder(top, order, only=only, left_out=found.left_out, notes=tuple(notes))


def _into_git(top: Path, order: SnapshotOrder, found: Survey) -> Snapshot:
    header = Header(order.task, order.attempt, order.reason, order.now, spell(os.fsencode(top)), "")
    limits, late = order.limits, order.late
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with git_of(top, limits.git_timeout) as git:
            survey(git, opened, found, late)
            if order.progress.failed:
                raise GitFailed(order.progress.failed)
            staged = write_staged(git, found)
            stored = store_files(git, opened, found, limits, late, order.progress)
            tree = write_tree(git, found, stored)
            return write_commit(git, tree, particulars(found, stored), staged, found, header)
    finally:
        os.close(opened)


def _folder(folder: str | os.PathLike[str]) -> Path:
    place = Path(folder)
    if not place.is_dir():
        raise Refused("no_folder", f"{folder} is not a folder, so there is nothing to keep", where="folder")
    return place.resolve()


def _home(folder: Path, home: str | os.PathLike[str] | None) -> Path:
    return home_of(folder) if home is None else Path(home).absolute()


def _deadline(clock: Clock, timeout: int) -> Callable[[], bool]:
    end = clock.monotonic() + timeout
    return lambda: clock.monotonic() >= end


# Which snapshots there are.


def list_snapshots(folder: str | os.PathLike[str], *, home: str | os.PathLike[str] | None = None) -> list[Snapshot]:
    """Every snapshot of a repository or folder that is the newest of its attempt, oldest first."""
    place = Path(folder).resolve()
    top = find_top(place)
    there = top or place
    # Beside the work itself is where earlier versions put them.
    homes = dict.fromkeys((home_of(there) if home is None else Path(home).absolute(), there / OURS))
    found = [snapshot for one in homes for snapshot in _listed_in_folder(there, one)]
    if top is not None:
        found += _in_git(top)
    return sorted(found, key=lambda snapshot: (snapshot.taken_at, snapshot.name))


def _in_git(top: Path) -> list[Snapshot]:
    found = []
    with git_of(top, LIMITS.git_timeout) as git:
        for line in git.run("for-each-ref", "--format=%(objectname) %(refname)", REFS + "/").decode().splitlines():
            commit, ref = line.split(" ")
            header = read_header(git, commit)
            if header is not None:
                found.append(commit_to_snapshot(git, ref, commit, header, read_particulars(git, header)))
    return found


def _listed_in_folder(top: Path, home: Path) -> list[Snapshot]:
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
                found.append(manifest_to_snapshot(place, number, made, top))
    return found


# Which files a snapshot has that its base had not, or had differently.


def changed_files(snapshot: Snapshot, since: str | None = None) -> list[Change]:
    """What differs from the snapshot's base, or from the commit `since`; by path."""
    if snapshot.kind == "folder":
        return _changed_in_folder(Path(os.fsdecode(unspell(snapshot.name))))
    objects = unspell(snapshot.repository or "")
    with scratch_folder() as scratch:
        git = Git(objects, timeout=LIMITS.git_timeout, scratch=scratch, git_dir=objects)
        base = since or snapshot.base or git.run("hash-object", "-t", "tree", "--stdin").decode().strip()
        told = git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", base, snapshot.id).split(b"\0")
    pairs = zip(told[::2], told[1::2], strict=False)
    return [Change(how.decode(), spell(path)) for how, path in pairs if can_be_kept(path)]


def _changed_in_folder(place: Path) -> list[Change]:
    return sorted((Change("A", one.path) for one in load(place).files if one.kept), key=lambda change: change.path)
