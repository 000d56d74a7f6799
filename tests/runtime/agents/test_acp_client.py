"""The client that speaks ACP, against the library's agent side in one process: what it prints, asks and refuses."""
# ruff: noqa: ANN401 - what comes is the library's

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import acp
import msgspec
import pytest

from allswell.domain.agents.conversation import Conversation
from allswell.domain.agents.denied import call_text
from allswell.domain.agents.output import LONGEST_LINE, ToolCall, ToolCallResult, parse
from allswell.domain.ids import Millis, QuestionId
from allswell.domain.question import Question
from allswell.errors import Refused, Unavailable
from allswell.runtime.agent_socket import AnyWord, AskMessage, LookMessage, SocketReply
from allswell.runtime.agents import acp as client
from allswell.runtime.agents.acp import AcpTurn, AgentPipe, AttemptClient, SessionPrinter, shortened
from tests.clients.acp_agent import SESSION, ScriptedAgent

QUESTION = QuestionId("q_1")


class Humans:
    """The attempt's socket: whom the client asks."""

    def __init__(self, choice: str | None = "allow_once", refuses: Exception | None = None) -> None:
        self.asked: list[AskMessage] = []
        self.looks = 0
        self.choice = choice
        self._refuses = refuses

    async def say(self, word: AnyWord) -> SocketReply:
        if self._refuses is not None:
            raise self._refuses
        if isinstance(word, AskMessage):
            self.asked.append(word)
            return SocketReply(question=self._question(None))
        assert isinstance(word, LookMessage)
        self.looks += 1
        if self.looks == 1:
            raise Unavailable("the store is away for a moment")
        return SocketReply(question=self._question(self.choice))

    def _question(self, choice: str | None) -> Question:
        closed = None if choice is None else Millis(2)
        text = self.asked[-1].text
        return Question(QUESTION, None, None, "agent", text, (), Millis(1), "a", closed, choice)


class Held:
    """What came of one turn."""

    def __init__(self, code: int, agent: ScriptedAgent, printed: bytes) -> None:
        self.code = code
        self.agent = agent
        self.lines = [msgspec.json.decode(line) for line in printed.splitlines()]
        self.raw = printed.splitlines()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line["acp"] for line in self.lines if line["type"] == f"acp.{kind}"]

    def told(self, what: str) -> list[dict[str, Any]]:
        return [one for one in self.agent.told if one["what"] == what]


@pytest.fixture
def hold(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Held]:
    monkeypatch.setattr(client, "_LOOK", 0.01)

    def play(
        script: str, humans: Humans | None = None, *, session: str = "", resumes: str = "resume", **more: Any
    ) -> Held:
        agent = ScriptedAgent(script, resumes=resumes)
        code = asyncio.run(_hold(agent, (humans or Humans()).say, session, **more))
        return Held(code, agent, capfdbinary.readouterr().out)

    return play


async def _hold(
    agent: ScriptedAgent, say: client.Say, session: str, during: Callable[[AcpTurn], object] | None = None
) -> int:
    ours, its = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=client.MESSAGE_MOST)
    agent_reader, agent_writer = await asyncio.open_connection(sock=its)
    side = asyncio.ensure_future(
        acp.run_agent(cast("acp.Agent", agent), agent_writer, agent_reader, use_unstable_protocol=True)
    )
    turn = AcpTurn("the prompt", session, say)
    turning = asyncio.ensure_future(turn.hold(AgentPipe(reader, writer)))
    if during is not None:
        while not any(one["what"] in ("hang", "permission_asked") for one in agent.told):
            await asyncio.sleep(0.005)
        during(turn)
    try:
        return await asyncio.wait_for(turning, 20)
    finally:
        agent_writer.close()
        await asyncio.wait_for(side, 20)
        await asyncio.gather(agent_writer.wait_closed(), return_exceptions=True)


def test_one_turn_is_printed_as_lines_that_the_one_parser_reads(hold: Callable[..., Held]) -> None:
    held = hold("think:let me see,plan:write it,plan:write it,tool:npm test:passed,usage:500:1000:0.25,say:It is made.")
    assert held.code == 0
    assert [line["type"].removeprefix("acp.") for line in held.lines if line["type"] != "acp.working"] == [
        *("session", "thought", "plan", "call", "result", "usage", "message", "end")
    ], "the same plan once, a call once its input is known, a message when it is whole"
    talk, calls = Conversation(), []
    for raw in held.raw:
        read = parse(raw)
        assert (read.dialect, read.session) == ("acp", SESSION)
        assert read.what
        talk.hear(read, 0)
        calls += [event for event in read.events if isinstance(event, ToolCall | ToolCallResult)]
    assert talk.message == "It is made."
    assert calls[-2:] == [ToolCall("call_1", "shell", {"command": "npm test"}), ToolCallResult("call_1", "passed")]
    (end,) = held.of("end")
    assert end["cost_usd"] == 0.25
    assert (end["usage"]["input_tokens"], end["usage"]["cache_read_input_tokens"]) == (2, 7)


