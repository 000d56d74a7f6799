"""Merging what has passed: the branch `build/COMPONENT` into the branch that is checked out in a folder.

The merge is made in a worktree of our own, inside the repository's git folder, so nothing of it is seen where a human
works. What it came to is then brought in by moving the branch forward. Uncommitted edits that are in the way stop only
that last step: the merge is kept under `refs/allswell/merged/BRANCH`, the next one goes on from it, and both come in as
soon as nothing is in the way. A branch that does not merge is its builder's: it is told, as after a failed audit.

A merge that was killed half-way has changed only our worktree, which the next one clears. Merging twice is merging
once, so a coordinator that was killed in between does it again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from allswell.domain.build.hearing import HeardMessage, Hearing
from allswell.domain.ids import Millis
from allswell.errors import AllswellError, Refused

_log = logging.getLogger("allswell.build")
Merge = Callable[[str], Awaitable[str]]
"""Merges a component; why it could not be merged, or nothing."""
_LIMIT = 120.0
"""Seconds that git may take."""
_SAID = 1_000
_BRANCHES = "build/"
_CAREFULLY = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "merge.autoStash=false")


class GitMerge:
    """A `Merge` into the branch that is checked out in a folder when it begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._branch = ""
        self._tree = folder

    async def checked(self) -> GitMerge:
        """This, if there is something to merge into."""
        code, self._branch = await self._git("symbolic-ref", "--quiet", "--short", "HEAD")
        if code != 0:
            text = f"--merge merges into the branch that is checked out, and {self._folder} has none"
            raise Refused("no_branch", text, where="--merge")
        code, _ = await self._git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        if code != 0:
            text = f"--merge merges into {self._branch}, which has no commit yet; make the first one"
            raise Refused("no_branch", text, where="--merge")
        code, _ = await self._git("var", "GIT_COMMITTER_IDENT")
        if code != 0:
            text = "git does not know who merges; run: git config user.name NAME, and git config user.email ADDRESS"
            raise Refused("no_identity", text, where="--merge")
        _, place = await self._git("rev-parse", "--git-path", "allswell-merge")
        named = self._folder / place
        self._tree = named.parent.resolve() / named.name
        await self._take_back_ours()
        await self._bring_in()
        return self

    async def __call__(self, component: str) -> str:
        """Merge a component's branch."""
        branch = f"{_BRANCHES}{component}"
        if not await self._commit(f"refs/heads/{branch}"):
            return f"it passed, and there is no branch {branch} to merge"
        why = await self._clear_tree(await self._base())
        if why:
            return f"it passed, and could not be merged: {why}"
        said = f"Merge branch '{branch}'"
        code, told = await self._in_tree("merge", "--no-ff", "--no-edit", "--quiet", "-m", said, branch)
        if code != 0:
            await self._in_tree("merge", "--abort")
            return f"it passed, and {branch} does not merge; bring it up to date and hand it in again: {told}"
        _, merged = await self._in_tree("rev-parse", "HEAD")
        await self._git("update-ref", self._kept, merged)
        await self._bring_in()
        return ""

    @property
    def _kept(self) -> str:
        return f"refs/allswell/merged/{self._branch}"

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
            code, told = await self._move(kept, target)
            if code != 0:
                how = f"commit or stash your edits, then run: git merge {kept[:12]}"
                _log.warning("what was merged is not in %s yet (%s); %s", self._branch, told.split("\n")[0], how)
                return
        await self._git("update-ref", "-d", self._kept)

    async def _move(self, kept: str, target: str) -> tuple[int, str]:
        _, current = await self._git("symbolic-ref", "--quiet", "--short", "HEAD")
        if current == self._branch:
            return await self._git("merge", "--ff-only", "--quiet", kept)
        if not await self._is_in(target, kept):
            return 1, f"{self._branch} has gone on by itself"
        return await self._git("update-ref", f"refs/heads/{self._branch}", kept, target)

    async def _clear_tree(self, base: str) -> str:
        """Our worktree at a commit, whatever was left in it; why there is none, or nothing."""
        if self._tree.is_symlink():
            return f"{self._tree} is a link, and what it leads to would be cleared; remove it"
        if self._tree.is_dir():
            await self._in_tree("merge", "--abort")
            code, _ = await self._in_tree("checkout", "--detach", "--force", "--quiet", base)
            if code == 0:
                await self._in_tree("clean", "-ffdxq")
                return ""
            await asyncio.to_thread(shutil.rmtree, self._tree, ignore_errors=True)
        await self._git("worktree", "prune")
        code, told = await self._git("worktree", "add", "--detach", "--force", "--quiet", str(self._tree), base)
        return "" if code == 0 else told

    async def _take_back_ours(self) -> None:
        """Take a merge back that an earlier version had begun in the folder itself when it was killed."""
        code, place = await self._git("rev-parse", "--git-path", "MERGE_MSG")
        message = self._folder / place
        if code != 0 or not message.is_file():
            return
        if message.read_text("utf-8", "replace").startswith(f"Merge branch '{_BRANCHES}"):
            await self._git("merge", "--abort")

    async def _commit(self, ref: str) -> str:
        code, found = await self._git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        return found if code == 0 else ""

    async def _is_in(self, commit: str, other: str) -> bool:
        code, _ = await self._git("merge-base", "--is-ancestor", commit, other)
        return code == 0

    async def _in_tree(self, *words: str) -> tuple[int, str]:
        return await self._git(*words, folder=self._tree)

    async def _git(self, *words: str, folder: Path | None = None) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_CAREFULLY,
            *words,
            cwd=folder or self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_LIMIT):
                said, _ = await process.communicate()
        except TimeoutError:
            return 1, f"git {words[0]} took longer than {_LIMIT:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, said.decode("utf-8", "replace").strip()[:_SAID]


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
    def hearing(self) -> Hearing:
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
