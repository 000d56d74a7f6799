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
import tempfile
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allswell.domain.agents.fleet import as_agent
from allswell.domain.receipts.receipt import Branch, Change
from allswell.domain.receipts.snapshot import OBJECT, can_be_kept, spell
from allswell.errors import Refused, Unavailable
from allswell.runtime.process import KEEPER, ProcessResult, WardenCommand, begin, find_program
from allswell.runtime.workspace.files import check_in_place, own_folder, read_file, remove_file, write_file
from allswell.runtime.workspace.git import (
    Git,
    GitFailed,
    common_dir_of,
    find_top,
    git_dir_of,
    git_of,
    head_of,
    head_text,
    read_small,
)

# Short commands of ours inside an attempt: under a reaper, with the environment of the agent, bounded in time.
#
# What needs the programs that a repository names (the filters of LFS, for example) is run so and in no other way: they
# get what the agent gets, and can do what it could do anyway. The supervisor itself runs none of them.

_GRACE = 2_000
_BEYOND = 5.0
"""Seconds after its end is ordered in which a command must be over."""
_OUTPUT = 64 << 20
_LINES = 3


@dataclass(frozen=True)
class SandboxedCommands:
    """Where such commands run, with which variables, and how long each may take, in milliseconds."""

    cwd: str
    env: Mapping[str, str]
    limit: int
    agent: tuple[str, ...] = ()
    """The command of the agent for which they run: they are run as its user."""

    async def run(self, *argv: str) -> bytes:
        """What a command prints; `Unavailable` with its last lines if it does not end well, or in time."""
        if not KEEPER.running:
            await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            words = as_agent(self.agent, argv)
            command = WardenCommand(
                argv=words,
                path=find_program(words[0], self.cwd, self.env),
                cwd=self.cwd,
                env={**self.env, "PWD": self.cwd, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
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
        with begin(command) as handle:
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
    )
    for word in ("-c", setting)
)
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none")
_CONFLICTS = ("DD", "AU", "UD", "UA", "DU", "AA", "UU")
GIT_LIMIT = 60_000
"""Milliseconds that one call of git may take."""
_HEADS = "ref: refs/heads/"
_NAME = 200
"""Bytes; a file with a commit's name has no more."""
_OURS = {"user.name": "Allswell", "user.email": "allswell@localhost"}


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


class Worktree:
    """A worktree that was made for a task."""

    def __init__(self, top: Path, path: Path, branch: str) -> None:
        self.path = path
        self.branch = branch
        self.top = top
        """The working tree that it was made of."""
        self._base = path.with_name(path.name + ".base")

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
        own = self.own_git_dir()
        if not (own / "index").exists():  # which git writes last: a checkout that was cut off is done again
            (own / "index.lock").unlink(missing_ok=True)
            await self.run(errands, "reset", "--hard", "-q")

    async def run(self, errands: SandboxedCommands, *words: str) -> bytes:
        """What a call of git in it answers; `Unavailable` if it does not end well."""
        return await errands.run(*self._git(self.own_git_dir()), *words)

    async def left(self, errands: SandboxedCommands) -> LeftoverWork:
        """What is not committed."""
        own = self.own_git_dir()
        said = (await self.run(errands, *_STATUS)).decode("utf-8", "surrogateescape")
        paths = {line[3:]: line[:2] for line in said.split("\0") if line}
        head = (head_text(os.fsencode(own)) or b"").decode("utf-8", "replace")
        return LeftoverWork(
            {path: how for path, how in paths.items() if can_be_kept(os.fsencode(path.rstrip("/")))}, head
        )

    async def commit_rest(self, errands: SandboxedCommands, message: str) -> LeftoverWork:
        """Commit on its branch what is not committed, as far as that can be; what is left then.

        An agent that has gone to another branch, or is amid a merge or a rebase, has left what only a person can judge:
        that stays as it is.
        """
        found = await self.left(errands)
        inside = found.repositories
        if found.head != _HEADS + self.branch or found.conflicts or len(inside) == len(found.paths):
            return found
        own = self.own_git_dir()
        git = self._git(own)
        (own / "index.lock").unlink(missing_ok=True)  # of an agent that was ended: nobody else works here
        but = [f":(exclude,literal){path.rstrip('/')}" for path in inside]
        with contextlib.suppress(Unavailable):  # a file that cannot be read costs that file, and is told as left
            await errands.run(*git, "add", "-A", "--ignore-errors", "--", ".", *but)
        if (await errands.run(*git, "diff", "--cached", "--name-only", "--no-ext-diff", "-z")).strip(b"\0"):
            identity = await self._identity(errands, git)
            await errands.run(*git, *identity, "commit", "-q", "--no-verify", "--no-gpg-sign", "-m", message)
        return await self.left(errands)

    def _git(self, own: Path) -> tuple[str, ...]:
        return ("git", f"--git-dir={own}", f"--work-tree={self.path}", *QUIET)

    async def _identity(self, errands: SandboxedCommands, git: tuple[str, ...]) -> list[str]:
        """Our own name where the repository and its user have set none."""
        listed = (await errands.run(*git, "config", "--list", "-z", "--name-only")).decode("utf-8", "replace")
        known = {name.lower() for name in listed.split("\0")}
        return [word for key, value in _OURS.items() if key not in known for word in ("-c", f"{key}={value}")]

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
            if left.paths or built or await asyncio.to_thread(self.stands, left) is not None:
                return False
            await asyncio.to_thread(self.remove, with_branch=True)
        except (Unavailable, Refused, OSError):
            return False
        return True

    def remove(self, *, with_branch: bool = False) -> None:
        """Remove it, whatever is in it; its branch stays unless nothing was ever committed there. It blocks."""
        self.own_git_dir()
        with git_of(self.top, GIT_LIMIT) as git:
            git.administer("worktree", "remove", "--force", os.fsencode(self.path))
            if with_branch and self.base is not None:
                git.run("update-ref", "-d", f"refs/heads/{self.branch}", self.base)
        remove_file(self._base)


# The branch of a task: `allswell/write-the-parser-7x2k`, after its name and the end of its id.
#
# Two tasks of one name may share that end. So a branch that is there already is this task's only if its worktree is on
# it, if it is noted beside the worktree's place where the branch began, or if a receipt of the task names it. Otherwise
# the branch is called after the whole id. So are branches that were made before they had readable names.

_SLUG = 40
_TAIL = 4


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
        if base is not None and (there is None or not base.exists()):  # first: it says whose branch it is
            write_file(base, f"{head if there is None else _fork(git, there)}\n".encode())
        if there is None:
            git.run("update-ref", ref, head, "")
        force = () if base is None else ("-f",)
        git.administer("worktree", "add", *force, "--no-checkout", os.fsencode(tree.path), tree.branch)


def _fork(git: Git, commit: str) -> str:
    """Where a commit's history leaves what is checked out; where they share none, that itself."""
    head = git.commit_at("HEAD") or commit
    return git.run("merge-base", head, commit, good=(0, 1)).decode().strip() or head


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