def test_only_the_answer_that_allows_this_call_allows_it(hold: Callable[..., Held]) -> None:
    humans = Humans("allow_once")
    held = hold("ask:rm -rf build", humans)
    (asked,) = humans.asked
    assert asked.hold
    assert asked.text.endswith(": shell(rm -rf build)")
    assert [option.key for option in asked.options] == ["allow_once", "reject_once"], "no way that holds for longer"
    (answer,) = held.told("permission")
    assert (answer["outcome"], answer["optionId"]) == ("selected", "once")
    assert held.of("permission")[0]["question"] == QUESTION
    assert held.of("decided")[0]["text"].startswith("this call was allowed: ")


@pytest.mark.parametrize("choice", ["reject_once", "withdrawn", "", "allow", "allow_always", "skip"])
def test_every_other_answer_refuses(hold: Callable[..., Held], choice: str) -> None:
    (answer,) = hold("ask:rm -rf build", Humans(choice)).told("permission")
    assert (answer["outcome"], answer["optionId"]) == ("selected", "no")


@pytest.mark.parametrize("error", [Refused("quota", "too many questions"), Unavailable("the store is away")])
def test_where_no_human_can_be_asked_the_call_is_refused(hold: Callable[..., Held], error: Exception) -> None:
    held = hold("ask:rm -rf build", Humans(refuses=error))
    assert held.told("permission")[0]["optionId"] == "no"
    assert "no human could be asked" in held.of("note")[0]["text"]


@pytest.mark.parametrize("script", ["ask:ls:allow_once", f"ask:{'x' * 4_001}"])
def test_what_cannot_be_allowed_alone_or_read_whole_is_refused_without_a_question(
    hold: Callable[..., Held], script: str
) -> None:
    humans = Humans()
    held = hold(script, humans)
    assert held.told("permission")[0]["optionId"] == "no"
    assert humans.asked == []
    assert "It is refused: " in held.of("note")[0]["text"]


def test_an_agent_that_offers_no_way_to_refuse_is_told_that_it_was_cancelled(hold: Callable[..., Held]) -> None:
    (answer,) = hold("ask:ls:reject_once", Humans("reject_once")).told("permission")
    assert answer["outcome"] == "cancelled"


def test_a_call_is_shown_with_escapes_where_it_would_read_as_something_else() -> None:
    call = client.SeenCall("c", kind="execute", input={"command": "rm x\u202e # ylno daer"})
    assert "\\u202e" in call_text(client.asked_call(call))
    odd = client.SeenCall("c", tool="Re\u0430d", input={"path": "x"})
    assert client.asked_call(odd).barred


def test_a_turn_that_is_cancelled_ends_by_itself_and_its_open_permission_with_it(hold: Callable[..., Held]) -> None:
    held = hold("say:half of it,hang", during=AcpTurn.cancel)
    assert held.code == 1
    assert held.told("cancel") == [{"what": "cancel", "session": SESSION}]
    assert held.of("end")[0]["stop"] == "cancelled"
    assert held.of("message") == [{"text": "half of it"}]
    (answer,) = hold("ask:ls,hang", Humans(None), during=AcpTurn.cancel).told("permission")
    assert answer["outcome"] == "cancelled"


@pytest.mark.parametrize("resumes", ["resume", "load"])
def test_a_session_goes_on_and_what_was_said_in_it_is_not_said_again(hold: Callable[..., Held], resumes: str) -> None:
    held = hold("say:new//say:back again", session=SESSION, resumes=resumes)
    assert held.code == 0
    assert held.told(f"{resumes}_session")[0]["cwd"] == str(Path.cwd())
    assert held.of("session")[0]["resumed"] is True
    assert held.of("message") == [{"text": "back again"}]


@pytest.mark.parametrize("script, resumes", [("say:x//forgotten", "resume"), ("say:x", "neither")])
def test_an_agent_that_cannot_go_on_is_not_heard_of(hold: Callable[..., Held], script: str, resumes: str) -> None:
    held = hold(script, session=SESSION, resumes=resumes)
    assert (held.code, held.lines) == (1, [])
    assert held.told("prompt") == []


@pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal"])
def test_a_turn_that_ended_for_another_reason_is_not_done(hold: Callable[..., Held], reason: str) -> None:
    held = hold(f"say:half,stop:{reason}")
    assert held.code == 1
    assert held.of("end")[0]["stop"] == reason


def test_errors_of_the_protocol_are_the_end_with_what_the_agent_says_of_them(hold: Callable[..., Held]) -> None:
    held = hold("fail:the model is gone")
    assert (held.code, held.of("end")[0]["error"]) == (1, "Internal error: the model is gone")
    held = hold("login")
    assert (held.code, held.of("end")[0]["code"]) == (1, -32000)
    assert "version 0 of ACP" in hold("say:x", resumes="old").of("end")[0]["error"]


def test_neither_files_nor_terminals_are_offered(hold: Callable[..., Held]) -> None:
    held = hold("reach")
    assert [one["code"] for one in held.told("refused")] == [-32601] * 3
    assert held.told("reached") == []


def test_lines_that_are_no_messages_are_skipped_and_one_that_never_ends_is_the_end() -> None:
    async def scene() -> None:
        ours, its = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=1_000)
        pipe = AgentPipe(reader, writer)
        its.sendall(
            b'Welcome!\n[1]\n{"id": [1]}\n{"method": 3}\n{"id": 1, "error": "no"}\n\xff\n{"id": 1, "result": {}}\n'
        )
        its.sendall(b"[" * 900 + b"\n")
        assert await pipe.receive() == {"id": 1, "result": {}}
        its.sendall(b'{"x": "' + b"x" * 3_000)
        assert await pipe.receive() is None
        assert "more than" in pipe.fault
        await pipe.close()
        its.close()

    asyncio.run(scene())


def test_everything_that_is_printed_is_bounded(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    wide = {f"k{number}" * 100: "\0" * 100_000 for number in range(1_000)}
    printer = SessionPrinter()
    printer.session = SESSION
    heard = AttemptClient(printer, Humans().say)
    for update in (
        {"sessionUpdate": "tool_call", "toolCallId": "c" * 9_999, "title": "t" * 99_999, "rawInput": wide},
        {"sessionUpdate": "tool_call_update", "toolCallId": "d", "rawInput": deep, "status": "completed"},
        *({"sessionUpdate": "agent_message_chunk", "content": {"text": "é" * 50_000}} for _ in range(5)),
        {"sessionUpdate": "plan", "entries": [{"content": "p" * 99_999}] * 99},
        {
            "sessionUpdate": "usage_update",
            "used": "x" * 99_999,
            "size": None,
            "cost": {"currency": "USD", "amount": "1"},
        },
        {"sessionUpdate": "never heard of"},
    ):
        heard.hear(update)
    heard.flush()
    lines = capfdbinary.readouterr().out.splitlines()
    assert len(lines) >= 5
    for raw in lines:
        assert len(raw) <= client._LINE_MOST < LONGEST_LINE
        assert parse(raw).what
    many = SessionPrinter(), client.SeenCalls()
    for number in range(1_000):
        many[1].merge({"toolCallId": str(number)})
    assert len(many[1]._calls) <= client._CALLS_MOST


def test_two_texts_that_were_cut_are_told_apart() -> None:
    one, other = shortened("x" * 9_000 + "a", 100), shortened("x" * 9_000 + "b", 100)
    assert one != other
    assert len(str(one)) < 200


def test_what_codex_acp_tells_beside_the_protocol_counts(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    heard = AttemptClient(SessionPrinter(), Humans().say)
    told = {"codex": {"threadStatus": {"type": "systemError"}}}
    active = {"codex": {"threadStatus": {"type": "active"}}}
    seen = []
    for more in ({"_meta": told}, {"title": "x"}, {"_meta": active}):
        heard.hear({"sessionUpdate": "session_info_update", **more})
        seen.append(heard.broken)
    assert seen == [True, True, False]
    for data in ("one\n", "two\n"):
        meta = {"terminal_output_delta": {"data": data, "terminal_id": "c"}}
        heard.hear({"sessionUpdate": "tool_call_update", "toolCallId": "c", "_meta": meta})
    heard.hear({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"})
    assert b'"text":"one\\ntwo\\n"' in capfdbinary.readouterr().out


def test_a_reader_that_is_gone_does_not_end_the_turn(
    hold: Callable[..., Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", 0) as gone:
        monkeypatch.setattr("sys.stdout", type("Out", (), {"buffer": gone})())
        assert hold("say:hello").code == 0
