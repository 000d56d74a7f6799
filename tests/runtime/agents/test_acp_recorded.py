"""Our client for ACP, and the double of an agent, held to what real agents and our client have said to each other."""

# ruff: noqa: ANN401 - what is compared is any JSON

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any, cast

import acp
import msgspec
import pytest

from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.output import AgentLine, ToolCallResult, TurnEnded, not_done, parse
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.repetition import RepetitionFinder
from allswell.domain.service.retry import ErrorClass
from allswell.runtime.agents import acp as client
from allswell.runtime.agents.acp import AcpTurn, AgentPipe
from tests.clients.acp_agent import ScriptedAgent
from tests.clients.wire import SESSION, Frame, RecordedAgent, kind_of, recorded, recordings, turns
from tests.runtime.agents.test_acp_client import Humans


def choice_in(frames: list[tuple[str, Frame]]) -> str | None:
    """What the human chose whom the recording asked; None where that is not recorded."""
    asked = {frame["id"]: frame for by, frame in frames if frame.get("method") == "session/request_permission"}
    for by, frame in frames:
        if by == "client" and frame.get("id") in asked and "result" in frame:
            chosen = frame["result"]["outcome"].get("optionId")
            options = asked[frame["id"]]["params"]["options"]
            return next((one["kind"] for one in options if one["optionId"] == chosen), None)
    return None


