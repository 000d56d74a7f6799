"""What the last line of Claude Code 2.1 and Codex 0.166 says about the end, whatever the exit code was."""

import msgspec
import pytest

from allswell.domain.agents.output import LONGEST_FINAL_LINE, last_line_in, parse
from allswell.domain.agents.output import not_done as not_done_by
from allswell.domain.service.retry import ErrorClass, Failure

USE = {"command": "touch x"}
DENIED = [{"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": USE}]


def not_done(line: bytes) -> Failure | None:
    return not_done_by(parse(line, LONGEST_FINAL_LINE))


def result(**said: object) -> bytes:
    usual = {"type": "result", "subtype": "success", "is_error": False, "api_error_status": None, "result": "all done"}
    more = {"session_id": "s", "permission_denials": [], "terminal_reason": "completed"}
    return msgspec.json.encode({**usual, **more, **said})


def failed(message: str) -> bytes:
    return msgspec.json.encode({"type": "turn.failed", "error": {"message": message}})


@pytest.mark.parametrize(
    "line",
    [
        result(),
        result(terminal_reason=None, permission_denials=None),
        result(terminal_reason="stop_hook_prevented"),
        result(terminal_reason="something_new"),
        result(permission_denials=DENIED),
        result(permission_denials=DENIED * 5),
        result(permission_denials=[7]),
        msgspec.json.encode({"type": "result", "is_error": True}),
        msgspec.json.encode({"type": "turn.completed"}),
        msgspec.json.encode({"type": "error", "message": "anything may print this"}),
        b"words",
        b"",
        b"{",
        b"[1]",
        b'{"type": "result"' + b"[" * 100_000,
    ],
)
def test_what_says_nothing_bad_leaves_it_to_the_exit_code(line: bytes) -> None:
    assert not_done(line) is None


@pytest.mark.parametrize(
    "line, error, message",
    [
        (
            result(terminal_reason="tool_deferred", result="", deferred_tool_use={"name": "Bash", "input": USE}),
            "permanent",
            "it waits for a permission: Bash(touch x)",
        ),
        (result(terminal_reason="hook_stopped"), "permanent", "a hook stopped it"),
        (
            result(
                is_error=True, terminal_reason="max_turns", result=None, errors=["Reached maximum number of turns (1)"]
            ),
            "transient",
            "it reached its number of turns: Reached maximum number of turns (1)",
        ),
        (result(subtype="error_max_turns", terminal_reason=None, result=None), "transient", "number of turns"),
        (
            result(is_error=True, subtype="error_max_budget_usd", terminal_reason=None, errors=["at most $1"]),
            "permanent",
            "it has spent its budget",
        ),
        (result(is_error=True, terminal_reason="budget_exhausted"), "permanent", "it has spent its budget"),
        (result(subtype="error_during_execution", result="it broke"), "transient", "it broke"),
        (result(terminal_reason="api_error", result="Connection reset"), "transient", "Connection reset"),
        (result(is_error=True, api_error_status=401, result="API Error: 401"), "auth", "API Error: 401"),
        (result(is_error=True, api_error_status=429, result="rejected (429)"), "rate_limit", "rejected (429)"),
        (result(is_error=True, api_error_status=500, result="API Error: 500"), "server", "API Error: 500"),
        (result(is_error=True, api_error_status=400, result="Prompt is too long"), "context_overflow", "too long"),
        (result(is_error=True, result="it broke"), "transient", "it broke"),
        (failed("unexpected status 401 Unauthorized: no"), "auth", "unexpected status 401"),
        (failed("exceeded retry limit, last status: 429 Too Many Requests"), "rate_limit", "429"),
        (
            failed('{"error": {"code": "context_length_exceeded", "message": "m"}}'),
            "context_overflow",
            "context_length",
        ),
        (failed("stream disconnected"), "transient", "stream disconnected"),
        (b'{"type":"turn.failed"}', "transient", "its turn failed"),
    ],
)
def test_what_was_not_done_is_told_with_its_error_class(line: bytes, error: str, message: str) -> None:
    found = not_done(line)
    assert found is not None
    assert (found.error, message in found.message) == (error, True), found


def test_the_status_is_kept() -> None:
    assert not_done(result(is_error=True, api_error_status=500, result="x")) == Failure(
        ErrorClass.SERVER, "x", status=500
    )


DEFERRED = result(terminal_reason="tool_deferred", result="", deferred_tool_use={"name": "Bash", "input": USE})
OVER = b'{"type":"command_lifecycle","command_uuid":"u","state":"completed","session_id":"s"}'
"""What Claude Code 2.1.327 prints after its `result` where it has resumed a session whose call was put off."""
TEXT = b'{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":"mended"}]}}'


@pytest.mark.parametrize("after", [[], [OVER], [OVER, OVER], [b'{"type":"system","subtype":"new","session_id":"s"}']])
def test_lines_of_claude_code_in_which_nothing_is_done_do_not_hide_its_end(after: list[bytes]) -> None:
    found = not_done_by(last_line_in(b"\n".join([OVER, TEXT, DEFERRED, *after, b""])))
    assert found is not None
    assert found.message == "it waits for a permission: Bash(touch x)"


@pytest.mark.parametrize(
    "after",
    [[TEXT], [TEXT, OVER], [b"mended"], [OVER, b"mended"], [b'{"type":"system","subtype":"init","session_id":"s"}']],
)
def test_one_that_does_something_after_its_end_has_gone_on(after: list[bytes]) -> None:
    assert not_done_by(last_line_in(b"\n".join([DEFERRED, *after, b""]))) is None


def test_lines_in_which_nothing_is_done_are_bounded() -> None:
    assert not_done_by(last_line_in(b"\n".join([DEFERRED, *[OVER] * 100]))) is None
    assert last_line_in(OVER).dialect == "claude"
