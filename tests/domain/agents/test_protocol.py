"""Lines of the protocols that agents speak: which are steps, which only say that time passes, which are none."""

import pytest

from allswell.domain.agents.output import LONGEST_LINE, AgentLine, read_line, resumed_by

CLAUDE = ', "session_id": "3c4f-1"}'


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
