"""What agents report of themselves."""

import json

import pytest

from allswell.domain.agents.output import parse, usage_left
from allswell.domain.agents.usage import Usage

AT = 1_790_000_000
TOKENS = {"input_tokens": 3, "cache_creation_input_tokens": 9_997, "cache_read_input_tokens": 170_000}


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def reported(printed: bytes, window: int | None = None) -> Usage | None:
    left = (usage_left(event, window) for event in parse(printed).events)
    return next((usage for usage in left if usage is not None), None)


def message(usage: object, **fields: object) -> bytes:
    return line(type="assistant", message={"content": [], "usage": usage}, **fields)


@pytest.mark.row("O6")
def test_how_much_of_the_session_is_left() -> None:
    info = {"status": "allowed_warning", "utilization": 0.92, "resetsAt": AT}
    left = reported(line(type="rate_limit_event", rate_limit_info=info))
    assert left is not None
    assert left.session == pytest.approx(8.0)
    assert (left.context, left.resets_at) == (None, AT * 1_000)


@pytest.mark.row("O6")
def test_how_much_of_the_context_is_left_is_what_one_message_took_of_it() -> None:
    assert reported(message({**TOKENS, "output_tokens": 2_000}), 200_000) == Usage(pytest.approx(9.0))  # type: ignore[arg-type]
    assert reported(message({"input_tokens": 300_000}), 200_000) == Usage(0.0), "more than there is: nothing is left"


@pytest.mark.parametrize(
    "said",
    [
        line(type="rate_limit_event", rate_limit_info={"status": "allowed"}),
        line(type="rate_limit_event", rate_limit_info={"utilization": True}),
        line(type="rate_limit_event", rate_limit_info={"utilization": 7}),
        line(type="rate_limit_event"),
        b'{"type":"rate_limit_event"',
        message(TOKENS, parent_tool_use_id="toolu_1"),
        message("much"),
        message({"input_tokens": "3"}),
        line(type="result", usage=TOKENS),
        line(type="user", message={"usage": TOKENS}),
        b'"usage"',
        b'["usage"]',
    ],
)
def test_and_what_says_nothing_of_it(said: bytes) -> None:
    assert reported(said, 200_000) is None


def test_without_its_size_nothing_is_known_of_a_context() -> None:
    assert reported(message(TOKENS)) is None
