"""The work of a builder or an auditor as a command: run under watch, like any other (`allswell run`).

The command is told what to do by its environment: BUILD_COMPONENT; for a builder BUILD_AUDIT, what the last audit
found; for an auditor BUILD_URL and BUILD_BUILDER. A builder's last line of output is the address of its pull request,
unless a template gives it. An auditor passes by exit code 0; otherwise what it printed last is what it found.

When the work is stopped, the command is told so and may end in good order; `allswell run` keeps what it has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allswell.build.agents import AuditTask, BuildJob
from allswell.domain.build.wording import is_url

_KEPT = 4_000
"""So much of what a command printed last is looked at, in characters."""
_CHUNK = 65_536


class WatchedCommand(msgspec.Struct, frozen=True):
    """A command, and how it is watched: the words for `allswell run` before it."""

    argv: tuple[str, ...]
    options: tuple[str, ...] = ()

    async def run(self, name: str, env: Mapping[str, str], folder: Path | None = None) -> tuple[int, str]:
        """Run it; its exit code, and what it printed last."""
        given = [word for key, value in env.items() for word in ("--env", f"{key}={value}")]
        words = [sys.executable, "-m", "allswell", "run", "--name", name, *self.options, *given, "--", *self.argv]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, cwd=folder, start_new_session=True
        )
        try:
            printed = await _last_of(process.stdout)
            return await process.wait(), printed
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()  # bounded: `allswell run` kills what does not end within its grace


async def _last_of(stream: asyncio.StreamReader | None) -> str:
    """What is printed last; the rest goes by."""
    kept = ""
    while stream is not None and (raw := await stream.read(_CHUNK)):
        kept = (kept + raw.decode("utf-8", "replace"))[-_KEPT:]
    return kept.strip()


class CommandBuilder:
    """A builder's work: `BuildAgent(channel, CommandBuilder(...))`."""

    def __init__(self, command: WatchedCommand, *, pr_url: str = "", worktrees: Path | None = None) -> None:
        self._command = command
        self._pr_url = pr_url
        self._worktrees = worktrees

    async def __call__(self, job: BuildJob) -> str:
        """Build it; the address of the pull request."""
        folder = None if self._worktrees is None else await worktree_of(self._worktrees, job.component)
        env = {"BUILD_COMPONENT": job.component, "BUILD_AUDIT": job.details}
        code, printed = await self._command.run(f"build {job.component}", env, folder)
        last = printed.rsplit("\n", 1)[-1].strip()
        if code != 0:
            raise RuntimeError(f"exit code {code}: {last}"[:500])
        url = self._pr_url.replace("{component}", job.component) or last
        if not is_url(url):
            raise RuntimeError(f"its last line is no address of a pull request: {url[:200]}")
        return url


class CommandAuditor:
    """An auditor's work: `AuditAgent(channel, CommandAuditor(...))`."""

    def __init__(self, command: WatchedCommand) -> None:
        self._command = command

    async def __call__(self, task: AuditTask) -> tuple[bool, str]:
        """Look at it; whether it passes, and what was found."""
        env = {"BUILD_COMPONENT": task.component, "BUILD_URL": task.url, "BUILD_BUILDER": task.builder}
        code, printed = await self._command.run(f"audit {task.component}", env)
        return code == 0, "" if code == 0 else printed or f"exit code {code}"


async def worktree_of(folder: Path, component: str) -> Path:
    """The component's own git worktree, on the branch `build/COMPONENT`; one that is there is kept as it is."""
    place = (folder / component).resolve()
    if place.is_dir():
        return place
    branch = f"build/{component}"
    new = await _git("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") != 0
    words: Sequence[str] = ("-b", branch, str(place)) if new else (str(place), branch)
    if await _git("worktree", "add", "--quiet", *words) != 0:
        raise RuntimeError(f"git made no worktree for {component} at {place}")
    return place


async def _git(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(
        "git", *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
