"""Git as Allswell calls it, the one way: under a configuration of our own, so that nothing of a repository's ever runs.

It is bounded, and is given a git folder of ours in place of the repository's (`make_own_folder`, repository.py). What
does need the repository's own programs (a checkout, a commit on a task's branch) is not done here: it runs inside the
attempt, as the agent's own commands do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import os
import pwd
import re
import select
import selectors
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from allswell.errors import Unavailable
from allswell.runtime.workspace.files import User, parent_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# Where a working tree is and which commit it stands on, read without git: asked before every attempt.

# A git folder of ours that stands in for a repository's: its objects and refs, and not its configuration.
#
# A repository's configuration names programs (filters, hooks, fsmonitor, external diffs, signers, helpers), an agent
# may write it at any moment, and what is looked up and switched off before a call can be written again during it. So
# git never reads it: it is given a folder made by us, with a configuration of three lines, in which objects, refs and
# rules of what is ignored are links to the repository's. `.gitattributes` may name a filter as it likes: none is
# defined.
#
# Linked are only things that git reads as data. What is not linked does not exist for it: config, config.worktree,
# hooks, modules, logs.

_SHARED = (b"objects", b"refs", b"packed-refs", b"reftable", b"shallow")
_HEAD = re.compile(rb"(ref: refs/[^\0-\x20\x7f]+|[0-9a-f]{40}|[0-9a-f]{64})")
_SMALL = 64 * 1024
"""Bytes; no file that says where something is has more."""

KEPT = ("extensions.objectformat", "extensions.refstorage", "core.excludesfile")
"""What is taken over of a repository's configuration: how it is stored, and where more rules of what is ignored are."""


def read_small(path: bytes, most: int = _SMALL, *, inside: int | None = None) -> bytes | None:
    """What a small file says; None if it is missing, too big, or no file: nothing here waits for a FIFO.

    Of an open folder that it is `inside`, no link is followed.
    """
    follow = 0 if inside is None else os.O_NOFOLLOW
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow, dir_fd=inside)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        said = os.read(opened, most + 1)
        return said if len(said) <= most else None
    except OSError:
        return None
    finally:
        os.close(opened)


def git_dir_of(top: bytes) -> bytes:
    """The git folder of a working tree: `.git`, or where the file of that name points to."""
    own = os.path.join(top, b".git")
    said = read_small(own)
    if said is None or not said.startswith(b"gitdir:") or b"\0" in said:
        return own
    return os.path.join(top, said.removeprefix(b"gitdir:").strip())


def common_dir_of(git_dir: bytes) -> bytes:
    """What a linked worktree's git folder shares with its main one."""
    said = read_small(os.path.join(git_dir, b"commondir"))
    return git_dir if said is None or b"\0" in said else os.path.normpath(os.path.join(git_dir, said.strip()))


def head_text(git_dir: bytes) -> bytes | None:
    """What HEAD says, if it is what git would write there."""
    path = os.path.join(git_dir, b"HEAD")
    try:
        said = b"ref: " + os.readlink(path)
    except OSError:
        said = (read_small(path) or b"").rstrip()
    return said if _HEAD.fullmatch(said) else None


def make_own_folder(
    place: Path, git_dir: bytes, common_dir: bytes, kept: Mapping[str, str], head: bytes, *, rules: bool = True
) -> None:
    """Make the folder that git is given, at `place`, which is not there yet; with the `rules` of what is ignored."""
    place.mkdir(mode=0o755)
    (place / "HEAD").write_bytes(head + b"\n")
    (place / "config").write_text(_config(kept), encoding="utf-8", errors="surrogateescape")
    there = os.fsencode(place)
    for name in _SHARED:
        _link(common_dir, there, name)
    (place / "info").mkdir(mode=0o755)
    if not rules:
        return
    for name in (b"exclude", b"attributes"):
        _link(os.path.join(common_dir, b"info"), os.path.join(there, b"info"), name)
    _link(os.path.join(git_dir, b"info"), os.path.join(there, b"info"), b"sparse-checkout")
    for name in _parts_of_the_index(git_dir):
        _link(git_dir, there, name)


