"""A worktree for one task: a checkout of its own, on a branch of its own, beside the store.

It is made without files, by git as the supervisor calls it: nothing of the repository's runs. The files are put into it
inside the attempt (`check_out`), and what an agent leaves uncommitted at a good end is committed there as well
(`commit_rest`), because only there may the repository's filters run. No hook runs, and nothing is signed.

It is ours only as long as it and the repository say the same of each other: its `.git` names a folder of the
repository's, and that folder names it. Git is told both by name. A worktree whose `.git` an agent has removed lies in
the repository around it, and must not be taken for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from allswell.domain.agents.fleet import as_agent
from allswell.domain.agents.handover import BaseMoved
from allswell.domain.receipts.receipt import Branch, Change
from allswell.domain.receipts.snapshot import OBJECT, spell
from allswell.errors import Refused, Unavailable
from allswell.runtime.calls import in_time
from allswell.runtime.process import KEEPER, Handle, ProcessResult, WardenCommand, find_program
from allswell.runtime.workspace.files import (
    FOLDER,
    NEW,
    check_in_place,
    descend,
    own_folder,
    parent_of,
    read_file,
    remove_file,
    remove_tree,
    replace_file,
    write_all,
    write_file,
)
from allswell.runtime.workspace.git import (
    Git,
    GitFailed,
    common_dir_of,
    find_top,
    git_dir_of,
    git_of,
    head_of,
    head_text,
    places_on,
    read_small,
)

# Short commands of ours inside an attempt: under a reaper, with the environment of the agent, bounded in time.
#
# What needs the programs that a repository names (the filters of LFS, for example) is run so and in no other way: they
# get what the agent gets, and can do what it could do anyway. The supervisor itself runs none of them.

K = TypeVar("K")
_GRACE = 2_000
_BEYOND = 5.0
"""Seconds after its end is ordered in which a command must be over."""
_OUTPUT = 64 << 20
_LINES = 3
LEADS_ELSEWHERE = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"),
    )
)
"""Variables that lead git to another repository or index: a hook and an alias of git's are given some of them."""


@dataclass(frozen=True)
class SandboxedCommands:
    """Where such commands run, with which variables, and how long each may take, in milliseconds."""

    cwd: str
    env: Mapping[str, str]
    limit: int
    agent: tuple[str, ...] = ()
    """The agent's command; where it begins with `setpriv` or `sudo`, these run as that user too."""

    async def run(self, *argv: str) -> bytes:
        """What a command prints; `Unavailable` with its last lines if it does not end well, or in time."""
        if not KEEPER.running:
            await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            words = as_agent(self.agent, argv)
            env = {name: value for name, value in self.env.items() if name not in LEADS_ELSEWHERE}
            command = WardenCommand(
                argv=words,
                path=find_program(words[0], self.cwd, self.env),
                cwd=self.cwd,
                env={**env, "PWD": self.cwd, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
                stdout=out.fileno(),
                stderr=err.fileno(),
                cap=_OUTPUT,
                grace_ms=_GRACE,
            )
            result = await self._ended(command, argv)
            if not result.ok:
                said = os.pread(err.fileno(), 4_000, 0).decode("utf-8", "backslashreplace").strip().splitlines()
                why = "; ".join(said[-_LINES:]) or f"{result.ending.value}, exit code {result.exit_code}"
                raise Unavailable(f"{argv[0]} {_verb(argv)} did not end well: {why}")
            if result.stdout.left_out:
                raise Unavailable(f"{argv[0]} {_verb(argv)} printed more than {_OUTPUT >> 20} MB")
            return os.pread(out.fileno(), _OUTPUT, 0)

    async def _ended(self, command: WardenCommand, argv: tuple[str, ...]) -> ProcessResult:
        with Handle(command) as handle:
            try:
                async with asyncio.timeout(self.limit / 1_000):
                    return await handle.ended()
            except TimeoutError:
                await handle.end(_GRACE, beyond=_BEYOND)
                told = f"{argv[0]} {_verb(argv)} was not over after {self.limit // 1_000} s and was ended"
                raise Unavailable(told) from None


def _verb(argv: tuple[str, ...]) -> str:
    """The word that says what a call of git does: the first that is no option, nor an option's value."""
    words = iter(argv[1:])
    for word in words:
        if word == "-c":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


_HOOKS = (
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit", "post-merge"),
    *("post-checkout", "post-rewrite", "post-index-change", "reference-transaction", "pre-auto-gc"),
)
QUIET = tuple(
    word
    for setting in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "commit.gpgSign=false",
        "gc.auto=0",
        "maintenance.auto=false",
        "advice.addEmbeddedRepo=false",
        "submodule.recurse=false",
        # Hooks can also be named in a configuration; from git 2.55 on, all those of an event can be disabled.
        *(f"hook.{event}.enabled=false" for event in _HOOKS),
    )
    for word in ("-c", setting)
)
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none")
_CONFLICTS = ("DD", "AU", "UD", "UA", "DU", "AA", "UU")
_MERGE = (
    *("merge", "--no-ff", "--commit", "--no-squash", "--no-edit", "--no-verify", "--no-verify-signatures"),
    *("--no-autostash", "--no-rerere-autoupdate", "--quiet"),
)
"""A merge commit and nothing else, whatever the configuration says of merges."""
_MERGING, _BEGUN, _RESOLVING = "merging", "begun", "resolving"
"""How far a worktree is with the work of its task's needs, as the note beside it says."""
_REPOSITORY = b"160000 "
"""How an index entry for a repository inside begins; the entry holds the name of a commit and no files."""
_INSIDE = "??"
"""The state under which a repository inside is listed: no commit can hold it."""
_PATHS_AT_ONCE = 500
"""Paths that one call of git is given."""
_CONFLICTS_TOLD = 5
_WITH_MARKS = ("UU", "AA")
"""Conflicts that git leaves in the file, between marks; of the others, and of binary files, only `git add` tells."""
_MARKS = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)", re.MULTILINE)
_RESOLVED_MOST = 16 << 20
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
GIT_LIMIT = 60_000
"""Milliseconds that one call of git may take."""
_HEADS = "ref: refs/heads/"
_NAME = 200
"""Bytes; a file with a commit's name has no more."""
_OURS = {"user.name": "Allswell", "user.email": "allswell@localhost"}


