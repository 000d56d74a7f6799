"""The demo's fleet: real processes, each an agent; one that dies is started again under the same name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

TASKS = (
    ("write the changelog", "honest"),
    ("refactor the parser", "crashes"),
    ("fix the flaky test", "hangs"),
    ("summarise 400 issues", "dawdles"),
    ("call the model", "errs"),
    ("migrate the database", "asks"),
)
"""What is to be done, and how the first to try will go about it."""
AGENTS = ("ada", "bob", "cyd")


class Fleet:
    """The agents' processes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.killed = 0

    async def start(self, name: str) -> None:
        """Start an agent."""
        command = [sys.executable, "-m", "allswell.demo.agent", self._url, name]
        quiet = asyncio.subprocess.DEVNULL
        self._running[name] = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=quiet, stderr=quiet)

    async def tend(self) -> None:
        """Replace agents that died."""
        for name, process in list(self._running.items()):
            if process.returncode is not None:
                self.killed += process.returncode == -signal.SIGKILL
                await self.start(name)

    def wake(self) -> None:
        """Let a stopped agent go on, as a laptop's lid would: it still believes it holds its task."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End them all."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