def _link(source: bytes, place: bytes, name: bytes) -> None:
    if name in (b"objects", b"refs", b"packed-refs") or os.path.lexists(os.path.join(source, name)):
        os.symlink(os.path.join(source, name), os.path.join(place, name))


def _parts_of_the_index(git_dir: bytes) -> list[bytes]:
    """The shared part of a split index is looked for beside HEAD."""
    try:
        return [name for name in os.listdir(git_dir) if name.startswith(b"sharedindex.")]
    except OSError:
        return []


def _config(kept: Mapping[str, str]) -> str:
    """Format 1, so that git obeys the extensions; of those only what says how things are stored."""
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    if "core.excludesfile" in kept:
        lines.append(f"\texcludesFile = {_quoted(kept['core.excludesfile'])}")
    extensions = [(key.partition(".")[2], kept[key]) for key in KEPT[:2] if key in kept]
    if extensions:
        lines += ["[extensions]", *(f"\t{name} = {_quoted(value)}" for name, value in extensions)]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'


_OURS = ".allswell"
_REF = b"ref: "
_BRANCH = b"ref: refs/heads/"
_COMMIT = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_SAFE_SECONDS = 15
_PACKED = 64 << 20
"""Bytes; a file of packed refs that has more is git's to read."""


def find_top(folder: Path) -> Path | None:
    """The top of the working tree that a folder lies in, found upward by its `.git`.

    Not beyond a folder of ours: what lies in one is no part of the working tree around it. A task's worktree there may
    have lost its own `.git`. An empty folder of that name is no repository, as for git: sandboxes leave some behind, in
    /tmp too, and all that lies around would be taken for the agent's. Nor is one found whose repository another user
    has put there (`is_usable`).
    """
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git") and not _is_empty_folder(top / ".git"):
            return top if is_usable(top) else None
        if top.name == _OURS:
            return None
    return None


