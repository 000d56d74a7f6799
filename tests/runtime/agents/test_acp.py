"""Agents that speak ACP under `up`: a scripted one, in processes of its own, with our client in front of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from allswell import Policy
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.service.retry import RetryPolicy
from tests.clients import acp_agent
from tests.clients.acp_agent import SESSION
from tests.runtime.supervisor.stage import Night, Scene, night

QUICK = Policy(retry=RetryPolicy(backoff=50))
PROGRAM = (sys.executable, acp_agent.__file__)


def agent(folder: Path, script: str, **fields: Any) -> AgentSpec:  # noqa: ANN401 - fields of the agent
    given = {"prompt": "{payload}", "grace": 8_000, **fields}
    return AgentSpec(acp=(*PROGRAM, script), env={"ACP_TOLD": str(folder / "told")}, **given)


def play(folder: Path, scene: Scene, *agents: AgentSpec) -> None:
    """A night in a folder of its own, so that what the agent notes is no change of its."""
    (folder / "work").mkdir()
    night(folder / "work", scene, *agents, policies={"": QUICK})


def told(folder: Path, what: str) -> list[dict[str, Any]]:
    """What the agent was told of this kind."""
    noted = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    return [one for one in noted if one["what"] == what]


@pytest.mark.row("O2", "F2")
def test_an_agent_that_speaks_acp_is_prompted_heard_and_done(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")
        assert (await stage.ended(task)).state == "done"
        result = await stage.watch.result(task)
        assert result == {"exit_code": 0, "message": "All of it is made.", "session": SESSION, "changed": 0}
        spent = (await stage.watch.views.view_spent("task", (task,)))[task]
        assert (spent.cost, spent.given, spent.written) == (250_000, 9, 3)

    play(tmp_path, scene, agent(tmp_path, "tool:npm test:passed,usage:500:1000:0.25,say:All of it is made.", name="a"))
    (prompt,) = told(tmp_path, "prompt")
    assert prompt["text"] == "the whole prompt"
    (hello,) = told(tmp_path, "initialize")
    offered = hello["offered"]
    assert not any((offered["terminal"], offered["fs"]["readTextFile"], offered["fs"]["writeTextFile"]))


@pytest.mark.realtime
def test_what_hangs_is_cancelled_first_and_gone_on_with_in_its_session(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")
        assert (await stage.ended(task)).state == "done"
        assert (await stage.watch.result(task))["message"] == "Back again."
        (event,) = await stage.told("agent_resumed")
        assert event.data["session"] == SESSION
        (kept,) = stage.home.receipts.of_task(task)
        assert kept.receipt.status == "idle"
        assert kept.receipt.open_call.startswith("running: sleep 300")
        (stopped,) = await stage.told("agent_stopped")
        assert not stopped.data["killed"]

    script = "tool:npm test,begin:sleep 300,hang//say:Back again."
    play(tmp_path, scene, agent(tmp_path, script, name="a", idle=1_500))
    assert len(told(tmp_path, "cancel")) == 1
    (resumed,) = told(tmp_path, "resume_session")
    assert resumed["session"] == SESSION
    first, second = told(tmp_path, "prompt")
    assert first["text"] == "the whole prompt"
    assert second["text"].startswith("This goes on with your own session")
    assert "the whole prompt" not in second["text"]


@pytest.mark.realtime
def test_a_permission_is_a_question_whose_answer_reaches_the_running_session(tmp_path: Path) -> None:
    async def scene(stage: Night) -> None:
        task = await stage.watch.submit("mend it", payload="the whole prompt")

        async def asked() -> object:
            return await stage.watch.questions()

        await stage.until(asked)
        (question,) = await stage.watch.questions()
        assert question.text == "The agent asks for permission, and waits for the answer: shell(rm -rf build)"
        assert [(option.key, option.label) for option in question.options] == [
            ("allow_once", "Allow this call, this once"),
            ("reject_once", "Refuse this call"),
        ]
        began = time.monotonic()
        await stage.until(lambda: later(stage, began + 3.5))
        assert stage.home.receipts.of_task(task) == [], "who waits for a human is not idle"
        await stage.watch.answer(question.id, "allow_once", by="ada")
        assert (await stage.ended(task)).state == "done"
        assert (await stage.watch.result(task))["message"] == "It was allowed."

    async def later(stage: Night, moment: float) -> bool:
        return time.monotonic() >= moment

    play(tmp_path, scene, agent(tmp_path, "ask:rm -rf build", name="a", idle=2_500))
    (answer,) = told(tmp_path, "permission")
    assert (answer["outcome"], answer["optionId"]) == ("selected", "once")
