"""Defects that a hostile reading found, each as the sequence that went wrong."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

import allswell
from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.rules.command import Claim
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.submit import check_name
from allswell.engine.sweeper import Sweeper
from allswell.errors import Refused, Unavailable
from tests import patience
from tests.engine.stage import Stage, play


def test_a_claim_repeated_under_its_id_keeps_its_lease() -> None:
    """The first try was cancelled; what it was granted belongs to whoever asks again with the same id."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work")
        first = asyncio.create_task(stage.watch.claim(agent="bob", command="c1"))
        await asyncio.sleep(0)
        first.cancel()
        lease = await stage.watch.claim(agent="bob", command="c1", wait="5s")
        await asyncio.sleep(1)
        assert lease is not None
        await lease.complete()

    play(scene)


@pytest.mark.parametrize("turns", range(12))
def test_a_cancelled_claim_leaves_nothing_held(turns: int) -> None:
    """Whenever the claimer leaves, also in the moment of the answer, the task is soon in the pool again."""

    async def scene(stage: Stage) -> None:
        await stage.watch.submit("work")
        claim = asyncio.create_task(stage.watch.claim(agent="bob"))
        for _ in range(turns * 2):
            await asyncio.sleep(0)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        if claim.cancelled():
            await asyncio.sleep(1)
            assert (await stage.watch.counts()) == {"ready": 1}

    play(scene)


def test_two_agents_that_share_a_claim_s_id_do_not_share_its_lease() -> None:
    async def scene(stage: Stage) -> None:
        await stage.watch.submit_many([{"name": "a"}, {"name": "b"}])
        for agent in ("bob", "eve"):
            claimed = await stage.watch._engine.claim(Claim(CommandId("same"), AgentId(agent)))
            assert [granted.lease.agent for granted in claimed.granted] == [agent]

    play(scene)


@pytest.mark.realtime
def test_closing_a_sync_watch_lets_its_callers_go() -> None:
    told: list[BaseException] = []
    opening = allswell.open("memory:")
    watch = opening.__enter__()

    def wait() -> None:
        try:
            watch.claim(agent="bob", wait="1m")
        except Unavailable as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    opening.__exit__(None, None, None)
    thread.join(patience.SECONDS)
    assert not thread.is_alive()
    assert len(told) == 1
    with pytest.raises(Unavailable, match="closed"):
        watch.counts()


def test_many_failures_that_report_one_limit_park_it_once(pg_url: str) -> None:
    """In one batch on PostgreSQL, where a row that stands twice in one statement would break it."""

    async def scene() -> None:
        async with allswell.open(pg_url) as watch:
            await watch.submit_many([{"name": f"n{number}", "services": ["api"]} for number in range(10)])
            leases = await watch.claim_many(10, agent="bob")
            limit = Failure(ErrorClass.RATE_LIMIT, "slow down", Millis(600_000), ("api", "api"))
            await asyncio.gather(*(lease.fail(limit) for lease in leases))
            assert await watch.claim(agent="bob") is None
            assert await watch.counts() == {"ready": 10}

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["日本\u3000語", "a\u00a0b", "a\u200bb"])
def test_a_name_that_no_lock_would_find_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="character U\\+"):
        check_name(name, "role")


def test_an_odd_error_message_is_kept() -> None:
    async def scene(stage: Stage) -> None:
        for message in ("out\0put", "file \udcff", "naïve"):
            await stage.watch.submit(message.encode("ascii", "replace").decode().replace("\0", "?"))
            lease = await stage.watch.claim(agent="bob", wait="10s")
            assert lease is not None
            await lease.fail(OSError(message), error_class="validation")
            assert (await stage.watch.attempts(lease.task))[0].detail.startswith("OSError: ")

    play(scene)


def test_the_same_key_said_later_is_the_same_task() -> None:
    """A relative not-before and changed settings make no other task of it; another payload does."""

    async def scene(stage: Stage) -> None:
        first = await stage.watch.submit("work", key="k", not_before=1_700_000_000_000)
        assert await stage.watch.submit("work", key="k", not_before=1_700_000_500_000, timeout="20m") == first
        with pytest.raises(Refused, match="different"):
            await stage.watch.submit("work", key="k", payload=1)

    play(scene)


def test_what_was_committed_is_said_even_if_the_sweep_after_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from allswell.interfaces.cli.context import CliContext

    real, calls = Sweeper.sweep, []

    async def sweep(self: Sweeper) -> float:
        calls.append(self)
        if len(calls) > 1:
            raise Unavailable("planted")
        return await real(self)

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    frame = CliContext(f"sqlite:///{tmp_path / 'x.db'}", json=False)
    assert frame.run(lambda watch: watch.submit("kept"), making=True).startswith("t_")


def test_a_token_that_no_lease_ever_had_reaches_no_store(pg_url: str) -> None:
    """A mistyped token is a lost lease, not a number too large for a column."""

    async def scene() -> None:
        async with allswell.open(pg_url) as watch:
            await watch.submit("work")
            lease = await watch.claim(agent="bob")
            assert lease is not None
            for token in (2**70, -(2**70), 0, 2):
                lease.token = Token(token)
                with pytest.raises(allswell.LeaseLost):
                    await lease.complete()
                with pytest.raises(allswell.LeaseLost):
                    await lease.checkin()
            lease.token = Token(1)
            await lease.complete()

    asyncio.run(scene())
