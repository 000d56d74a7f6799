"""Lines of the protocols that agents speak: which are steps, which only say that time passes, which are none."""

import pytest

from allswell.domain.agents.cost import Expense, Tokens, TokenUse
from allswell.domain.agents.output import (
    LONGEST_LINE,
    AgentLine,
    AgentText,
    MessageUsage,
    SessionStarted,
    ToolCall,
    ToolCallResult,
    TurnEnded,
    parse,
)
from allswell.domain.agents.session import resumed_by
from tests.clients.stand_in import CAPTURED

CLAUDE = ', "session_id": "3c4f-1"}'


def read_line(line: bytes) -> AgentLine | None:
    """A line of a protocol, without its events; None if it is no line that we know."""
    parsed = parse(line)
    return AgentLine(parsed.dialect, parsed.what, parsed.progress, parsed.session) if parsed.what else None


@pytest.mark.parametrize(
    "line, what",
    [
        ('{"type": "system", "subtype": "init", "model": "m", "tools": ["Bash"]' + CLAUDE, "system init"),
        (
            '{"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {}}]}'
            + CLAUDE,
            "tool_use Bash",
        ),
        ('{"type": "assistant", "message": {"content": [{"type": "text", "text": "so"}]}' + CLAUDE, "text"),
        (
            '{"type": "user", "message": {"content": [{"type": "tool_result", "is_error": true}]}' + CLAUDE,
            "tool_result",
        ),
        ('{"type": "user", "message": {"role": "user", "content": "plain words"}' + CLAUDE, "user"),
        ('{"type": "stream_event", "event": {"type": "content_block_delta"}' + CLAUDE, "content_block_delta"),
        ('{"type": "result", "subtype": "success", "total_cost_usd": 0.1' + CLAUDE, "success"),
    ],
)
def test_steps_of_claude(line: str, what: str) -> None:
    assert read_line(line.encode()) == AgentLine("claude", what, True, "3c4f-1")


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "system", "subtype": "api_retry", "attempt": 3' + CLAUDE,
        '{"type": "rate_limit_event", "rate_limit_info": {}' + CLAUDE,
        '{"type": "tool_progress", "elapsed_time_seconds": 30' + CLAUDE,
        '{"type": "stream_event", "event": {"type": "ping"}' + CLAUDE,
    ],
)
def test_what_only_says_that_time_passes_is_no_step(line: str) -> None:
    said = read_line(line.encode())
    assert said is not None
    assert not said.progress


@pytest.mark.parametrize(
    "line, what, session",
    [
        ('{"type":"thread.started","thread_id":"0199-a"}', "thread.started", "0199-a"),
        ('{"type":"turn.started"}', "turn.started", None),
        (
            '{"type":"item.completed","item":{"id":"item_1","type":"command_execution","exit_code":0}}',
            "item.completed command_execution",
            None,
        ),
        ('{"type":"turn.completed","usage":{"input_tokens":1}}', "turn.completed", None),
    ],
)
def test_steps_of_codex(line: str, what: str, session: str | None) -> None:
    assert read_line(line.encode()) == AgentLine("codex", what, True, session)


@pytest.mark.parametrize(
    "line",
    ['{"type":"turn.failed","error":{"message":"x"}}', '{"type":"item.completed","item":{"type":"error"}}'],
)
def test_trouble_of_codex_is_no_step(line: str) -> None:
    said = read_line(line.encode())
    assert said is not None
    assert not said.progress


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"plain words",
        b"{",
        b'{"type": "assistant"}',
        b'{"type": "error", "message": "anybody may print this"}',
        b'{"type": 7, "session_id": "x"}',
        b'["type"]',
        b'{"level": "info", "msg": "a log line"}',
        b'{"type": "something new", "session_id": "x"}',
        b'{"type": "assistant", "session_id": "\xff"}',
        b'{"type": "assistant", "session_id": "x", "message": ' + b"[" * 100_000,
        b'{"type": "assistant", "session_id": "x", "pad": "' + b"x" * LONGEST_LINE + b'"}',
    ],
)
def test_what_is_no_line_of_a_protocol_is_none(line: bytes) -> None:
    assert read_line(line) is None


def test_a_session_becomes_part_of_a_command_only_if_it_is_a_plain_id() -> None:
    assert resumed_by("claude", "3c4f-1") == "claude --resume 3c4f-1"
    assert resumed_by("codex", "0199_a") == "codex exec resume 0199_a"
    assert resumed_by("claude", "x; rm -rf ~") is None
    assert resumed_by("claude", "") is None
    assert resumed_by("other", "x") is None


def test_what_a_real_session_of_claude_code_tells() -> None:
    events = [
        event for line in (CAPTURED / "claude-success.jsonl").read_bytes().splitlines() for event in parse(line).events
    ]
    assert SessionStarted("claude-sonnet-4-5") in events
    assert AgentText("I look first.") in events
    assert ToolCall("toolu_1", "Bash", {"command": "ls -la", "description": "List files"}) in events
    assert ToolCallResult("toolu_1", "total 4\nREADME.md") in events
    assert MessageUsage("msg_1", "claude-sonnet-4-5", Tokens(1, 1, 2), of_helper=False, use=TokenUse(1, 1)) in events
    (end,) = [event for event in events if isinstance(event, TurnEnded)]
    assert end.failure is None
    assert end.message
    assert end.expense.cost is not None
    assert end.session == parse((CAPTURED / "claude-success.jsonl").read_bytes().splitlines()[0]).session


def test_what_a_real_session_of_codex_tells() -> None:
    lines = [parse(line) for line in (CAPTURED / "codex-success.jsonl").read_bytes().splitlines()]
    events = [event for line in lines for event in line.events]
    assert lines[0].session == "01a1e899-a08c-7421-8157-a8398c035fa4"
    assert ToolCall("item_1", "shell", "/bin/bash -lc ls") in events
    assert ToolCallResult("item_1", "README.md") in events
    assert AgentText("All's well.") in events
    assert TurnEnded(None, Expense(None, 1_200, 300), goes_on=True) in events


def test_the_same_call_and_the_same_result_have_one_digest() -> None:
    call = ToolCall("1", "Read", {"file_path": "a", "limit": 3})
    assert call.digest == ToolCall("2", "Read", {"limit": 3, "file_path": "a"}).digest
    assert call.digest != ToolCall("1", "Read", {"file_path": "b", "limit": 3}).digest
    assert ToolCallResult("1", "a").digest == ToolCallResult("2", "a").digest != ToolCallResult("1", "b").digest