async def in_worktree(work: Callable[[], K]) -> K:
    """What a look into a worktree shows, or a change to it, in a thread; `Unavailable` where that does not answer."""
    return await in_time(work, 2 * GIT_LIMIT / 1_000, "the worktree")


@dataclass(frozen=True)
class LeftoverWork:
    """What stands in a worktree that is not committed: paths by how git tells them."""

    paths: dict[str, str]
    head: str
    """What HEAD says: `ref: refs/heads/…`, or a commit."""

    @property
    def repositories(self) -> list[str]:
        """Those inside it, which no commit can hold."""
        return [path for path in self.paths if path.endswith("/")]

    @property
    def conflicts(self) -> bool:
        """Whether a merge is unfinished: to commit it would commit its marks."""
        return any(how in _CONFLICTS for how in self.paths.values())


@dataclass(frozen=True)
class MergeConflict:
    """Why a commit cannot be merged."""

    message: str
    """What git says."""
    files: Sequence[str]
    """Where the two sides contradict each other; spelled."""

    def __str__(self) -> str:
        if not self.files:
            return self.message
        more = len(self.files) - _CONFLICTS_TOLD
        named = ", ".join(self.files[:_CONFLICTS_TOLD])
        return f"conflicts in {named} and {more} more" if more > 0 else f"conflicts in {named}"


