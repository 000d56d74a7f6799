"""A store with a story in it: an hour ago a small fleet was at work, and then everybody left.

What is in it: work that is done, work whose holder went away, a question from an agent and one after three timeouts, a
parked service, a failure and what was skipped for it, a run with a chain of needs and a wide fan-in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from allswell import ErrorClass, Failure, Policy, Watch, make_watch
from allswell.engine.lease import Lease
from allswell.interfaces.cli.app import run as command_line
from allswell.store.sqlite import SqliteStore
from allswell.testing.sim.process import engine_of

HOUR = 3_600_000


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = int(time.time() * 1000) - HOUR

    def wall(self) -> int:
        return self.at

    def monotonic(self) -> int:
        return self.at

    def boottime(self) -> int:
        return self.at


async def _claimed(watch: Watch, agent: str, name: str, **how: str) -> Lease:
    lease = await watch.claim(agent=agent, lease=how.get("lease"))
    assert lease is not None
    assert lease.name == name
    return lease


async def _tell(path: Path) -> None:
    clock = SetClock()
    async with make_watch(SqliteStore(path, clock=clock), clock=clock, sweeping=False) as watch:

        async def pass_by(seconds: int) -> None:
            clock.at += seconds * 1000
            while await engine_of(watch).sweeper.sweep() == 0.0:
                pass

        fetch = await watch.submit("fetch the sources")
        lease = await _claimed(watch, "ada", "fetch the sources")
        await pass_by(40)
        await lease.complete({})
        await pass_by(1)
        nightly = await watch.open_run("nightly", timeout="2h")
        compile_ = await watch.submit("compile", needs=[fetch], run=nightly)
        build = await watch.submit("build", needs=[compile_], run=nightly)
        parts = await watch.submit_many([{"name": f"part {number}"} for number in range(12)])
        await watch.submit("deploy", needs=[build, *parts], run=nightly)
        await watch.submit("summarise 400 issues", policy=Policy(timeout=60_000), priority=9)
        for agent in ("bob", "cyd", "dan"):
            lease = await _claimed(watch, agent, "summarise 400 issues")
            await lease.checkin("step 2 of 4", progress=0.5)
            await pass_by(62)
        await watch.submit("call the model", services=["anthropic"], priority=8)
        limit = Failure(ErrorClass.RATE_LIMIT, "429: usage limit", 2 * HOUR, ("anthropic",))  # type: ignore[arg-type]
        await (await _claimed(watch, "bob", "call the model")).fail(limit)
        specs = await watch.submit("read the specs", priority=7)
        await watch.submit("use the specs", needs=[specs])
        lease = await _claimed(watch, "eve", "read the specs")
        await lease.fail(Failure(ErrorClass.VALIDATION, "400: bad request [red]x[/red]\x1b[31m"))
        await pass_by(1)
        await watch.submit("flaky call", priority=6)
        lease = await _claimed(watch, "fay", "flaky call")
        await pass_by(3)
        await lease.fail(ConnectionError("reset by peer"))
        await pass_by(3)
        lease = await _claimed(watch, "gus", "flaky call")
        await pass_by(10)
        await lease.complete()
        lease = await _claimed(watch, "hal", "compile", lease="20s")
        await lease.checkin("half of it is here", progress=0.5)
        await (await _claimed(watch, "ivy", "part 0")).ask("Two tables are called users. Which one?")


def told(path: Path) -> str:
    """Make the store; its URL."""
    asyncio.run(_tell(path))
    return f"sqlite:///{path}"


def typed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Run a command line in this process: its exit code, what it said, and what it complained about."""
    capsys.readouterr()
    code = command_line(args)
    said = capsys.readouterr()
    return code, said.out, said.err


def one_line(text: str) -> str:
    """Text without its line breaks, so that a sentence is found wherever it was broken."""
    return " ".join(text.split())


def has_all(text: str, sentences: Sequence[str]) -> None:
    """Every sentence is there."""
    flat = one_line(text)
    for sentence in sentences:
        assert sentence in flat, f"{sentence!r} is not in:\n{text}"
