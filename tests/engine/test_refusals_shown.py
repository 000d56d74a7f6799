"""What everybody is shown while a provider refuses: `agents`, `watch`, `why`, and the front page's verdict."""

from __future__ import annotations

import asyncio

import msgspec

from allswell.domain.agents.status import PRESENCE_PREFIX, AgentSlot, Presence
from allswell.domain.ids import AgentId, Millis
from allswell.domain.service.retry import ErrorClass
from allswell.domain.service.service import lets_in, shut
from allswell.engine.status.agents import look
from allswell.views.agent import AgentsShape
from tests.engine.stage import Stage, play
from tests.engine.test_explain import asked, said

WORDS = "waiting for the provider: 429, try 6 of 10"


async def tell(stage: Stage, *posts: AgentSlot) -> None:
    now = await stage.watch.now()
    kept = Presence("main", "m", "here", 1, "boot", "", 0, now, now, 10_000_000, posts=posts)
    before = (await stage.watch.views.view_kept(PRESENCE_PREFIX)).get(PRESENCE_PREFIX + "main")
    assert await stage.watch.swap(PRESENCE_PREFIX + "main", before, msgspec.json.encode(kept).decode())


def test_a_provider_that_is_waited_for_is_shown_and_no_proof_of_progress() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a", timeout="1h")
        lease = await watch.claim(agent="ada")
        assert lease is not None
        proof = await watch.now()
        await asyncio.sleep(300)
        await lease.checkin()  # as its supervisor does in its place, while it waits
        post = AgentSlot(
            "ada", "ada", "command", None, task, "a", 1, "waiting for the provider", "429, try 6 of 10", proof
        )
        await tell(stage, post)
        (member,) = (await look(watch.views)).members
        assert (member.health, member.state) == ("waiting for the provider", WORDS)
        assert member.proof_at == proof, "what was said in its place is none"
        (shown,) = AgentsShape.of(await look(watch.views), 0).agents
        assert (shown.health, shown.evidence) == ("waiting for the provider", "429, try 6 of 10")
        assert f"ada is {WORDS}." in said(await asked(watch, task))

    play(scene)


def test_an_account_that_is_refused_is_the_reason_and_names_its_question() -> None:
    async def scene(stage: Stage) -> None:
        watch = stage.watch
        task = await watch.submit("a", role="coder")
        await watch.ask_for_help("acme", ErrorClass.AUTH, "refused", "401", holds=True)
        waits = "acme is refused by its provider, and waits for your answer"
        await tell(stage, AgentSlot("ada", "ada", "command", "coder", waits=waits, account="acme"))
        told = await asked(watch, task)
        assert (
            "ada uses “acme”, which is refused by its provider (q_@acme.1); its agents wait for your answer."
            in said(told)
        )
        assert "allswell why q_@acme.1" in [todo.command for todo in told.todo]
        await watch.answer("q_@acme.1", "mended")
        row = (await watch.views.view_services())["acme"]
        now = await watch.now()
        assert shut(row, now) is None
        assert lets_in(row, AgentId("ada"), Millis(now + 5_000))

    play(scene)


def test_an_agent_that_has_just_been_given_a_task_is_not_idle() -> None:
    async def scene(stage: Stage) -> None:
        await tell(stage, AgentSlot("ada", "ada", "command", None))
        await stage.watch.submit("a")
        assert [one.health for one in (await look(stage.watch.views)).members] == ["idle"]
        await stage.watch.claim(agent="ada")
        assert [one.health for one in (await look(stage.watch.views)).members] == ["spawning"]

    play(scene)
