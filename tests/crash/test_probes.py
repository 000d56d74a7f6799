"""A half-open breaker and many processes on one store: one of them is the probe, also when that one is killed."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from sys import executable

import msgspec
import pytest

import allswell
from allswell.domain.service.breaker import BreakerPolicy, BreakerState, CallOutcome, Permit, stand
from allswell.runtime.guard.breakers import breakers_of

CALLER = Path(__file__).with_name("caller.py")
CALLERS = int(os.environ.get("ALLSWELL_CALLERS", "10"))


class Caller:
    """One process."""

    def __init__(self, url: str, policy: BreakerPolicy) -> None:
        command = [executable, str(CALLER), url, msgspec.json.encode(policy).decode()]
        self.process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def hears(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def calls(self) -> str:
        self.hears("call")
        return self.says()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def callers(url: str, request: pytest.FixtureRequest) -> Iterator[list[Caller]]:
    """Processes that have the store open; none survives the test."""
    started = [Caller(url, policy) for policy in request.param]
    try:
        assert [caller.says() for caller in started] == ["open"] * len(started)
        yield started
    finally:
        for caller in started:
            caller.kill()


async def half_open(watch: allswell.Watch) -> None:
    """Let three calls fail, and wait out the pause on the store's own clock."""
    policy = BreakerPolicy(pause=50)
    _, breakers = breakers_of(watch)
    for _ in range(3):
        given = (await breakers.admit("api", policy)).given
        assert isinstance(given, Permit)
        await breakers.report(given, CallOutcome.FAILED, policy)
    await until(watch, BreakerState.HALF_OPEN)


async def until(watch: allswell.Watch, wanted: BreakerState) -> None:
    while True:
        (row,) = await watch.services()
        if stand(row.state, (await watch._engine.store.view_agenda()).now) is wanted:
            return
        await asyncio.sleep(0.01)


@pytest.mark.row("F8")
@pytest.mark.parametrize("callers", [[BreakerPolicy()] * CALLERS], indirect=True)
def test_of_many_processes_one_is_the_probe(url: str, callers: list[Caller]) -> None:
    """Promise 11: a failing service is probed by one caller."""

    async def scene() -> None:
        async with allswell.open(url) as watch:
            await half_open(watch)
            for caller in callers:
                caller.hears("call")
            said = [caller.says() for caller in callers]
            assert sorted(said) == ["calling"] + ["refused"] * (len(callers) - 1)
            probe = callers[said.index("calling")]
            probe.hears("well")
            assert probe.says() == "answered"
            kinds = [entry.event.kind async for entry in watch.events()]
            assert (kinds.count("breaker_probe"), kinds.count("breaker_closed")) == (1, 1)
            for caller in callers:  # it is open to everybody again
                caller.hears("call")
            assert [caller.says() for caller in callers] == ["calling"] * len(callers)

    asyncio.run(scene())


@pytest.mark.row("F8")
@pytest.mark.parametrize(
    "callers", [[BreakerPolicy(pause=50, probe_lease=1_000), BreakerPolicy(pause=50)]], indirect=True
)
def test_a_killed_probe_does_not_keep_the_service_shut(url: str, callers: list[Caller]) -> None:
    """Its lease runs out, that counts as one more failure, and after the pause the next caller tries."""

    async def scene() -> None:
        async with allswell.open(url) as watch:
            await half_open(watch)
            first, second = callers
            assert first.calls() == "calling"
            first.kill()
            while (said := second.calls()) != "calling":
                assert said == "refused"
                await asyncio.sleep(0.05)
            (row,) = await watch.services()
            assert row.state.failures == 4
            second.hears("well")
            assert second.says() == "answered"
            await until(watch, BreakerState.CLOSED)

    asyncio.run(scene())