class Worktree:
    """A worktree that was made for a task."""

    def __init__(self, top: Path, path: Path, branch: str) -> None:
        self.path = path
        self.branch = branch
        self.top = top
        """The working tree that it was made of."""
        self._base = path.with_name(path.name + ".base")
        self._needs = path.with_name(path.name + ".needs")

    @property
    def base(self) -> str | None:
        """The commit that its branch began at."""
        try:
            said = read_file(self._base, _NAME).decode("ascii", "replace").strip()
        except OSError:
            return None
        return said if re.match(OBJECT, said) else None  # it becomes an argument of git's

    def inside(self, folder: Path) -> Path:
        """Where a folder of the repository is in the worktree; its top, if the folder is not there."""
        place = self.path / folder.resolve().relative_to(self.top)
        return place if place.is_dir() else self.path

    def errands(self, env: Mapping[str, str], *, agent: Sequence[str] = (), limit: int = 300_000) -> SandboxedCommands:
        """What runs commands in it, with the variables and as the user of an agent, each for so many ms at most."""
        return SandboxedCommands(str(self.path), env, limit, tuple(agent))

    def own_git_dir(self) -> Path:
        """Its folder in the repository; `Unavailable` if the two do not say the same of each other."""
        own = git_dir_of(os.fsencode(self.path))
        shared = os.path.realpath(common_dir_of(git_dir_of(os.fsencode(self.top))))
        back = Path(os.fsdecode(own), os.fsdecode(read_small(own + b"/gitdir") or b"").strip())
        if os.path.realpath(common_dir_of(own)) != shared or back.resolve() != (self.path / ".git").resolve():
            raise Unavailable(f"{self.path} is not the worktree of {self.top} that was made there")
        return Path(os.fsdecode(own))

    # --- inside the attempt: filters may run --------------------------------------------------------------------------

    async def check_out(self, errands: SandboxedCommands) -> None:
        """Put the files of its commit into it, unless that was done."""

        def is_there() -> bool:
            own = self.own_git_dir()
            found = (own / "index").exists()  # which git writes last: a checkout that was cut off is done again
            if not found:
                (own / "index.lock").unlink(missing_ok=True)
            return found

        if not await in_worktree(is_there):
            await self.run(errands, "reset", "--hard", "-q")

    async def run(self, errands: SandboxedCommands, *words: str) -> bytes:
        """What a call of git in it answers; `Unavailable` if it does not end well."""
        return await errands.run(*self._git(await in_worktree(self.own_git_dir)), *words)

    async def left(self, errands: SandboxedCommands) -> LeftoverWork:
        """What is not committed, or committed in a submodule and nowhere else."""
        own = await in_worktree(self._unlock)
        await self._uncover(errands)
        said = (await self.run(errands, *_STATUS)).decode("utf-8", "surrogateescape")
        paths = {line[3:]: line[:2] for line in said.split("\0") if line}
        for name in await self._submodules(errands, own):
            paths.pop(name, None)
            paths[f"{name}/"] = _INSIDE
        head = await in_worktree(lambda: (head_text(os.fsencode(own)) or b"").decode("utf-8", "replace"))
        return LeftoverWork(paths, head)

    async def commit_rest(self, errands: SandboxedCommands, message: str) -> LeftoverWork:
        """Commit on its branch what is not committed, as far as that can be; what is left then.

        An agent that has gone to another branch, or is amid a merge or a rebase, has left what only a person can judge:
        that stays as it is. One that was to resolve a conflict has done so once its marks are gone.
        """
        found = await self.left(errands)
        inside = found.repositories
        if found.head != _HEADS + self.branch or len(inside) == len(found.paths):
            return found
        if found.conflicts and not (self._note() == _RESOLVING and await in_worktree(lambda: self._is_resolved(found))):
            return found
        git = self._git(await in_worktree(self._unlock))
        but = [f":(exclude,literal){path.rstrip('/')}" for path in inside]
        with contextlib.suppress(Unavailable):  # a file that cannot be read costs that file, and is told as left
            await errands.run(*git, "add", "-A", "--ignore-errors", "--", ".", *but)
        if (await errands.run(*git, "diff", "--cached", "--name-only", "--no-ext-diff", "-z")).strip(b"\0"):
            identity = await self._identity(errands, git)
            await errands.run(*git, *identity, "commit", "-q", "--no-verify", "--no-gpg-sign", "-m", message)
        return await self.left(errands)

    async def _uncover(self, errands: SandboxedCommands) -> None:
        """Have git look at files again that an agent has marked as unchanged, or as not checked out and yet there.

        Of an index that is too long to be listed, they stay marked.
        """
        with contextlib.suppress(Unavailable):
            listed = [one.partition(b" ") for one in (await self.run(errands, "ls-files", "-z", "-v")).split(b"\0")]
            skipped = [os.fsdecode(path) for tag, _, path in listed if tag in (b"S", b"s")]
            there = await in_worktree(lambda: [path for path in skipped if os.path.lexists(self.path / path)])
            for at in range(0, len(there), _PATHS_AT_ONCE):
                await self.run(errands, "update-index", "--no-skip-worktree", "--", *there[at : at + _PATHS_AT_ONCE])
            if any(tag.islower() for tag, _, _ in listed):
                await self.run(errands, "update-index", "-q", "--unmerged", "--ignore-missing", "--really-refresh")

    async def _submodules(self, errands: SandboxedCommands, own: Path) -> list[str]:
        """The names of repositories inside with commits of which none of their remotes is known to have them.

        Submodules lie in the worktree's own part of the repository, and a repository that an agent has made inside, and
        committed as one entry, lies in the worktree's files: they would be removed with it.
        """
        words = ("rev-list", "-n", "1", "--exclude=refs/tags/*", "--all", "HEAD", "--not", "--remotes")
        own = Path(await in_worktree(lambda: os.path.realpath(own)))
        modules = await in_worktree(lambda: _modules(own / "modules"))
        named = {module: str(module.relative_to(own / "modules")) for module in modules}
        inside = await self._repositories(errands, own) | named
        found = []
        for git_dir, name in inside.items():
            try:
                only_here = await errands.run("git", f"--git-dir={git_dir}", *QUIET, *words)
            except Unavailable:  # what cannot be asked is not removed either
                only_here = b"?"
            if only_here:
                found.append(name)
        return found

    def _unlock(self) -> Path:
        """Its folder in the repository, without the lock of an agent that was ended: nobody else works here."""
        own = self.own_git_dir()
        (own / "index.lock").unlink(missing_ok=True)
        return own

    async def _repositories(self, errands: SandboxedCommands, own: Path) -> dict[Path, str]:
        """Where the index has one entry for a repository, and those within it: what is removed with the worktree.

        Of an index that is too long to be listed, none is found.
        """
        inside, pending = dict[Path, str](), [("", own)]
        while pending:
            top, git_dir = pending.pop()
            place = ("git", f"--git-dir={git_dir}", f"--work-tree={self.path / top}", *QUIET)
            try:
                listed = (await errands.run(*place, "ls-files", "-z", "-s")).split(b"\0")
            except Unavailable:
                continue
            entries = {os.fsdecode(one.partition(b"\t")[2]) for one in listed if one.startswith(_REPOSITORY)}
            paths = [os.path.join(top, entry) for entry in sorted(entries)]
            for path, there in await in_worktree(partial(self._git_dirs, own, paths)):
                if there not in (own, *inside):
                    inside[there] = path
                    pending.append((path, there))
        return inside

    def _git_dirs(self, own: Path, paths: Sequence[str]) -> list[tuple[str, Path]]:
        """The git folders of repositories at paths of the worktree, as far as they are removed with it."""
        removed = (os.path.realpath(self.path), own)
        folders = [(path, os.fsdecode(git_dir_of(os.fsencode(self.path / path)))) for path in paths]
        real = [(path, Path(os.path.realpath(folder))) for path, folder in folders]
        return [(path, at) for path, at in real if at.is_dir() and any(at.is_relative_to(top) for top in removed)]

    def _git(self, own: Path) -> tuple[str, ...]:
        # A repository that comes from a disk that knows no case says so on ours as well: `A` would be taken for `a`.
        case = () if os.path.lexists(self.path / ".GIT") else ("-c", "core.ignoreCase=false")
        return ("git", f"--git-dir={own}", f"--work-tree={self.path}", *QUIET, *case)

    async def _identity(self, errands: SandboxedCommands, git: tuple[str, ...]) -> list[str]:
        """Our own name where the repository and its user have set none."""
        listed = (await errands.run(*git, "config", "--list", "-z", "--name-only")).decode("utf-8", "replace")
        known = {name.lower() for name in listed.split("\0")}
        return [word for key, value in _OURS.items() if key not in known for word in ("-c", f"{key}={value}")]

    # --- what other tasks have done (docs/adr/0079) -------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether an agent has begun in it with its needs' work: nothing more is merged into it then."""
        return self._note() in (_BEGUN, _RESOLVING)

    def begin(self, *, resolving: bool = False) -> None:
        """From here on the worktree is its agent's; `resolving`: with a conflict that it is to resolve."""
        replace_file(self._needs, (_RESOLVING if resolving else _BEGUN).encode())

    async def merge(self, errands: SandboxedCommands, commit: str, message: str) -> MergeConflict | None:
        """Merge a commit; what stands in the way of that, which leaves it half merged, or None.

        What it replaces must be committed. A merge that is not finished, however that came, is taken back by `undo`.
        """
        replace_file(self._needs, f"{_MERGING} {commit}".encode())
        try:
            identity = await self._identity(errands, self._git(await in_worktree(self.own_git_dir)))
            await self.run(errands, *identity, *_MERGE, "-m", message, commit)
        except Unavailable as error:
            return MergeConflict(error.message, await self.unmerged(errands))
        return None

    async def unmerged(self, errands: SandboxedCommands) -> list[str]:
        """The files in which a merge has met a conflict."""
        names = await self.run(errands, "diff", "--name-only", "--no-ext-diff", "--diff-filter=U", "-z")
        return [spell(name) for name in names.split(b"\0") if name]

    async def undo(self, errands: SandboxedCommands, to: str = "HEAD") -> None:
        """Go back to a commit from a merge, where one was begun; also by a process that was killed in it.

        Files that it has brought and git does not know of yet are taken away by making them known first.
        """
        state, _, commit = self._note().partition(" ")
        if state != _MERGING or not re.match(OBJECT, commit):
            return
        await in_worktree(self._unlock)
        await self.run(errands, "read-tree", "--reset", "-u", commit)
        await self.run(errands, "reset", "--hard", "-q", to)
        remove_file(self._needs)

    def follow_base(self, commits: Collection[str]) -> None:
        """Have its own work begin behind the merges of these commits with which its branch begins. It blocks."""
        base, head = self.base, head_of(self.path)
        if base is None or head is None or base == head:
            return
        behind = base
        with git_of(self.top, GIT_LIMIT) as git:
            log = git.run("rev-list", "--first-parent", "--parents", "--reverse", f"{base}..{head}").decode()
        for line in log.splitlines():
            commit, *parents = line.split()
            if len(parents) != 2 or parents[0] != behind or parents[1] not in commits:
                break
            behind = commit
        if behind != base:
            replace_file(self._base, f"{behind}\n".encode())

    def has_commits(self, commits: Mapping[K, str]) -> set[K]:
        """The keys of those commits that are part of what stands in it. It blocks."""
        head = head_of(self.path)
        if head is None or not commits:
            return set()
        with git_of(self.top, GIT_LIMIT) as git:
            return {key for key, commit in commits.items() if git.is_part_of(commit, head)}

    def is_behind(self) -> bool:
        """Whether nothing is committed in it, and its repository has checked out what it does not have. It blocks."""
        own, head = head_of(self.path), head_of(self.top)
        if own is None or head is None or own != self.base:
            return False
        with git_of(self.top, GIT_LIMIT) as git:
            return not git.is_part_of(head, own)

    def _is_resolved(self, left: LeftoverWork) -> bool:
        """Whether no file with a conflict has its marks any more; what has none, and what cannot be read, is not."""
        try:
            opened = os.open(self.path, FOLDER)
        except OSError:
            return False
        try:
            return all(
                how in _WITH_MARKS and _has_no_marks(os.fsencode(path), opened)
                for path, how in left.paths.items()
                if how in _CONFLICTS
            )
        finally:
            os.close(opened)

    def _note(self) -> str:
        try:
            return read_file(self._needs, _NAME).decode("ascii", "replace").strip()
        except OSError:
            return ""

    # --- as the supervisor: nothing of the repository's runs ----------------------------------------------------------

    def stands(self, left: LeftoverWork) -> tuple[Branch, list[Change]] | None:
        """Where its work is and what has changed since its beginning; None if nothing has. It blocks."""
        commit = head_of(self.path)
        if commit is None:
            raise Unavailable(f"the commit of {self.path} is not known")
        name = left.head.removeprefix(_HEADS) if left.head.startswith(_HEADS) else ""
        with git_of(self.top, GIT_LIMIT) as git:
            base = self.base or _fork(git, commit)
            tip = git.commit_at(f"refs/heads/{self.branch}")
            if commit == base and not left.paths:  # an agent that went elsewhere may have left its work on the branch
                if tip in {None, base}:
                    return None
                name, commit = self.branch, tip or commit
            said = git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", base, commit).split(b"\0")
        stays = bool(left.paths) or not name
        branch = Branch(
            repository=spell(os.fsencode(self.top)),
            name=name,
            base=base,
            commit=commit,
            worktree=spell(os.fsencode(self.path)) if stays else None,
            uncommitted=len(left.paths),
        )
        return branch, [Change(how.decode(), spell(path)) for how, path in zip(said[::2], said[1::2], strict=False)]

    async def remove_if_unused(self, errands: SandboxedCommands) -> bool:
        """Remove it with its branch if nothing was changed, committed or built in it; whether it was."""
        try:
            left = await self.left(errands)
            built = await self.run(errands, *_STATUS, "--ignored")
            if left.paths or built or await in_worktree(lambda: self.stands(left)) is not None:
                return False
            await in_worktree(lambda: self.remove(with_branch=True))
        except (Unavailable, Refused, OSError):
            return False
        return True

    def remove(self, *, with_branch: bool = False) -> None:
        """Remove it, whatever is in it; its branch stays unless nothing was ever committed there. It blocks."""
        own = self.own_git_dir()
        with git_of(self.top, GIT_LIMIT) as git:
            remove_worktree(git, self.path, own.name)
            if with_branch and self.base is not None:
                git.run("update-ref", "-d", f"refs/heads/{self.branch}", self.base)
        for note in (self._needs, self._base):
            remove_file(note)