def _is_empty_folder(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return not path.is_symlink() and next(entries, None) is None
    except OSError:
        return False


def is_usable(top: Path) -> bool:
    """Whether the repository with this working tree is this user's, root's, or named in their git's `safe.directory`.

    In a folder above that is open to others (`/tmp`) another user can put one, who then could read what is kept there,
    and have filters run. Git refuses it too, by itself. Root serves other users in their own folders.
    """
    own = os.fsencode(top / ".git")
    users = set()
    with contextlib.suppress(OSError):
        users.add(os.lstat(own).st_uid)
        users.add(os.stat(os.path.join(os.fsencode(top), git_dir_of(os.fsencode(top)))).st_uid)
    me = os.geteuid()
    return users <= {0, me or top.stat().st_uid} or _is_named_safe(str(top))


@functools.cache
def _is_named_safe(top: str) -> bool:
    """Whether the user's or the machine's git configuration names a repository of another user's as safe."""
    try:
        said = subprocess.run(
            [_program(), "config", "-z", "--type=path", "--get-all", "safe.directory"],
            cwd="/",
            env={name: os.environ[name] for name in _HANDED_ON if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SAFE_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    named: list[str] = []
    for name in os.fsdecode(said.removesuffix(b"\0")).split("\0"):
        named = [*named, name] if name else []  # an empty one takes those before it back
    return any(name in ("*", top) or (name.endswith("/*") and top.startswith(name[:-1])) for name in named)


def head_of(top: Path) -> str | None:
    """The commit that a working tree stands on, read without git, which takes longer; None if that is not plain."""
    own = git_dir_of(os.fsencode(top))
    said = head_text(own)
    if said is None or not said.startswith(_REF):
        return None if said is None else said.decode()
    ref, shared = said.removeprefix(_REF), common_dir_of(own)
    for place in (own, shared):
        found = (read_small(place + b"/" + ref) or b"").strip()
        if found:
            return found.decode("ascii", "replace") if _COMMIT.fullmatch(found) else None
    for line in _packed(shared + b"/packed-refs"):
        commit, _, name = line.partition(b" ")
        if name == ref:
            return commit.decode() if _COMMIT.fullmatch(commit) else None
    return None


def branch_of(top: Path) -> str | None:
    """The branch that a working tree is on, read without git; None if it is on none."""
    said = head_text(git_dir_of(os.fsencode(top)))
    if said is None or not said.startswith(_BRANCH):
        return None
    return said.removeprefix(_BRANCH).decode("utf-8", "backslashreplace")


_REBASED = ("rebase-merge/head-name", "rebase-apply/head-name")
"""Where git notes which branch is being rebased."""


def places_on(common_dir: bytes, branch: str) -> list[Path]:
    """The working trees of a repository in which a branch is checked out, or being rebased: it must not move there."""
    shared = Path(os.fsdecode(common_dir))
    ref = os.fsencode(f"refs/heads/{branch}")
    places = []
    for own in (shared, *shared.glob("worktrees/*")):
        on = head_text(os.fsencode(own)) == _REF + ref
        if on or any((read_small(os.fsencode(own / name)) or b"").strip() == ref for name in _REBASED):
            place = (
                own if own == shared else Path(os.fsdecode((read_small(os.fsencode(own / "gitdir")) or b"").strip()))
            )
            if os.path.lexists(place):  # of one that was removed, the repository has not heard yet
                places.append(place.parent)
    return places


def place_of(folder: Path) -> str:
    """Where a folder is, in words: with the branch that it is on, where it is in a working tree that is on one."""
    top = find_top(folder)
    branch = None if top is None else branch_of(top)
    name = os.fsencode(folder).decode("utf-8", "backslashreplace")
    text = ", ".join([name, *([f"on the branch {branch}"] if branch else [])])
    return "".join(char if char.isprintable() else "?" for char in text)


def _packed(path: bytes) -> list[bytes]:
    return (read_small(path, _PACKED) or b"").splitlines()


# Git as we call it: bounded in time, deaf to the caller's environment, and never running anything of the repository's.
#
# Every call is given a git folder of ours in place of the repository's (`make_own_folder`), and neither the machine's
# nor the user's configuration: an agent may have written either. It has an environment of a handful of variables, may
# not use the network, and is killed with all its children when its time is up. Root does not write into somebody else's
# repository, where objects owned by root would lock the owner out: there git runs as the owner.

OVERRIDES = {
    "safe.directory": "*",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",  # or writing our copy of the index would leave a shared part in the repository
    "core.fileMode": "true",  # executable bits and links are kept as they are on disk
    "core.symlinks": "true",
    "core.quotePath": "false",  # names are shown as they are written
    "core.ignoreCase": "false",  # or an untracked `A.TXT` would be taken for the tracked `a.txt`
    "core.trustctime": "true",
    "core.checkStat": "default",
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.protectNTFS": "false",  # a file named `git~1` is a file like any other
    "core.protectHFS": "false",
    "core.logAllRefUpdates": "false",
    "core.compression": "1",
    "core.bigFileThreshold": "16m",
    "i18n.commitEncoding": "UTF-8",
    "gc.auto": "0",
}
_HANDED_ON = ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "LD_LIBRARY_PATH")
"""Of our own variables: where the user's rules of what is ignored are, and what git may need to run at all."""
_SURROUNDINGS = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TRACE2": "0",  # the user's configuration can have git write its doings to a file or a socket
    "GIT_TRACE2_EVENT": "0",
    "GIT_TRACE2_PERF": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone must not fetch while an agent is being stopped
}
_ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null"}
"""Nothing of the user's configuration; read once, for the rules of what is ignored, it is not read again."""
_KNOWN: dict[tuple[object, ...], dict[str, str]] = {}
"""What was taken over of a configuration, by its files as they were: each attempt asks for it as it begins."""
_KNOWN_MOST = 256
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INDEX_MOST = 256 << 20
"""Bytes of an index: a million files take half of it."""
_ANSWER_MOST = 256 << 20
"""Bytes that one call of git may answer: an agent can make millions of files with long names in seconds, and what is
read is held in the memory of a supervisor that watches others, too."""
_RULES_MOST = 1 << 20
"""Bytes of a file that says what of a sparse checkout is there."""
_PIECE = 1 << 20
_AFTER_KILL = 2.0  # seconds; a process that even SIGKILL does not end (a dead network disk) is abandoned


class GitFailed(Unavailable):
    """Git could not be run, did not answer in time, or refused; `message` is what it said."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files that another owner's git can pass through, and nobody else look into."""
    with tempfile.TemporaryDirectory(prefix="allswell-snapshot-", dir=_passable(), ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)
        corner = place / "git"
        corner.mkdir(mode=0o700)
        try:
            yield corner
        finally:
            place.chmod(0o700)  # or another owner's process might put files there for as long as they are removed


@contextlib.contextmanager
def git_of(top: Path, timeout: int) -> Iterator[Git]:
    """The git of the repository with this working tree, for a few calls of so many milliseconds each."""
    with scratch_folder() as scratch:
        yield Git(os.fsencode(top), timeout=timeout, scratch=scratch)


def _passable() -> str:
    """The temporary folder; root, who may serve another owner, takes /tmp where that one is closed to others."""
    usual = Path(tempfile.gettempdir())
    closed = any(not folder.stat().st_mode & 0o001 for folder in (usual, *usual.parents))
    return "/tmp" if closed and os.geteuid() == 0 else str(usual)  # noqa: S108 (what is made there is 0711, ours)


class Git:
    """One repository's git; what it needs to write down meanwhile is in `scratch`, an empty folder of ours."""

    def __init__(self, top: bytes, *, timeout: int, scratch: Path, git_dir: bytes | None = None) -> None:
        self.top = top
        self.timeout = timeout
        self.scratch = scratch
        self.index = scratch / "index"
        """Used as the index in every call: never the repository's own."""
        self.git_dir = os.path.join(top, git_dir or git_dir_of(top))
        """The repository's own, which git itself is never given; and what it shares with other worktrees."""
        self.common_dir = common_dir_of(self.git_dir)
        self.owner = self._owner_to_serve()
        """The user and group that git runs as; None: as we do."""
        head = head_text(self.git_dir)
        if head is None or not os.path.isdir(os.path.join(self.common_dir, b"objects")):
            raise GitFailed(f"{os.fsdecode(self.git_dir)} is not a git repository, or its HEAD is broken")
        self._head = head
        self._folders = itertools.count()
        self._own = scratch / "repository"
        make_own_folder(self._own, self.git_dir, self.common_dir, self._kept(), head)
        if self.owner is not None:  # at last: from here on any process of the owner's may put links there
            os.chown(self._own, *self.owner)
            os.chown(scratch, *self.owner)

    def _owner_to_serve(self) -> User | None:
        """Root serves the repository's owner, and uses no repository of its own for somebody else's files."""
        try:
            owner = os.stat(self.git_dir)
            if os.geteuid() != 0 or owner.st_uid != 0:
                return (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else None
            if os.stat(self.top).st_uid != 0:
                own = os.lstat(os.path.join(self.top, b".git"))
                if not stat.S_ISDIR(own.st_mode) or own.st_uid != 0:  # no other user can put a folder of root's there
                    raise GitFailed("it leads to a repository of root's, and the files here are another's")
        except OSError as error:
            raise GitFailed(f"{os.fsdecode(self.git_dir)} cannot be looked at: {error.strerror}") from error
        return None

    def let_in(self, folder: Path, *, writes: bool) -> None:
        """Let git read a folder beside the scratch folder, or write to it, whoever it runs as."""
        if self.owner is not None:
            user, group = self.owner
            os.chown(folder, user if writes else -1, group)
            folder.chmod(0o700 if writes else 0o710)  # what is not listed is found by its digest alone

    def copy_index(self, most: int = _INDEX_MOST) -> bool:
        """Copy the repository's index to ours, with its time stamp, by which git knows what is as young; False: none.

        What stands in its place may be anything that whoever works here has put there: only a file of the repository's
        owner is copied, and no link is followed. `GitFailed` for anything else.
        """
        try:
            return self._copy_index(most)
        except OSError as error:
            raise GitFailed(f"the index cannot be copied: {error}") from error

    def _copy_index(self, most: int) -> bool:
        try:
            opened = os.open(os.path.join(self.git_dir, b"index"), _PLAIN)
        except FileNotFoundError:
            return False
        with open(opened, "rb") as there:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode) or (self.owner is not None and status.st_uid != self.owner[0]):
                raise OSError(errno.EPERM, "something else is in its place")
            if status.st_size > most:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            self.index.unlink(missing_ok=True)
            with open(os.open(self.index, os.O_WRONLY | _NEW, 0o644), "wb") as ours:
                left = status.st_size
                while left > 0 and (piece := there.read(min(left, 1 << 20))):
                    left -= ours.write(piece)
                ours.flush()
                os.utime(ours.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
                os.fchmod(ours.fileno(), 0o644)  # git may run as the owner; the folder around it is closed to others
        return True

    def read_scratch(self, name: str) -> bytes:
        """A file that was written in the scratch folder, where any process of the owner's may have put something else.

        `GitFailed` for what is no plain file of ours or the owner's.
        """
        try:
            with open(os.open(self.scratch / name, _PLAIN), "rb") as there:
                status = os.fstat(there.fileno())
                users = {os.geteuid()} if self.owner is None else {os.geteuid(), self.owner[0]}
                plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid in users
                content = there.read(_INDEX_MOST) if plain and status.st_size <= _INDEX_MOST else None
        except OSError as error:
            raise GitFailed(f"{name} cannot be read: {error}") from error
        if content is None:
            raise GitFailed(f"{name} is not what git wrote")
        return content

    def _kept(self) -> dict[str, str]:
        """The few values of the repository's configuration that are obeyed; to read them runs nothing."""
        files = _configuration(self.common_dir, self._environment())
        known = _KNOWN.get(files)
        if known is not None:
            return known
        found = self._read_kept()
        if found is None:  # a configuration that git cannot read is as good as none
            return {}
        if len(_KNOWN) >= _KNOWN_MOST:
            _KNOWN.clear()
        _KNOWN[files] = found
        return found

    def _read_kept(self) -> dict[str, str] | None:
        asked = "^(" + "|".join(key.replace(".", r"\.") for key in KEPT) + ")$"
        question: list[str | bytes] = [
            b"--git-dir=" + self.common_dir,
            "config",
            "-z",
            "--type=path",
            "--get-regexp",
            asked,
        ]
        try:
            listed, _ = self._answer(question, b"", (0, 1), {})
        except GitFailed:
            return None
        pairs = (os.fsdecode(line).partition("\n") for line in listed.split(b"\0") if line)
        return {key: value for key, _, value in pairs}

    def _environment(self) -> dict[str, str]:
        env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        env["PATH"] = _absolute_path()
        if self.owner is not None:  # whose rules of what is ignored hold; git gives up on a home it may not enter
            env["HOME"] = _home_of(self.owner[0])
            env.pop("XDG_CONFIG_HOME", None)
        env |= _SURROUNDINGS
        env["GIT_INDEX_FILE"] = str(self.index)
        env["GIT_CONFIG_COUNT"] = str(len(OVERRIDES))
        for number, (key, value) in enumerate(OVERRIDES.items()):
            env[f"GIT_CONFIG_KEY_{number}"] = key
            env[f"GIT_CONFIG_VALUE_{number}"] = value
        return env

    def _start(
        self,
        arguments: Sequence[str | bytes],
        stdin: int | IO[bytes],
        stdout: int,
        stderr: int | IO[bytes],
        extra: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        user, group = self.owner or (None, None)
        try:
            return subprocess.Popen(
                [_program(), *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self.top,
                env={**self._environment(), **extra},
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
        except OSError as error:
            raise GitFailed(f"git cannot be started in {os.fsdecode(self.top)}: {error}") from error

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        good: Sequence[int] = (0,),
        extra: dict[str, str] | None = None,
    ) -> bytes:
        """What one call of git answers; `GitFailed` when it does not end in time or ends badly."""
        return self.ask(*arguments, stdin=stdin, good=good, extra=extra)[0]

    def ask(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        good: Sequence[int] = (0,),
        extra: dict[str, str] | None = None,
    ) -> tuple[bytes, list[str]]:
        """What one call of git answers, and the lines it complained with."""
        return self._answer(self._on_own_folder(arguments), stdin, good, {**_ALONE, **(extra or {})})

    def commit_at(self, name: str) -> str | None:
        """The commit that a name stands for; None if there is none."""
        return self.run("rev-parse", "-q", "--verify", name + "^{commit}", good=(0, 1, 128)).decode().strip() or None

    def is_part_of(self, commit: str, other: str) -> bool:
        """Whether a commit is part of another one's history."""
        return self.run("merge-base", commit, other, good=(0, 1)).decode().strip() == commit

    def administer(self, *arguments: str | bytes, place: Path | None = None, good: Sequence[int] = (0,)) -> Path:
        """A call for the making of a worktree, on a git folder of ours, which is made if need be: where that is.

        The repository's own is not given to it: as root it would copy what a link there leads to (sparse-checkout), and
        from git 2.54 on run what its configuration names as hooks, wherever `core.hooksPath` leads. The folder is new,
        and lies where the repository's owner cannot write: as root, this works in folders of root's.
        """
        if place is None:
            place = self.scratch.parent / f"worktree{next(self._folders)}"
            make_own_folder(place, self.git_dir, self.common_dir, self._kept(), self._head, rules=False)
        served, self.owner = self.owner, None
        try:
            self._answer([b"--git-dir=" + os.fsencode(place), *arguments], b"", good, _ALONE)
        finally:
            self.owner = served
        return place

    def open_shared(self) -> int:
        """The folder that all worktrees share, open; `GitFailed` where it is not the owner's who is served."""
        return self._open(self.common_dir)

    def read_rules(self, path: bytes) -> bytes | None:
        """A file of the repository's that git would copy for a new worktree; None if it is missing, large or a link."""
        opened = self._open(self.git_dir)
        try:
            with parent_of(path, opened) as (inside, name), open(os.open(name, _PLAIN, dir_fd=inside), "rb") as there:
                status = os.fstat(there.fileno())
                if stat.S_ISREG(status.st_mode) and self._is_served(status) and status.st_nlink == 1:
                    content = there.read(_RULES_MOST + 1)
                    return content if len(content) <= _RULES_MOST else None
        except OSError:
            pass
        finally:
            os.close(opened)
        return None

    def _open(self, folder: bytes) -> int:
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise GitFailed(f"{os.fsdecode(folder)} cannot be opened: {error.strerror}") from error
        if not self._is_served(os.fstat(opened)):
            os.close(opened)
            raise GitFailed(f"{os.fsdecode(folder)} belongs to another user than the repository")
        return opened

    def _is_served(self, status: os.stat_result) -> bool:
        return self.owner is None or status.st_uid == self.owner[0]

    def _on_own_folder(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        own = b"--git-dir=" + os.fsencode(self._own)
        return [own, b"--work-tree=" + self.top, "--literal-pathspecs", *arguments]

    def _answer(
        self, arguments: Sequence[str | bytes], stdin: bytes, good: Sequence[int], extra: Mapping[str, str]
    ) -> tuple[bytes, list[str]]:
        pipe = subprocess.PIPE
        process = self._start(arguments, pipe, pipe, pipe, extra)
        try:
            out, said = _talk(process, stdin, self.timeout / 1_000)
        except TimeoutError as error:
            raise GitFailed(f"git {_verb(arguments)} did not answer within {self.timeout} ms and was killed") from error
        except OverflowError as error:
            raise GitFailed(f"git {_verb(arguments)} had more than {_ANSWER_MOST >> 20} MB to say") from error
        finally:
            end(process)
        complaints = said.decode("utf-8", "backslashreplace").splitlines()
        if process.returncode not in good:
            words = "; ".join(complaints[-3:]) or f"exit status {process.returncode}"
            raise GitFailed(f"git {_verb(arguments)} failed: {words}")
        return out, complaints

    @contextlib.contextmanager
    def feed(self, *arguments: str | bytes, time: int, extra: Mapping[str, str] | None = None) -> Iterator[IO[bytes]]:
        """A call of git that is written to bit by bit, and killed when it is not over within `time` milliseconds."""
        late = threading.Event()
        with tempfile.TemporaryFile() as said:
            around = {**_ALONE, **(extra or {})}
            process = self._start(self._on_own_folder(arguments), subprocess.PIPE, subprocess.DEVNULL, said, around)

            def give_up() -> None:
                late.set()
                _kill(process)

            timer = threading.Timer(time / 1_000, give_up)
            timer.daemon = True
            timer.start()
            try:
                if process.stdin is not None:
                    yield process.stdin
                    process.stdin.close()
                process.wait(time / 1_000 + _AFTER_KILL)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass  # how the process ended says more
            finally:
                timer.cancel()
                end(process)
            if late.is_set():
                raise GitFailed(f"git {_verb(arguments)} was not done within {time} ms and was killed")
            if process.returncode != 0:
                said.seek(0)
                words = said.read(4_000).decode("utf-8", "backslashreplace").strip()
                raise GitFailed(f"git {_verb(arguments)} failed: {words or f'exit status {process.returncode}'}")

    @contextlib.contextmanager
    def listen(self, *arguments: str | bytes, stdin: IO[bytes]) -> Iterator[IO[bytes]]:
        """A call of git that is read from bit by bit, and killed when it is silent for longer than a call may take."""
        process = self._start(self._on_own_folder(arguments), stdin, subprocess.PIPE, subprocess.DEVNULL, _ALONE)
        try:
            if process.stdout is not None:
                yield io.BufferedReader(_TimedPipe(process.stdout, self.timeout), 1 << 16)
        finally:
            end(process)


def _talk(process: subprocess.Popen[bytes], stdin: bytes, seconds: float) -> tuple[bytes, bytes]:
    """Write the input of a process, and read its output and its errors, until it has ended.

    As `Popen.communicate`, but bounded: `TimeoutError` after so many seconds, also while it still answers, and
    `OverflowError` where it answers more than is read. The caller then ends the process.
    """
    end, left = time.monotonic() + seconds, memoryview(stdin)
    texts: dict[object, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for pipe, event in ((process.stdin, selectors.EVENT_WRITE), *((one, selectors.EVENT_READ) for one in texts)):
            waiting.register(pipe, event)  # type: ignore[arg-type]  # all three are pipes
        while waiting.get_map():
            rest = end - time.monotonic()
            ready = waiting.select(rest) if rest > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BrokenPipeError):
                        left = left[os.write(key.fd, left[: select.PIPE_BUF]) :] if left else left
                        if left:
                            continue
                elif piece := os.read(key.fd, _PIECE):
                    texts[key.fileobj] += piece
                    if len(texts[key.fileobj]) > _ANSWER_MOST:
                        raise OverflowError
                    continue
                waiting.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    try:
        process.wait(max(end - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return bytes(texts[process.stdout]), bytes(texts[process.stderr])


class _TimedPipe(io.RawIOBase):
    """The end of a pipe that is waited for so long and no longer."""

    def __init__(self, pipe: IO[bytes], timeout: int) -> None:
        super().__init__()
        self._pipe = pipe
        self._timeout = timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        ready, _, _ = select.select([self._pipe], [], [], self._timeout / 1_000)
        if not ready:
            raise GitFailed(f"git gave nothing for {self._timeout} ms and was killed")
        return os.readv(self._pipe.fileno(), [buffer])


def _home_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        return "/nonexistent"


def _verb(arguments: Sequence[str | bytes]) -> str:
    return next(word for word in map(os.fsdecode, arguments) if not word.startswith("-"))


def _configuration(common_dir: bytes, env: Mapping[str, str]) -> tuple[object, ...]:
    """The files that a configuration is read from, as they are now."""
    home = env.get("HOME", "/nonexistent")
    own = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    found: list[object] = [common_dir, home, own]
    for path in (os.path.join(common_dir, b"config"), f"{home}/.gitconfig", f"{own}/git/config"):
        try:
            seen = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
    return tuple(found)


def _absolute_path() -> str:
    """Where programs are found; without what would be looked for in the folder that git is called in."""
    return os.pathsep.join(part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(part))


def _program() -> str:
    return shutil.which("git", path=_absolute_path()) or "git"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes]) -> None:
    """The process is over, its children too, and its pipes are closed."""
    if process.returncode is None:
        _kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_AFTER_KILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