async def replay(frames: list[tuple[str, Frame]]) -> tuple[int, RecordedAgent]:
    """One turn of our client's against the agent of a recording."""
    ours, its = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=client.MESSAGE_MOST)
    agent_reader, agent_writer = await asyncio.open_connection(sock=its, limit=client.MESSAGE_MOST)
    agent = RecordedAgent(frames)
    goes_on = any(frame.get("method") in ("session/resume", "session/load") for _, frame in frames)
    turn = AcpTurn("the prompt", SESSION if goes_on else "", Humans(choice_in(frames)).say)
    playing = asyncio.ensure_future(agent.play(agent_reader, agent_writer))
    turning = asyncio.ensure_future(turn.hold(AgentPipe(reader, writer)))
    stopping = asyncio.ensure_future(agent.cancels.wait())
    await asyncio.wait((turning, stopping), timeout=20, return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        turn.cancel()
    stopping.cancel()
    code = await asyncio.wait_for(turning, 20)
    await asyncio.wait_for(playing, 20)
    agent_writer.close()
    return code, agent


@pytest.mark.parametrize("name", recordings())
def test_to_an_agent_that_says_what_a_real_one_said_our_client_says_what_it_said_then(
    name: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(client, "_LOOK", 0.01)
    for frames in turns(name):
        _, agent = asyncio.run(replay(frames))
        assert agent.differs == []
        for line in capfdbinary.readouterr().out.splitlines():
            assert parse(line).what, line


def lines_of(
    name: str, part: int, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> list[AgentLine]:
    """What is read of one process of a recording."""
    monkeypatch.setattr(client, "_LOOK", 0.01)
    asyncio.run(replay(turns(name)[part]))
    return [parse(line) for line in capfdbinary.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("acp-claude-usage-limit", ErrorClass.RATE_LIMIT, "You've hit your 5-hour limit"),
        ("acp-codex-usage-limit", ErrorClass.RATE_LIMIT, "hit your usage limit"),
        ("acp-codex-401", ErrorClass.AUTH, "the agent wants a login: Authentication required"),
    ],
)
def test_what_an_agent_says_of_its_provider_at_the_end_is_why_it_was_not_done(
    name: str,
    error: ErrorClass,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    last = lines_of(name, 0, monkeypatch, capfdbinary)[-1]
    failure = not_done(last)
    assert failure is not None
    assert failure.error is error
    assert message in failure.message
    limits = [event for event in last.events if isinstance(event, UsageLimit)]
    assert len(limits) == (error is ErrorClass.RATE_LIMIT)
    assert all(limit.wall is not None for limit in limits), "the reset that it names is waited for"


def test_tries_of_an_agent_whose_provider_refuses_are_heard(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = lines_of("acp-codex-429", 0, monkeypatch, capfdbinary)
    refusals = [event for line in lines for event in line.events if isinstance(event, ProviderRefusal)]
    assert [refusal.words for refusal in refusals] == [f"429, try {number} of 5" for number in (1, 2, 3)]
    assert not any(line.progress for line in lines if line.what == "retry")
    assert not_done(lines[-1]) is None


@pytest.mark.parametrize("name", ["acp-claude-finishes", "acp-codex-finishes"])
def test_what_a_call_brought_is_not_what_was_said_of_it_before(
    name: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Both say what a call is about in the field in which others bring its answer."""
    lines = lines_of(name, 0, monkeypatch, capfdbinary)
    (result,) = [event for line in lines for event in line.events if isinstance(event, ToolCallResult)]
    assert result.text in ("", "(Bash completed with no output)")


@pytest.mark.parametrize("name", ["acp-claude-repeats-itself", "acp-codex-repeats-itself"])
def test_a_circle_is_seen_although_a_call_is_announced_before_its_input_is_known(
    name: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    finder = RepetitionFinder(3)
    for line in lines_of(name, 0, monkeypatch, capfdbinary):
        for event in line.events:
            if not isinstance(event, TurnEnded):
                finder.hear(event)
    assert finder.found is not None
    assert finder.found.rounds >= 6


# --- the double -------------------------------------------------------------------------------------------------------

UNRECORDED = {"agent_thought_chunk", "plan"}
"""What the double sends and no recording has: the fake provider's models neither think nor plan."""
SCRIPTS = (
    "say:hello there,tool:npm test:passed,usage:500:1000:0.25",
    "ask:rm -rf build",
    "think:so,plan:first",
    "hang",
    "fail:the model is gone",
)


async def said_by(script: str, session: str = "") -> list[Frame]:
    """All that the double sends in one turn, as it goes over the wire."""
    ours, its = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=client.MESSAGE_MOST)
    agent_reader, agent_writer = await asyncio.open_connection(sock=its)
    double = cast("acp.Agent", ScriptedAgent(script))
    side = asyncio.ensure_future(acp.run_agent(double, agent_writer, agent_reader, use_unstable_protocol=True))
    frames: list[Frame] = []

    def send(**frame: object) -> None:
        writer.write(msgspec.json.encode({"jsonrpc": "2.0", **frame}) + b"\n")

    async def until_answered(id_: int) -> None:
        while True:
            frame = json.loads(await asyncio.wait_for(reader.readline(), 20))
            frames.append(frame)
            if frame.get("method") == "session/request_permission":
                send(id=frame["id"], result={"outcome": {"outcome": "selected", "optionId": "once"}})
            if frame.get("id") == id_ and "method" not in frame:
                return

    send(id=0, method="initialize", params={"protocolVersion": 1})
    await until_answered(0)
    send(id=1, method="session/new", params={"cwd": "/", "mcpServers": []})
    await until_answered(1)
    send(id=2, method="session/prompt", params={"sessionId": SESSION, "prompt": [{"type": "text", "text": "x"}]})
    if script == "hang":
        send(method="session/cancel", params={"sessionId": SESSION})
    await until_answered(2)
    writer.close()
    await asyncio.wait_for(side, 20)
    agent_writer.close()
    return frames


def differences(sent: Any, kept: Any, place: str = "") -> Iterator[str]:
    """Where the double sends what a real agent does not: another field, or another kind of value in it."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            if name not in kept:
                yield f"{place}.{name} is not sent"
            else:
                yield from differences(value, kept[name], f"{place}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list) and sent and kept:
        yield from differences(sent[0], kept[0], f"{place}[]")
    elif type(sent) is not type(kept) and None not in (sent, kept) and not {type(sent), type(kept)} <= {int, float}:
        yield f"{place} is {sent!r}, and was {kept!r}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_frame_of_the_double_has_the_shape_of_one_that_a_real_agent_has_sent(script: str) -> None:
    kept: dict[str, list[Frame]] = {}
    for name in recordings():
        for by, frame in recorded(name):
            if by == "agent":
                kept.setdefault(kind_of(frame), []).append(frame)
    for frame in asyncio.run(said_by(script)):
        kind = kind_of(frame)
        if kind in UNRECORDED:
            continue
        assert kind in kept, f"no real agent has sent {kind}: {frame}"
        odd = min((list(differences(frame, one)) for one in kept[kind]), key=len)
        assert odd == [], f"{kind}: {frame}"
