"""What an agent's output comes to: its last message, the open call, and whether it asks."""

import msgspec
import pytest

from allswell.domain.agents.conversation import MESSAGE_MAX, Conversation, LogKind, entries, entries_of, plain_message
from allswell.domain.agents.output import parse
from allswell.domain.agents.result import answer_text, asks_human, ends_with_question, result_in_words, result_of
from tests.clients.stand_in import CAPTURED


def heard(*lines: object) -> Conversation:
    conversation = Conversation()
    for number, line in enumerate(lines):
        conversation.hear(parse(line if isinstance(line, bytes) else msgspec.json.encode(line)), number * 60_000)
    return conversation


def captured(name: str) -> list[bytes]:
    return (CAPTURED / f"{name}.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize(
    "name, done",
    [
        ("claude-success", True),
        ("claude-error", False),
        ("claude-killed", False),
        ("codex-success", True),
        ("codex-error", False),
        ("codex-killed", False),
        ("gemini-success", True),
        ("opencode-success", True),
        ("opencode-denied", False),
    ],
)
def test_that_its_turn_ended_well_holds_until_it_goes_on(name: str, done: bool) -> None:
    spoken = heard(*captured(name))
    assert spoken.is_done is done
    for line in captured(name)[:3]:
        spoken.hear(parse(line), 0)
    assert not spoken.is_done


def test_a_line_in_which_nothing_is_done_stands_behind_an_end() -> None:
    lifecycle = {"type": "command_lifecycle", "command_uuid": "u", "state": "completed", "session_id": "s"}
    assert heard(*captured("claude-success"), lifecycle).is_done


def gemini(kind: str, **fields: object) -> dict[str, object]:
    return {"type": kind, "timestamp": "2026-11-18T20:00:00Z", **fields}


@pytest.mark.parametrize(
    "name, message",
    [
        ("claude-success", "All's well."),
        ("claude-mcp", "All done.\n\nShall I go on?"),
        ("codex-success", "All's well."),
        ("codex-mcp", "All done.\n\nShall I go on?"),
    ],
)
def test_the_last_message_of_a_real_run_is_what_it_brings_and_nothing_is_open(name: str, message: str) -> None:
    conversation = heard(*captured(name))
    assert (conversation.message, conversation.open_call) == (message, None)


@pytest.mark.parametrize("name", ["claude-mcp", "codex-mcp"])
def test_while_a_call_of_a_real_run_is_open_that_is_what_the_agent_does(name: str) -> None:
    lines = captured(name)
    calls = [at for at, line in enumerate(lines) if b"echo hi" in line and b"input_json" not in line]
    conversation = heard(*lines[: calls[0] + 1])
    call = conversation.open_call
    assert call is not None
    assert call.words(call.since + 240_000) == "running: echo hi, 4m"
    assert conversation.words(call.since) == "running: echo hi"


def test_what_tools_of_mcp_bring_and_their_errors_are_in_the_log_of_codex() -> None:
    shown = [entry for line in captured("codex-mcp") for entry in entries(line)]
    results = [entry for entry in shown if entry.kind in (LogKind.RESULT, LogKind.ERROR)]
    assert results[1].text.startswith('{"remaining_ms":null')
    assert results[2].kind is LogKind.ERROR
    assert results[2].text.startswith("Refused: this socket speaks for the task t_1m7r5j6zcaga5qx2 and no other.")
    assert results[3] == entries(captured("codex-mcp")[-3])[0]


def test_pieces_of_a_message_of_gemini_are_one_entry_of_the_log() -> None:
    says = {"role": "assistant", "delta": True}
    told = [
        gemini("message", content="I lo", **says),
        gemini("message", content="ok.", **says),
        gemini("tool_use", tool_id="1", tool_name="run_shell_command", parameters={"command": "ls"}),
        gemini("message", content="Do", **says),
    ]
    lines = [("stdout", msgspec.json.encode(line)) for line in told]
    shown = entries_of([*lines, ("stderr", lines[-1][1]), lines[-1]])
    assert [(stream, entry.text) for stream, entry in shown] == [
        *(("stdout", "I look."), ("stdout", "ls"), ("stdout", "Do"), ("stderr", "Do"), ("stdout", "Do"))
    ]


