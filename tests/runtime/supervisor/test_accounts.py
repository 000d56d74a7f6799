"""Accounts whose provider refuses: the stand-ins print what the real clients have printed (tests/clients)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from allswell import Policy
from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.fleet import AgentSpec, Fleet
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence
from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass, RetryPolicy
from allswell.domain.service.service import shut
from allswell.engine.status.overview import board
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor.dispatch import SupervisorPlan
from allswell.runtime.supervisor.usage import Accounts
from tests.clients.stand_in import install
from tests.engine.stage import Stage, play
from tests.runtime.supervisor.stage import Night, night, standin

QUICK = Policy(retry=RetryPolicy(backoff=50, retry_after_default=60_000))


async def posts(night: Night) -> dict[str, AgentSlot]:
    """What the supervisor says of its agents; nothing before it has said something."""
    words = (await night.watch.views.view_kept(PRESENCE_PREFIX)).values()
    return {post.holder: post for word in words for post in msgspec.json.decode(word, type=Presence).posts}


def replay(folder: Path, stream: str, *, name: str = "", holds: bool = False, **fields: str) -> tuple[str, ...]:
    """The command of an agent that prints a stream, and goes on waiting if it is told to."""
    program = install(folder / (name or stream), stream, after="exec sleep 600" if holds else "", **fields)
    return (str(program), "{prompt}")


@pytest.mark.row("F5")
@pytest.mark.parametrize(
    "stream, words", [("claude-429-retry", "429, try 7 of 10"), ("codex-429-retry", "429, try 1 of 5")]
)
def test_a_client_that_tries_again_is_waited_for_and_nothing_else_of_its_account_begins(
    tmp_path: Path, stream: str, words: str
) -> None:
    async def scene(night: Night) -> None:
        first = await night.watch.submit("first", role="a")

        async def refused() -> AgentSlot | None:
            post = (await posts(night)).get("one")
            return post if post is not None and post.evidence == words else None

        post = await night.until(refused)
        assert post is not None
        assert (post.condition, post.account) == ("waiting for the provider", "acme")
        second = await night.watch.submit("second", role="b")

        async def kept_back() -> bool:
            return (await posts(night))["two"].waits == "acme is parked"

        await night.until(kept_back)
        row = await night.watch.task(second)
        assert row is not None
        assert row.ready, "and no attempt is used up on it"
        seen = {line.name: line for line in (await board(night.watch.views)).lines}
        assert seen["first"].ahead == f"waiting for the provider: {words}"
        assert seen["second"].shown == "parked"
        held = await night.watch.task(first)
        assert held is not None
        assert held.lease is not None, "the one that waits is not called"
        assert await night.told("usage_limit") == []
        assert any("is waiting for the provider: 429, try" in line for line in night.lines)

    one = standin("one", role="a", account="acme", command=replay(tmp_path, stream, holds=True), idle=60_000)
    two = standin("two", role="b", account="acme")
    night(tmp_path, scene, one, two, policies={"": QUICK}, stop=100)


@pytest.mark.row("F7")
@pytest.mark.parametrize(
    "stream, holds, says",
    [
        ("claude-login-retry", True, "the login is refused (401, try "),
        ("claude-login", False, "the login is refused (Invalid API key"),
        ("claude-no-login", False, "the login is refused (Not logged in"),
        ("claude-quota", False, "the provider refuses the account (Credit balance is too low)"),
        ("codex-login-retry", True, "the login is refused (Reconnecting... 2/5 (unexpected status 401"),
        ("codex-login", False, "the login is refused ("),
        ("codex-quota", False, "the provider refuses the account (Quota exceeded. Check your plan"),
    ],
)
def test_a_refused_account_asks_once_for_all_its_tasks_and_gets_no_more(
    tmp_path: Path, stream: str, holds: bool, says: str
) -> None:
    async def scene(night: Night) -> None:
        ids = [await night.watch.submit(f"n{number}", retries=0) for number in range(4)]
        asked = await night.event("question_asked")
        assert asked.task is None
        assert f"Account acme: {says}" in asked.data["text"]

        async def all_back() -> bool:
            rows = [await night.watch.task(id_) for id_ in ids]
            return all(row is not None and row.ready for row in rows)

        await night.until(all_back)
        (question,) = await night.watch.questions()
        claimed = len(await night.told("task_claimed"))
        await asyncio.sleep(1.0)
        assert len(await night.told("task_claimed")) == claimed, "nobody is dispatched"
        for id_ in ids:
            assert (await night.task(id_)).record.failures == {}, "no attempt is used up"

        async def told() -> bool:
            waits = {post.waits for post in (await posts(night)).values()}
            return waits == {"acme is refused by its provider, and waits for your answer"}

        await night.until(told)
        assert any("Account acme" in line and f"allswell answer {question.id} mended" in line for line in night.lines)
        given_back = [line for line in night.lines if "back: its provider refuses the account acme" in line]
        assert len(given_back) >= 1
        assert not any("failed at" in line for line in night.lines)
        working.touch()
        await night.watch.answer(question.id, "mended")
        for id_ in ids:
            assert (await night.ended(id_)).state == "done", "and goes on with the answer"

    working = tmp_path / "working"
    good = f"test -e '{working}' && exit 0"
    command = replay(tmp_path, stream, holds=holds, before=good)
    both = [standin(name, account="acme", command=command, concurrency=2) for name in ("one", "two")]
    night(tmp_path, scene, *both, policies={"": QUICK}, stop=100)


@pytest.mark.row("O6")
def test_a_subscription_limit_parks_its_account_and_another_takes_over(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        first = await night.watch.submit("first", role="coder", retries=0)
        assert (await night.ended(first)).state == "done"
        limit = await night.event("usage_limit")
        assert (limit.agent, limit.data["account"]) == ("one", "ada")
        assert limit.data["until"] > await night.watch.now() + 7 * 86_400_000, "until the reset that was named"
        claims = [event.agent for event in await night.told("task_claimed")]
        assert claims == ["one", "two"]
        more = [await night.watch.submit(f"n{number}", role="coder") for number in range(3)]
        for id_ in more:
            assert (await night.ended(id_)).state == "done"
        assert {event.agent for event in await night.told("task_claimed")} == {"one", "two"}
        (parked,) = await night.watch.services()
        assert parked.id == "ada"
        (said,) = [line for line in night.lines if "account ada is parked until" in line]
        assert said.endswith(", 0 tasks wait"), "another account takes them"

        async def told() -> bool:
            return (await posts(night))["one"].waits == "ada is parked"

        await night.until(told)

    one = standin("one", role="coder", account="ada", command=replay(tmp_path, "claude-subscription"))
    # It takes what the first one leaves: it is not there before that.
    gate = replay(tmp_path, "claude-success", name="second")
    two = standin("two", role="coder", account="grace", command=gate)
    seen: list[bool] = []

    async def played(night: Night) -> None:
        supervisor = night.supervisor
        assert supervisor is not None
        second = next(one for one in supervisor._dispatchers if one.spec.name == "two")
        hindrance, second._hindrance = second._hindrance, lambda: "" if seen else "it is not its turn"

        async def open_second() -> None:
            await night.event("usage_limit")
            seen.append(True)
            second._hindrance = hindrance
            second.news.fire()

        opening = asyncio.ensure_future(open_second())
        await scene(night)
        await opening

    night(tmp_path, played, one, two, policies={"": QUICK})


@pytest.mark.parametrize("stream", ["claude-context", "codex-context"])
def test_a_full_context_is_asked_about_and_not_tried_cold_again(tmp_path: Path, stream: str) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("big")
        asked = await night.event("question_asked")
        assert asked.task == id_
        assert "a full context is not retried" in asked.data["text"]
        assert len(await night.told("task_claimed")) == 1
        row = await night.watch.task(id_)
        assert row is not None
        assert row.waits

    night(tmp_path, scene, standin(command=replay(tmp_path, stream)), policies={"": QUICK})


@pytest.mark.row("F5")
def test_an_attempt_that_met_a_limit_is_not_said_to_have_failed(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        id_ = await night.watch.submit("job", retries=0)
        await night.event("usage_limit")

        async def told() -> list[str]:
            return [line for line in night.lines if "“job”: usage limit: " in line]

        assert len(await night.until(told)) == 1
        assert not any("failed at" in line for line in night.lines), night.lines
        await night.watch.cancel(id_)

    night(tmp_path, scene, standin(account="acme", command=replay(tmp_path, "codex-minutes")), policies={"": QUICK})


def accounts_of(stage: Stage, folder: Path, said: list[str]) -> tuple[Accounts, AgentSpec]:
    plan = SupervisorPlan(Fleet(), StateDir(folder / ".allswell"), clock=stage.clock, tell=said.append)
    return Accounts(stage.watch, plan), AgentSpec(name="ada", account="acme", command=("x", "{prompt}"))


def test_a_reset_that_was_waited_for_and_is_named_again_is_asked_about(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        said: list[str] = []
        accounts, spec = accounts_of(stage, tmp_path, said)
        limit = UsageLimit("try again at 6:19 PM", at=Millis(stage.clock.wall() + 600_000))
        assert await accounts.park(spec, limit) == await stage.watch.now() + 600_000
        await asyncio.sleep(300)
        await accounts.park(spec, limit)  # one that was at work has met it, too
        assert await stage.watch.questions() == []
        await asyncio.sleep(302)
        assert await accounts.park(spec, limit) == await stage.watch.now() + 900_000, "and it is tried again by itself"
        (question,) = await stage.watch.questions()
        assert "Account acme: the account is limited again and again (it named a reset that has passed" in question.text
        assert "It is tried again by itself" in question.text
        assert [option.key for option in question.options] == ["mended", "later"]
        assert f"allswell why {question.id}" in said[-1]
        await asyncio.sleep(1_000)
        await accounts.park(spec, UsageLimit("x", at=Millis(stage.clock.wall() + 600_000)))
        assert len(await stage.watch.questions()) == 1, "another reset is waited for as the first one was"

    play(scene)


@pytest.mark.row("F5")
def test_a_limit_that_returns_five_times_is_asked_about(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        accounts, spec = accounts_of(stage, tmp_path, [])
        for times in range(4):
            await accounts.park(spec, UsageLimit("429"))
            await asyncio.sleep(901)
            assert await stage.watch.questions() == [], times
        accounts.answered("acme")
        for _ in range(5):
            assert await stage.watch.questions() == [], "its provider had answered"
            await accounts.park(spec, UsageLimit("429"))
            await asyncio.sleep(901)
        (question,) = await stage.watch.questions()
        assert "5 times in a row: 429" in question.text

    play(scene)


def test_who_says_that_a_limited_account_is_mended_has_it_tried_at_once(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        accounts, spec = accounts_of(stage, tmp_path, [])
        for _ in range(5):
            await asyncio.sleep(901)
            await accounts.park(spec, UsageLimit("429"))
        (question,) = await stage.watch.questions()
        await stage.watch.answer(question.id, "mended")
        (service,) = await stage.watch.services()
        assert service.state.parked_until is None
        assert shut(service, await stage.watch.now()) is None

    play(scene)


def test_a_client_that_tries_again_parks_its_account_no_more_often_than_it_must(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        accounts, spec = accounts_of(stage, tmp_path, [])
        for attempt, delay in enumerate((500, 1_000, 2_000, 4_000, 8_000, 16_000, 120_000), start=1):
            await accounts.hold_back(
                spec, ProviderRefusal(ErrorClass.RATE_LIMIT, 429, attempt, 10, Millis(delay)), 60_000
            )
            (service,) = await stage.watch.services()
            parked = service.state.parked_until
            assert parked is not None
            assert parked >= await stage.watch.now() + delay, "until its next try"
            await asyncio.sleep(delay / 1_000)
        assert len(await stage.told("service_parked")) == 2

    play(scene)


def test_it_is_said_once_until_when_an_account_is_parked_and_how_many_tasks_wait(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        said: list[str] = []
        spec = AgentSpec(name="ada", account="acme", command=("x", "{prompt}"), role="coder")
        other = AgentSpec(name="grace", command=("x", "{prompt}"), role="critic")
        fleet = Fleet({"ada": spec, "grace": other})
        accounts = Accounts(stage.watch, SupervisorPlan(fleet, StateDir(tmp_path), clock=stage.clock, tell=said.append))
        for role in ("coder", "coder", "critic"):
            await stage.watch.submit("x", role=role)
        for _ in range(2):
            until = await accounts.park(spec, UsageLimit("x", at=Millis(stage.clock.wall() + 3_600_000)))
            await accounts.tell_parked(spec, until)
        (line,) = said
        assert re.fullmatch(r"account acme is parked until (\w+ )?\d\d:\d\d, 2 tasks wait", line)

    play(scene)


@pytest.mark.row("F5", "O6")
def test_a_limit_reaches_agents_of_the_account_that_already_wait_for_a_task(tmp_path: Path) -> None:
    async def scene(night: Night) -> None:
        async def all_wait() -> bool:
            return len(await posts(night)) == 5

        await night.until(all_wait)
        id_ = await night.watch.submit("first", role="coder", retries=0)
        await night.event("usage_limit")

        async def free_again() -> bool:
            return (await night.task(id_)).record.handover is not None

        await night.until(free_again)
        await asyncio.sleep(0.3)  # they look for tasks again and again meanwhile
        assert len(await night.told("task_claimed")) == 1
        await night.watch.cancel(id_)

    limited = replay(tmp_path, "claude-subscription")
    agents = [standin(f"n{number}", role="coder", account="ada", command=limited) for number in range(5)]
    night(tmp_path, scene, *agents, policies={"": QUICK})