def _modules(folder: Path) -> list[Path]:
    """The repositories of submodules, and of those within them, below a folder for them."""
    found = []
    for place, folders, names in os.walk(folder):
        if "HEAD" in names:
            found.append(Path(place))
            folders[:] = [name for name in folders if name == "modules"]
    return found


def _has_no_marks(path: bytes, top: int) -> bool:
    """Whether a file, below an open folder, is text without the marks of a conflict."""
    try:
        with parent_of(path, top) as (inside, name), open(os.open(name, _PLAIN, dir_fd=inside), "rb") as file:
            content = file.read(_RESOLVED_MOST + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"\0"
    except OSError:
        return False
    return len(content) <= _RESOLVED_MOST and b"\0" not in content and _MARKS.search(content) is None


# The branch of a task: `allswell/write-the-parser-7x2k`, after its name and the end of its id.
#
# Two tasks of one name may share that end. So a branch that is there already is this task's only if its worktree is on
# it, if it is noted beside the worktree's place where the branch began, or if a receipt of the task names it. Otherwise
# the branch is called after the whole id. So are branches that were made before they had readable names.

_SLUG = 40
_TAIL = 4
_BRANCH_NAME = re.compile(r"(?!.*(?:\.\.|@\{|//))[^\0-\x20\x7f~^:?*\[\\]{1,200}")


def is_branch_name(name: str) -> bool:
    """Whether what a receipt calls a branch can be one: it becomes a part of an argument of git's."""
    return _BRANCH_NAME.fullmatch(name) is not None


def readable_branch(task: str, title: str) -> str:
    """What a task's branch is called: words of its title, and the end of its id; the whole id where it has no words."""
    words = re.findall("[a-z0-9]+", unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower())
    slug = "-".join(words)
    if len(slug) > _SLUG:
        slug = slug[: _SLUG + 1].rpartition("-")[0] or slug[:_SLUG]
    tail = re.sub("[^a-z0-9]", "", task.lower())[-_TAIL:]
    return f"allswell/{slug}-{tail}" if slug else f"allswell/{task}"


def branch_of(top: Path, path: Path, title: str, is_known: Callable[[str], bool] = lambda _: False) -> str:
    """The branch of the task whose worktree is, or will be, at a path that is named after its id. It blocks.

    `is_known` says whether a receipt of the task names a branch.
    """
    whole, readable = f"allswell/{path.name}", readable_branch(path.name, title)
    if os.path.lexists(path / ".git"):
        with contextlib.suppress(Unavailable, OSError):
            head = (head_text(git_dir_of(os.fsencode(path))) or b"").decode("utf-8", "replace")
            if head.removeprefix(_HEADS) in (whole, readable):
                return head.removeprefix(_HEADS)
    with git_of(top, GIT_LIMIT) as git:
        if git.commit_at(f"refs/heads/{whole}") is not None:
            return whole
        is_free = git.commit_at(f"refs/heads/{readable}") is None
    return readable if is_free or os.path.lexists(f"{path}.base") or is_known(readable) else whole


def make_worktree(
    folder: Path, place: Path, name: str, title: str = "", is_known: Callable[[str], bool] = lambda _: False
) -> Worktree:
    """The worktree `name` of the repository around a folder, below `place`: made at its HEAD if it is not there yet.

    `name` is the task's id; its branch is called after its `title`.
    """
    top = _top_of(folder)
    try:
        tree = Worktree(top, place / name, branch_of(top, place / name, title, is_known))
        with own_folder(place, make=True):  # and not somewhere else, by a link that was planted there
            check_in_place(place)
            if not os.path.lexists(tree.path / ".git"):  # what an earlier attempt left there is worth having
                _add(tree, place / f"{name}.base")
    except (Unavailable, OSError) as error:
        why = error.message if isinstance(error, Unavailable) else str(error)
        raise Refused("no_worktree", f"no worktree could be made of {top}: {why}", where="worktree") from error
    return tree


def make_own_worktree(folder: Path, place: Path, branch: str) -> Worktree:
    """A worktree at a place that its user has named, on a branch that is made where there is none. It blocks."""
    tree = Worktree(_top_of(folder), place, branch)
    if not os.path.lexists(place / ".git"):
        _add(tree, None)
    return tree


def _top_of(folder: Path) -> Path:
    top = find_top(folder.resolve())
    if top is None:
        raise Refused("no_repository", f"{folder} is in no git repository, so it has no worktrees", where="worktree")
    return top


def _add(tree: Worktree, base: Path | None) -> None:
    """Make it, with its branch; the commit that this began at is noted in `base`, where it is one of ours."""
    ref = f"refs/heads/{tree.branch}"
    with git_of(tree.top, GIT_LIMIT) as git:
        head = git.commit_at("HEAD")
        if head is None:
            raise GitFailed("it has no commit yet; make one first")
        # It may be there: of an attempt that ended well, whose supervisor was killed before it could say so.
        there = git.commit_at(ref)
        if there is not None and (used := places_on(git.common_dir, tree.branch)):
            raise GitFailed(f"its branch {tree.branch} is checked out in {used[0]}; go to another branch there")
        if base is not None and (there is None or not base.exists()):  # first: it says whose branch it is
            write_file(base, f"{head if there is None else _fork(git, there)}\n".encode())
        if there is None:
            git.run("update-ref", ref, head, "")
        force = () if base is None else ("--force",)
        add_worktree(git, tree.path, *force, tree.branch)


# Making and removing a worktree: git makes it in a git folder of ours, and what it wrote there is put into the
# repository's by descriptors. Neither the repository's configuration nor a link in it counts for anything.

_WORKTREES = b"worktrees"
_RULES = (b"info/sparse-checkout", b"config.worktree")
"""What git copies for a new worktree."""
_NOT_COPIED = ("core.worktree", "core.bare")
_SAME_NAME = 1_000


def add_worktree(git: Git, path: Path, *words: str) -> None:
    """`git worktree add --no-checkout` with these words, the last of which says what it stands on. It blocks."""
    target = os.fsencode(path)
    place = git.administer("worktree", "add", "--no-checkout", *words[:-1], target, words[-1])
    try:
        (made,) = (place / "worktrees").iterdir()
        for name in _RULES:
            _add_rules(git, place, made, name)
        name = _put_in_place(git, made, target, words)
        folder = os.open(path, FOLDER)
        try:
            os.unlink(".git", dir_fd=folder)
            there = os.path.join(os.path.realpath(git.common_dir), _WORKTREES, name)
            _write_new(b".git", folder, b"gitdir: " + there + b"\n")
        finally:
            os.close(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            remove_tree(path)
        if isinstance(error, OSError):
            raise GitFailed(f"the worktree {path} cannot be put into the repository: {error}") from error
        raise


def remove_worktree(git: Git, path: Path, name: str) -> None:
    """Remove a worktree, whatever is in it, and its folder of that name in the repository. It blocks."""
    try:
        with _places(git) as places:
            folder = descend(places, [os.fsencode(name)])
            try:
                back = Path(os.fsdecode((read_small(b"gitdir", inside=folder) or b"").strip()))
                if back.resolve() != (path / ".git").resolve():
                    raise GitFailed(f"{name} in the repository is not of {path}")
                if _is_locked(folder):
                    raise GitFailed(f"{path} is locked; run: git worktree unlock {path}")
            finally:
                os.close(folder)
            remove_tree(path)
            remove_tree(name, places)
    except OSError as error:
        raise GitFailed(f"the worktree {path} cannot be removed: {error}") from error


@contextlib.contextmanager
def _places(git: Git, *, make: bool = False) -> Iterator[int]:
    """The open folder in which a repository has a folder for each of its worktrees."""
    shared = git.open_shared()
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(_WORKTREES, 0o777, dir_fd=shared)
        places = descend(shared, [_WORKTREES])
        try:
            yield places
        finally:
            os.close(places)
            with contextlib.suppress(OSError):  # it has others
                os.rmdir(_WORKTREES, dir_fd=shared)
    finally:
        os.close(shared)


def _is_locked(folder: int) -> bool:
    try:
        os.stat("locked", dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _add_rules(git: Git, place: Path, made: Path, name: bytes) -> None:
    """What of a sparse checkout is there, as git would copy it."""
    content = git.read_rules(name)
    if content is None:
        return
    path = made / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    if name == b"config.worktree":
        try:
            for key in _NOT_COPIED:
                git.administer("config", "--file", str(path), "--unset-all", key, place=place, good=(0, 5))
        except GitFailed:  # git could not read it either
            path.unlink()


def _put_in_place(git: Git, made: Path, target: bytes, words: Sequence[str]) -> bytes:
    """Copy what git has made into the repository; the name that it has there."""
    with _places(git, make=True) as places:
        _check_free(places, target, words)
        for number in range(_SAME_NAME):
            name = os.fsencode(made.name) + (b"%d" % number if number else b"")
            try:
                os.mkdir(name, 0o777, dir_fd=places)
            except FileExistsError:
                continue
            _copy(made, places, name)
            return name
    raise GitFailed(f"the repository has {_SAME_NAME} worktrees that are called {made.name}")


def _check_free(places: int, target: bytes, words: Sequence[str]) -> None:
    """Forget what is registered for the same place; `GitFailed` where that or the branch is in use."""
    for name in os.listdir(places):
        entry = os.fsencode(name)
        try:
            folder = descend(places, [entry])
        except OSError:
            continue
        try:
            said = (read_small(b"gitdir", inside=folder) or b"").strip()
            if said == os.path.join(target, b".git"):
                if "--force" not in words or _is_locked(folder):
                    raise GitFailed(f"{os.fsdecode(target)} is registered as a worktree already")
                remove_tree(name, places)
            elif "--force" not in words and (read_small(b"HEAD", inside=folder) or b"").strip() == os.fsencode(
                f"{_HEADS}{words[-1]}"
            ):
                raise GitFailed(f"{words[-1]} is checked out at {os.fsdecode(os.path.dirname(said))}")
        finally:
            os.close(folder)


def _copy(source: Path, inside: int, name: bytes) -> None:
    folder = os.open(name, FOLDER, dir_fd=inside)
    try:
        for path in source.iterdir():
            entry = os.fsencode(path.name)
            if path.is_dir():
                os.mkdir(entry, 0o777, dir_fd=folder)
                _copy(path, folder, entry)
            else:
                _write_new(entry, folder, path.read_bytes())
    finally:
        os.close(folder)


def _write_new(name: bytes, folder: int, content: bytes) -> None:
    opened = os.open(name, os.O_WRONLY | NEW, 0o666, dir_fd=folder)
    try:
        write_all(opened, content)
    finally:
        os.close(opened)


def _fork(git: Git, commit: str) -> str:
    """Where a commit's history leaves what is checked out; where they share none, that itself."""
    head = git.commit_at("HEAD") or commit
    return git.run("merge-base", head, commit, good=(0, 1)).decode().strip() or head


def moved_on(path: Path) -> BaseMoved | None:
    """What the repository of a task's worktree has checked out that the worktree has not; None where that is nothing.

    None, too, where there is no worktree, or git cannot say. It blocks.
    """
    if not os.path.lexists(path / ".git"):
        return None
    try:
        shared = os.path.realpath(os.fsdecode(common_dir_of(git_dir_of(os.fsencode(path)))))
        Worktree(top := Path(shared).parent, path, "").own_git_dir()
        own, head = head_of(path), head_of(top)
        if own is None or head is None:
            return None
        with git_of(top, GIT_LIMIT) as git:
            count = int(git.run("rev-list", "--count", f"{own}..{head}"))
        said = (head_text(git_dir_of(os.fsencode(top))) or b"").decode("utf-8", "replace").strip()
    except (Unavailable, Refused, OSError, ValueError):
        return None
    return BaseMoved(said.removeprefix(_HEADS) if said.startswith(_HEADS) else head[:12], count) if count else None


def is_merged(repository: str, commit: str) -> bool | None:
    """Whether a commit is part of what its repository has checked out; None if that cannot be told."""
    top = Path(repository)
    head = head_of(top)
    if head is None:
        return None
    try:
        with git_of(top, GIT_LIMIT) as git:
            return git.is_part_of(commit, head)
    except GitFailed:
        return None
