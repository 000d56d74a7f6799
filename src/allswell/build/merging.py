"""Merging what has passed: the branch `build/COMPONENT` into the branch that is checked out in a folder.

A branch that does not merge is no reason to stop: its builder is told, as after a failed audit, and hands it in again.
A merge that was begun is always finished or taken back. Merging twice is merging once, so a coordinator that was killed
in between does it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from allswell.errors import Refused

Merge = Callable[[str], Awaitable[str]]
"""Merges a component; why it could not be merged, or nothing."""
_LIMIT = 120.0
"""Seconds that git may take."""
_SAID = 1_000
_BRANCHES = "build/"
_CAREFULLY = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "merge.autoStash=false")


class GitMerge:
    """A `Merge` into what is checked out in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def checked(self) -> GitMerge:
        """This, if there is something to merge into."""
        code, _ = await self._git("symbolic-ref", "--quiet", "--short", "HEAD")
        if code != 0:
            text = f"--merge merges into the branch that is checked out, and {self._folder} has none"
            raise Refused("no_branch", text, where="--merge")
        code, _ = await self._git("var", "GIT_COMMITTER_IDENT")
        if code != 0:
            text = "git does not know who merges; run: git config user.name NAME, and git config user.email ADDRESS"
            raise Refused("no_identity", text, where="--merge")
        await self._take_back_ours()
        code, said = await self._git("status", "--porcelain", "--untracked-files=no")
        if code != 0 or said:
            text = f"{self._folder} has changes that are not committed; commit them before anything is merged into it"
            raise Refused("unclean", text, where="--merge")
        return self

    async def _take_back_ours(self) -> None:
        """Take a merge back that a coordinator had begun when it was killed; it is done again."""
        code, place = await self._git("rev-parse", "--git-path", "MERGE_MSG")
        message = self._folder / place
        if code != 0 or not message.is_file():
            return
        if message.read_text("utf-8", "replace").startswith(f"Merge branch '{_BRANCHES}"):
            await self._git("merge", "--abort")

    async def __call__(self, component: str) -> str:
        """Merge a component's branch."""
        branch = f"{_BRANCHES}{component}"
        code, _ = await self._git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
        if code != 0:
            return f"it passed, and there is no branch {branch} to merge"
        code, said = await self._git("merge", "--no-ff", "--no-edit", "--quiet", branch)
        if code == 0:
            return ""
        await self._git("merge", "--abort")
        return f"it passed, and {branch} does not merge; bring it up to date and hand it in again: {said}"

    async def _git(self, *words: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "git",
            *_CAREFULLY,
            *words,
            cwd=self._folder,
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
