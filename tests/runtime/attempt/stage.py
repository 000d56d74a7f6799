"""A watch in memory, a repository, and attempts in it; who lives is looked up in /proc, as for the warden."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from allswell.app import make_watch, store_for
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.runtime.attempt import AttemptLimits, AttemptRunner, Evidence, order_for
from allswell.runtime.attempt.launch import LaunchSpec
from allswell.runtime.receipts import StateDir
from tests import patience
from tests.runtime.process.stage import tagged


@dataclass
class Stage:
    """Attempts in one folder."""

    watch: Watch
    folder: Path
    home: StateDir
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: list[Evidence] = field(default_factory=list)
    printed: bytearray = field(default_factory=bytearray)

    def order(self, *argv: str, **limits: int | None) -> LaunchSpec:
        given = {"grace": 200, **limits}
        made = order_for(
            argv,
            cwd=self.folder,
            folder=self.folder,
            env={"TAG": self.tag},
            limits=AttemptLimits(**given),  # type: ignore[arg-type]
        )
        return replace(made, echo=self._echo)

    def _echo(self, stream: int, piece: bytes) -> None:
        self.printed += piece

    async def lease(self, name: str = "job", *, timeout: int = 60_000, length: str | None = "10s") -> Lease:
        await self.watch.submit(name, timeout=timeout)
        lease = await self.watch.claim(agent="ada", lease=length)
        assert lease is not None
        return lease

    async def attempt(self, order: LaunchSpec, lease: Lease | None = None) -> AttemptRunner:
        return AttemptRunner(order, lease or await self.lease(), self.home, on_evidence=self.seen.append)

    async def shell(self, script: str, **limits: int | None) -> AttemptRunner:
        return await self.attempt(self.order("sh", "-c", script, **limits))

    def living(self) -> list[int]:
        return tagged(self.tag)

    async def until(self, reached: Callable[[], object]) -> None:
        async with asyncio.timeout(patience.SECONDS):
            while not reached():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """A repository with one commit, and a watch."""
    repository = folder / "repository"
    repository.mkdir()
    (repository / "kept").write_text("as it was\n")
    git("init", "-q", "-b", "main", cwd=repository)
    git("add", "-A", cwd=repository)
    git("commit", "-q", "-m", "first", cwd=repository)
    async with make_watch(store_for("memory:")) as watch:
        made = Stage(watch, repository, StateDir(folder / ".allswell"))
        yield made
        await made.until(lambda: made.living() == [])


def git(*args: str, cwd: Path) -> str:
    """What git answers, with nothing of the machine's own configuration."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *args], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout
