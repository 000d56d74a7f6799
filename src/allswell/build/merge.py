"""Merging what has passed: the branch `build/COMPONENT` into the branch that is checked out in a folder.

The merge is made in a worktree of our own, inside the repository's git folder, so nothing of it is seen where a human
works. What it came to is then brought in by moving the branch forward. Uncommitted edits that are in the way stop only
that last step, and so do ignored files, such as a store, which git would replace without a word, and another worktree
in which the branch is checked out, or a rebase of it: the merge is kept under `refs/allswell/merged/BRANCH`, the next
one goes on from it, and both come in as soon as nothing is in the way. A branch that does not merge is its builder's:
it is told, as after a failed audit.

A merge that was killed half-way has changed only our worktree, which the next one clears. Merging twice is merging
once, so a coordinator that was killed in between does it again.

Git is called in the two ways of ADR 36: refs are read and moved by git that runs nothing of the repository's; what
writes files, and so needs its filters, runs as a command in an attempt does, without our variables and without hooks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from allswell.domain.build.hearing import ChannelCoverage, HeardMessage
from allswell.domain.ids import Millis
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.process.command import allowed_environment
from allswell.runtime.workspace.git import (
    Git,
    common_dir_of,
    find_top,
    git_dir_of,
    git_of,
    head_of,
    head_text,
    places_on,
)
from allswell.runtime.workspace.worktree import QUIET, SandboxedCommands, Worktree, add_worktree

_log = logging.getLogger("allswell.build")
Merge = Callable[[str], Awaitable[str]]
"""Merges a component; why it could not be merged, or nothing."""
_LIMIT = 120_000
"""Milliseconds that a call of git may take."""
_SAID = 1_000
_BRANCHES = "build/"
_HEADS = b"ref: refs/heads/"
_IDENTITY = ("GIT_AUTHOR_*", "GIT_COMMITTER_*")
T = TypeVar("T")


class GitMerge:
    """A `Merge` into the branch that is checked out in a folder when it begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._top = folder
        self._branch = ""
        self._tree = Worktree(folder, folder, "")
        self._errands = SandboxedCommands(str(folder), allowed_environment(more=_IDENTITY), _LIMIT)

    async def checked(self) -> GitMerge:
        """This, if there is something to merge into."""
        top = find_top(self._folder.resolve())
        self._top = top or self._folder
        self._branch = "" if top is None else self._checked_out()
        if not self._branch:
            text = f"--merge merges into the branch that is checked out, and {self._folder} has none"
            raise Refused("no_branch", text, where="--merge")
        if not await self._commit("HEAD"):
            text = f"--merge merges into {self._branch}, which has no commit yet; make the first one"
            raise Refused("no_branch", text, where="--merge")
        try:
            await self._in_folder("var", "GIT_COMMITTER_IDENT")
        except Unavailable:
            text = "git does not know who merges; run: git config user.name NAME, and git config user.email ADDRESS"
            raise Refused("no_identity", text, where="--merge") from None
        self._tree = Worktree(self._top, self._git_dir.resolve() / "allswell-merge", "")
        await self._bring_in()
        return self

    async def __call__(self, component: str) -> str:
        """Merge a component's branch."""
        branch = f"{_BRANCHES}{component}"
        if not await self._commit(f"refs/heads/{branch}"):
            return f"it passed, and there is no branch {branch} to merge"
        try:
            await self._clear_tree(await self._base())
        except Unavailable as error:
            return f"it passed, and could not be merged: {error.message}"
        try:
            words = ("--no-ff", "--no-edit", "--quiet", "-m", f"Merge branch '{branch}'")
            await self._in_tree("merge", *words, f"refs/heads/{branch}")  # a tag of that name would be taken first
        except Unavailable as error:
            conflicts = (await self._in_tree("diff", "--name-only", "--diff-filter=U")).decode("utf-8", "replace")
            reason = f"conflicts in {', '.join(conflicts.splitlines())}" if conflicts else error.message
            return f"it passed, and {branch} does not merge; bring it up to date and hand it in again: {reason}"[:_SAID]
        await self._git(lambda git: git.run("update-ref", self._kept, head_of(self._tree.path) or ""))
        await self._bring_in()
        return ""

    @property
    def _git_dir(self) -> Path:
        return Path(os.fsdecode(git_dir_of(os.fsencode(self._top))))

    @property
    def _kept(self) -> str:
        return f"refs/allswell/merged/{self._branch}"

    def _checked_out(self) -> str:
        """The branch that is checked out; empty if none is."""
        head = head_text(os.fsencode(self._git_dir)) or b""
        return os.fsdecode(head.removeprefix(_HEADS)) if head.startswith(_HEADS) else ""

    async def _base(self) -> str:
        """What the next merge begins with: the branch, or what was merged and could not be brought in yet."""
        target, kept = await self._commit(f"refs/heads/{self._branch}"), await self._commit(self._kept)
        return kept if kept and not await self._is_in(kept, target) else target

    async def _bring_in(self) -> None:
        """Move the branch forward to what was merged, unless something of a human's is in the way."""
        kept, target = await self._commit(self._kept), await self._commit(f"refs/heads/{self._branch}")
        if not kept:
            return
        if not await self._is_in(kept, target):
            try:
                await self._move(kept, target)
            except Unavailable as error:
                how = await self._by_hand(kept, target)
                _log.warning("what was merged is not in %s yet (%s); %s", self._branch, error.message, how)
                return
        await self._git(lambda git: git.run("update-ref", "-d", self._kept))

    async def _by_hand(self, kept: str, target: str) -> str:
        """What a human can do about it. Git keeps ignored files only where a branch is moved forward."""
        if await self._is_in(target, kept):
            how, command = "commit or stash your edits, or move files away", "git merge --ff-only --no-overwrite-ignore"
        else:
            how, command = "move ignored files away that it would overwrite", "git merge --no-edit"
        return f"{how}, then, where {self._branch} is checked out, run: {command} {kept[:12]}"

    async def _move(self, kept: str, target: str) -> None:
        if self._checked_out() == self._branch:
            await self._in_folder("merge", "--ff-only", "--no-overwrite-ignore", "--quiet", kept)
        elif await asyncio.to_thread(self._is_used_elsewhere):
            raise Unavailable(f"{self._branch} is checked out in another worktree, or being rebased")
        elif await self._is_in(target, kept):
            await self._git(lambda git: git.run("update-ref", f"refs/heads/{self._branch}", kept, target))
        else:
            raise Unavailable(f"{self._branch} has gone on by itself")

    def _is_used_elsewhere(self) -> bool:
        """Whether the branch is checked out in another worktree, or being rebased: what is there would seem edited."""
        return bool(places_on(common_dir_of(os.fsencode(self._git_dir)), self._branch))

    async def _clear_tree(self, base: str) -> None:
        """Our worktree at a commit, whatever was left in it."""
        if self._tree.path.is_symlink():
            text = f"{self._tree.path} is a link, and what it leads to would be cleared; remove it"
            raise Unavailable(text)
        if self._tree.path.is_dir():
            try:
                await self._in_tree("checkout", "--detach", "--force", "--quiet", base)
                await self._in_tree("clean", "-ffdxq")
            except Unavailable:
                await asyncio.to_thread(shutil.rmtree, self._tree.path, ignore_errors=True)
            else:
                return
        await self._git(lambda git: add_worktree(git, self._tree.path, "--detach", "--force", base))
        await self._tree.check_out(self._errands)

    async def _commit(self, ref: str) -> str:
        return await self._git(lambda git: git.commit_at(ref)) or ""

    async def _is_in(self, commit: str, other: str) -> bool:
        return bool(other) and await self._git(lambda git: git.is_part_of(commit, other))

    async def _git(self, work: Callable[[Git], T]) -> T:
        """Calls of git that run nothing of the repository's."""

        def call() -> T:
            with git_of(self._top, _LIMIT) as git:
                return work(git)

        return await asyncio.to_thread(call)

    # --- as in an attempt: filters and merge drivers of the repository's may run, without our variables ---------------

    async def _in_tree(self, *words: str) -> bytes:
        return await self._tree.run(self._errands, *words)

    async def _in_folder(self, *words: str) -> bytes:
        place = (f"--git-dir={self._git_dir}", f"--work-tree={self._top}")
        return await self._errands.run("git", *place, *QUIET, "-c", "merge.autoStash=false", *words)


# The door of a build to where its agents talk: one small interface, whatever lies behind it.
#
# Whoever wants to bring another chat (Slack, Discord, Matrix) writes a class with these four, or a bridge that speaks
# `name: LINE` on standard input and output (`interfaces/chat/stdio.py`).


class ChannelClosed(AllswellError):
    """There is nothing more to hear, and nobody to speak to: the other side has ended for good."""


class Channel(Protocol):
    """A place where everybody hears what everybody says."""

    @property
    def who(self) -> str:
        """As what the others hear us."""
        ...

    @property
    def hearing(self) -> ChannelCoverage:
        """Whether we have heard everything, and what may be missing."""
        ...

    async def receive(self) -> HeardMessage:
        """The next message, each once; `ChannelClosed` when there will be none.

        One's own messages are left out, except those of an earlier life: replayed, and never sent by this object.
        """
        ...

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines, in order; returns when they have arrived, with the channel's time of that."""
        ...