def test_pieces_of_a_message_of_gemini_are_one_and_a_call_ends_it() -> None:
    says = {"role": "assistant", "delta": True}
    lines = [
        gemini("init", session_id="abc", model="m"),
        gemini("message", content="I lo", **says),
        gemini("message", content="ok.", **says),
        gemini("tool_use", tool_id="1", tool_name="run_shell_command", parameters={"command": "ls"}),
        gemini("tool_result", tool_id="1", status="success", output="x"),
        gemini("message", content="Do", **says),
        gemini("message", content="ne.", **says),
        gemini("result", status="success", stats={}),
    ]
    assert heard(*lines[:3]).message == "I look."
    assert heard(*lines[:4]).words(240_000) == "running: ls, 1m"
    assert heard(*lines).message == "Done."


def test_what_a_helper_says_is_not_the_last_message() -> None:
    def says(text: str, of: str | None) -> dict[str, object]:
        content = [{"type": "text", "text": text}]
        return {"type": "assistant", "session_id": "s", "parent_tool_use_id": of, "message": {"content": content}}

    assert heard(says("mine", None), says("the helper's", "toolu_1")).message == "mine"


def test_a_message_is_bounded_and_harmless_and_keeps_its_beginning_and_its_end() -> None:
    text = "begin\x1b[31m\0" + "x" * 3 * MESSAGE_MAX + "end?"
    (message,) = {heard({"type": "result", "session_id": "s", "result": text}).message}
    assert len(message) <= MESSAGE_MAX
    assert message.startswith("begin [31m x")
    assert message.endswith("end?")
    assert "\n[…]\n" in message


def test_a_program_that_calls_millions_of_tools_fills_no_memory() -> None:
    conversation = Conversation()
    for number in range(1_000):
        use = {"type": "tool_use", "id": str(number), "name": "N" * 500, "input": "i" * 5_000}
        line = {"type": "assistant", "session_id": "s", "message": {"content": [use]}}
        conversation.hear(parse(msgspec.json.encode(line)), number)
    assert len(conversation._open) <= 32
    assert len(conversation.words(0)) < 300


def test_plain_text_brings_its_last_lines_without_what_codex_says_of_itself() -> None:
    printed = b"Reading additional input from stdin...\nmaking\rmade\n\x1b[32mAll good.\x1b[0m\n"
    assert plain_message(printed) == "making\nmade\nAll good."


@pytest.mark.parametrize("session", ["-rf", "a b", "", "a" * 65, "$(id)", "ä"])
def test_what_is_no_id_of_a_session_is_not_kept_as_one(session: str) -> None:
    assert result_of(0, "", session, None) == {"exit_code": 0}


def test_a_result_is_shown_with_its_message_first() -> None:
    result = result_of(0, "Shall I?", "s-1", 0)
    assert result == {"exit_code": 0, "message": "Shall I?", "session": "s-1", "changed": 0}
    assert result_in_words(result) == (
        "Shall I?\n\n(exit code 0; no files changed, and its last message is a question; session s-1)"
    )
    assert (answer_text(result), answer_text({"a": 1})) == ("Shall I?", {"a": 1})
    assert result_in_words({"message": "of its own"}) is None


@pytest.mark.parametrize("message", ["Shall I?", "Which one, **a or b?**", "(Or not?)", "「どれ？」"[1:-1], "ok?\n\n"])
def test_a_question_is_one_whatever_stands_behind_its_mark(message: str) -> None:
    assert ends_with_question(message)


@pytest.mark.parametrize(
    "message, changed, own_worktree, setting, asks",
    [
        ("Shall I?", 0, True, "ask", True),
        ("Shall I?", 0, True, "done", False),
        ("Shall I?", 0, False, "ask", False),
        ("Shall I?", 1, True, "ask", False),
        ("Shall I?", None, True, "ask", False),
        ("Is it? Yes.", 0, True, "ask", False),
        ("", 0, True, "ask", False),
    ],
)
def test_a_human_is_asked_only_where_nothing_was_changed_in_a_worktree_of_ours(
    message: str, changed: int | None, *, own_worktree: bool, setting: str, asks: bool
) -> None:
    assert asks_human(message, changed, own_worktree=own_worktree, setting=setting) is asks
