"""What agents print, as a person reads it: messages, tool calls, results, costs; everything else as it stands."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.domain.agents.conversation import LogEntry, LogKind, entries
from allswell.domain.agents.output import LONGEST_LINE


def claude(type_: str, **fields: object) -> bytes:
    return json.dumps({"type": type_, "session_id": "3c4f-1", **fields}).encode()


def said(*parts: object, type_: str = "assistant") -> bytes:
    return claude(type_, message={"role": type_, "content": list(parts)})


def mcp(brought: str) -> str:
    call = '"type":"mcp_tool_call","server":"db","tool":"ask","arguments":{"query":"q"}'
    return f'{{"type":"item.completed","item":{{{call},{brought}}}}}'


USE = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls -la", "description": "List"}}
RESULT = {
    "subtype": "success",
    "is_error": False,
    "duration_ms": 428,
    "num_turns": 1,
    "total_cost_usd": 0.052,
    "usage": {"input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 2},
    "permission_denials": [],
    "terminal_reason": "completed",
}


@pytest.mark.parametrize(
    "line, expected",
    [
        (claude("system", subtype="init", model="m"), [LogEntry(LogKind.NOTE, "session 3c4f-1, m")]),
        (said({"type": "text", "text": "Two\nlines"}), [LogEntry(LogKind.MESSAGE, "Two\nlines")]),
        (
            said({"type": "thinking", "thinking": "hm"}, USE),
            [LogEntry(LogKind.THINKING, "hm"), LogEntry(LogKind.TOOL, "ls -la", "Bash")],
        ),
        (said({**USE, "input": {"x": 1}}), [LogEntry(LogKind.TOOL, '{"x":1}', "Bash")]),
        (said({"type": "tool_result", "content": "a\nb"}, type_="user"), [LogEntry(LogKind.RESULT, "a\nb")]),
        (
            said(
                {
                    "type": "tool_result",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no"}, {"type": "image"}],
                },
                type_="user",
            ),
            [LogEntry(LogKind.ERROR, "no\n[image]")],
        ),
        (said({"type": "text", "text": "the prompt"}, type_="user"), []),
        (
            claude("result", **RESULT),
            [LogEntry(LogKind.END, "it says that it is done, 428ms, 1 turn", cost_usd=0.052, tokens=7)],
        ),
        (
            claude("result", **{**RESULT, "is_error": True, "api_error_status": 429, "result": "API Error: 429"}),
            [LogEntry(LogKind.ERROR, "not done: API Error: 429, 428ms, 1 turn", cost_usd=0.052, tokens=7)],
        ),
        (claude("result", subtype="success", total_cost_usd=-1), [LogEntry(LogKind.END, "it says that it is done")]),
        (
            claude("rate_limit_event", rate_limit_info={"status": "rejected"}),
            [LogEntry(LogKind.NOTE, "usage limit: rejected")],
        ),
        (claude("stream_event", event={"type": "content_block_delta"}), []),
        (claude("something new"), []),
    ],
)
def test_lines_of_claude_code(line: bytes, expected: list[LogEntry]) -> None:
    assert entries(line) == expected


@pytest.mark.parametrize(
    "line, expected",
    [
        ('{"type":"thread.started","thread_id":"0199-a"}', [LogEntry(LogKind.NOTE, "session 0199-a")]),
        ('{"type":"turn.started"}', []),
        (
            '{"type":"item.started","item":{"type":"command_execution","command":"bash -lc ls","exit_code":null}}',
            [LogEntry(LogKind.TOOL, "bash -lc ls", "shell")],
        ),
        (
            '{"type":"item.completed","item":{"type":"command_execution","aggregated_output":"a\\n","exit_code":0}}',
            [LogEntry(LogKind.RESULT, "a")],
        ),
        (
            '{"type":"item.completed","item":{"type":"command_execution","aggregated_output":"no","exit_code":2}}',
            [LogEntry(LogKind.ERROR, "exit code 2\nno")],
        ),
        (
            '{"type":"item.completed","item":{"type":"agent_message","text":"done"}}',
            [LogEntry(LogKind.MESSAGE, "done")],
        ),
        (
            '{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"a.py","kind":"add"}]}}',
            [LogEntry(LogKind.TOOL, "a.py", "file_change")],
        ),
        ('{"type":"item.completed","item":{"type":"error","message":"oh"}}', [LogEntry(LogKind.ERROR, "oh")]),
        ('{"type":"item.started","item":{"type":"mcp_tool_call","server":"db","tool":"ask","arguments":{}}}', []),
        (
            mcp('"result":{"content":[{"type":"text","text":"42"}]}'),
            [LogEntry(LogKind.TOOL, "q", "db.ask"), LogEntry(LogKind.RESULT, "42")],
        ),
        (
            mcp('"error":{"message":"no such table"}'),
            [LogEntry(LogKind.TOOL, "q", "db.ask"), LogEntry(LogKind.ERROR, "no such table")],
        ),
        (
            '{"type":"error","message":"Reconnecting... 1/5 (unexpected status 401 Unauthorized)"}',
            [LogEntry(LogKind.NOTE, "the provider is called again: 401, try 1 of 5")],
        ),
        (
            '{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":4,"output_tokens":3}}',
            [LogEntry(LogKind.END, "its turn is over", tokens=8)],
        ),
        ('{"type":"turn.failed","error":{"message":"stopped"}}', [LogEntry(LogKind.ERROR, "stopped")]),
    ],
)
def test_lines_of_codex(line: str, expected: list[LogEntry]) -> None:
    assert entries(line.encode()) == expected


def gemini(type_: str, **fields: object) -> bytes:
    return json.dumps({"type": type_, "timestamp": "2026-11-18T12:00:00.000Z", **fields}).encode()


@pytest.mark.parametrize(
    "line, expected",
    [
        (gemini("init", session_id="s", model="m"), [LogEntry(LogKind.NOTE, "session s, m")]),
        (gemini("message", role="user", content="the prompt"), []),
        (gemini("message", role="assistant", content="so", delta=True), [LogEntry(LogKind.MESSAGE, "so", piece=True)]),
        (
            gemini("tool_use", tool_name="run_shell_command", tool_id="1", parameters={"command": "ls"}),
            [LogEntry(LogKind.TOOL, "ls", "run_shell_command")],
        ),
        (gemini("tool_result", tool_id="1", status="success", output="a"), [LogEntry(LogKind.RESULT, "a")]),
        (
            gemini("tool_result", tool_id="1", status="error", error={"type": "x", "message": "no"}),
            [LogEntry(LogKind.ERROR, "no")],
        ),
        (gemini("error", severity="warning", message="slow"), [LogEntry(LogKind.ERROR, "slow")]),
        (
            gemini("result", status="success", stats={"total_tokens": 9, "input_tokens": 7, "output_tokens": 2}),
            [LogEntry(LogKind.END, "its turn is over", tokens=9)],
        ),
        (
            gemini("result", status="error", error={"type": "x", "message": "it broke"}),
            [LogEntry(LogKind.ERROR, "it broke")],
        ),
    ],
)
def test_lines_of_gemini(line: bytes, expected: list[LogEntry]) -> None:
    assert entries(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"plain words",
        b"",
        b"{torn",
        b'{"level": "info"}',
        b"[1, 2]",
        b'{"type": "error"}',
        b'{"type": 7}',
        b"{" + b"x" * LONGEST_LINE,
        b'{"x": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_line_of_a_protocol_stands_as_it_was_printed(line: bytes) -> None:
    assert entries(line) == [LogEntry(LogKind.TEXT, line.decode())]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "content"]), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["type", "session_id", "message", "item", "usage", "subtype", "rate_limit_info", "num_turns"]),
        JSON | st.sampled_from(["assistant", "user", "result", "system", "init", "item.completed", "turn.failed", "s"]),
    )
)
def test_whatever_a_line_holds_it_is_read_without_an_error(said: dict[str, object]) -> None:
    for entry in entries(json.dumps(said).encode()):
        assert isinstance(entry.text, str)
