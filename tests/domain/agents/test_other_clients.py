"""What opencode prints, from recordings: its session, its calls, what each step took, and how it ended."""

from __future__ import annotations

import msgspec
import pytest

from allswell.domain.agents.conversation import Conversation, LogKind, entries
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.output import (
    AgentLine,
    AgentText,
    ToolCall,
    ToolCallResult,
    denied_in,
    last_line_in,
    not_done,
    parse,
)
from allswell.domain.agents.session import has_refused, resumed, resumed_by
from allswell.domain.agents.spending import UsageCounter
from allswell.domain.service.retry import ErrorClass
from tests.clients.stand_in import CAPTURED


def lines(name: str) -> list[AgentLine]:
    return [parse(line) for line in (CAPTURED / f"{name}.jsonl").read_bytes().splitlines()]


def test_what_it_says_and_calls_is_read_as_it_comes() -> None:
    read = lines("opencode-success")
    assert {line.dialect for line in read} == {"opencode"}
    assert len({line.session for line in read}) == 1
    assert all(line.progress for line in read)
    events = [event for line in read for event in line.events]
    assert ToolCall("call_1", "bash", {"command": "echo hi", "description": "x"}) in events
    assert ToolCallResult("call_1", "hi") in events
    assert AgentText("All of it is made.") in events
    assert not_done(read[-1]) is None
    talk = Conversation()
    for line in read:
        talk.hear(line, 0)
    assert talk.message == "All of it is made."


def test_every_step_counts_with_its_cost_and_the_log_names_the_end_alone() -> None:
    counter = UsageCounter()
    assert [counter.hear_line(line) for line in lines("opencode-success")].count(True) == 2
    assert counter.total == Expense(36, 2, 2)
    shown = [
        entry.kind
        for line in (CAPTURED / "opencode-success.jsonl").read_bytes().splitlines()
        for entry in entries(line)
    ]
    assert shown == [LogKind.TOOL, LogKind.RESULT, LogKind.MESSAGE, LogKind.END]


def test_one_that_stopped_behind_a_call_that_it_was_not_permitted_to_make_is_not_done() -> None:
    """It ends with exit code 0, and has said nothing."""
    failure = not_done(lines("opencode-denied")[-1])
    assert failure is not None
    assert failure.error is ErrorClass.PERMANENT
    denied = denied_in((CAPTURED / "opencode-denied.jsonl").read_bytes())
    assert [call.text for call in denied.calls] == ["bash(echo hi)"]
    assert denied.calls[0].barred, "what a human answers us changes none of its settings"


def test_a_refused_login_is_the_accounts() -> None:
    (line,) = lines("opencode-login")
    assert not line.progress
    failure = not_done(line)
    assert failure is not None
    assert (failure.error, failure.status, failure.account) == (ErrorClass.AUTH, 401, True)


@pytest.mark.parametrize("part", [None, [], "x", {"state": 3, "tool": 7, "tokens": [1], "cost": "much"}])
@pytest.mark.parametrize("kind", ["step_start", "text", "reasoning", "tool_use", "step_finish", "error"])
def test_lines_with_something_else_in_them_are_read_all_the_same(kind: str, part: object) -> None:
    odd = msgspec.json.encode({"type": kind, "timestamp": 1, "sessionID": "ses_1", "part": part, "error": part})
    assert parse(odd).dialect == "opencode"
    assert entries(odd) is not None


SESSION = "ses_e0db200cdffeqhpK7mHIJKKyF7"


def test_its_session_goes_on_by_its_own_option() -> None:
    words = ("opencode", "run", "--format", "json", "--model", "a/b", "mend it")
    assert resumed(words, "opencode", SESSION, "go on") == (*words[:-1], "--session", SESSION, "go on")
    again = (*words[:-1], "--session", "ses_aaaaaaaaaaaa", "mend it")
    assert resumed(again, "opencode", SESSION, "go on") == (*words[:-1], "--session", SESSION, "go on")
    for odd in (("opencode", "acp"), (*words[:2], "--attach", "http://127.0.0.1:1", "x"), (*words, "two")):
        assert resumed(odd, "opencode", SESSION, "go on") is None
    assert resumed(words, "opencode", "latest", "go on") is None
    assert resumed_by("opencode", SESSION) == f"opencode --session {SESSION}"


def test_gemini_that_has_stopped_itself_in_a_loop_is_not_done_though_its_last_line_says_so() -> None:
    printed = (CAPTURED / "gemini-loop.jsonl").read_bytes()
    failure = not_done(last_line_in(printed))
    assert failure is not None
    assert failure.message == "it stopped by itself: Loop detected, stopping execution"
    *before, trouble, end = printed.splitlines(keepends=True)
    for well in ([*before, end], [*before, trouble.replace(b"Loop", b"Nothing"), end], [trouble, *before, end], [end]):
        assert not_done(last_line_in(b"".join(well) + b"\n\n")) is None
    assert last_line_in(b"").what == ""


UUID = "7ece8939-e317-4efc-88f5-ec9a042c1e7c"


def test_a_session_of_gemini_goes_on_with_its_options_and_another_prompt() -> None:
    words = ("gemini", "--skip-trust", "--output-format", "stream-json", "-m", "x", "-p", "mend it", "--yolo")
    warm = ("gemini", "--resume", UUID, *words[1:7], "go on", "--yolo")
    assert resumed(words, "gemini", UUID, "go on") == warm
    assert resumed(warm, "gemini", UUID, "go on") == warm
    for odd in (("gemini", "mend it"), ("gemini", "-i", "mend it"), (*words, "more"), ("gemini", "--prompt=mend it")):
        assert resumed(odd, "gemini", UUID, "go on") is None
    assert resumed(words, "gemini", "latest", "go on") is None


@pytest.mark.parametrize(
    "told, error, account",
    [
        ('[API Error: {"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}]', ErrorClass.AUTH, True),
        ('[API Error: {"error":{"code":400,"message":"API key not valid. Please pass one."}}]', ErrorClass.AUTH, True),
        ('[API Error: {"error":{"code":503,"message":"later"}}]', ErrorClass.SERVER, False),
        ("[API Error: it is gone]", ErrorClass.TRANSIENT, False),
    ],
)
def test_an_error_of_googles_that_gemini_hands_on_has_its_class_by_its_status(
    told: str, error: ErrorClass, account: bool
) -> None:
    failure = not_done(parse(msgspec.json.encode({**RESULT, "error": {"type": "Error", "message": told}})))
    assert failure is not None
    assert (failure.error, failure.account) == (error, account)


RESULT = {"type": "result", "timestamp": "2026-11-19T06:02:36.684Z", "status": "error", "stats": {}}


def test_a_client_whose_provider_refuses_has_not_refused_to_go_on() -> None:
    assert not has_refused("gemini", 145, 9_000, "[API Error: 401]", began=False)
    assert has_refused("gemini", 42, 9_000, "Error resuming session: Invalid session identifier", began=False)
    assert has_refused("opencode", 1, 9_000, "Error: Session not found", began=False)
    assert not has_refused("opencode", 1, 9_000, "invalid x-api-key", began=False)
