"""How tokens are read off what providers and agents say."""

import msgspec
import pytest

from allswell.domain.agents.cost import Tokens, of_answer, of_events, plus, tokens_of
from allswell.domain.agents.output import TurnEnded, parse
from allswell.domain.agents.spending import UsageCounter


@pytest.mark.parametrize(
    "usage, tokens",
    [
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}, Tokens(7, 2, 9)),
        ({"usage": {"input_tokens": 7, "output_tokens": 2}}, Tokens(7, 2, 9)),
        (
            {"usage": {"input_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2}},
            Tokens(7, 0, 7),
        ),
        ({"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2}}, Tokens(7, 2, 9)),
    ],
)
def test_an_answer_says_what_it_cost_in_each_providers_words(usage: dict[str, object], tokens: Tokens) -> None:
    assert of_answer(usage) == tokens


@pytest.mark.parametrize(
    "body", [None, [], "x", {}, {"usage": None}, {"usage": {"input_tokens": "7"}}, {"usage": {"output_tokens": True}}]
)
def test_what_says_nothing_of_it_is_not_nought(body: object) -> None:
    assert of_answer(body) is None


def test_a_stream_is_told_by_its_newest_figures() -> None:
    started = msgspec.json.encode({"type": "message_start", "message": {"usage": {"input_tokens": 9}}})
    ended = msgspec.json.encode({"type": "message_delta", "usage": {"output_tokens": 4}})
    raw = b"event: x\ndata: " + started + b"\n\ndata: " + ended + b"\n\ndata: [DONE]\n"
    assert of_events(raw) == Tokens(9, 4, 13)
    assert of_events(b"data: {}\n\n") is None


def of_output(lines: list[bytes]) -> Tokens | None:
    meter = UsageCounter()
    for end in (event for line in lines for event in parse(line).events if isinstance(event, TurnEnded)):
        meter.hear(end.session, end.expense)
    return tokens_of(meter.total)


def test_agents_say_it_at_the_end_of_a_session_or_of_each_turn() -> None:
    claude = [
        b'{"type":"assistant","session_id":"s","message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n',
        b'{"type":"result","session_id":"s","usage":{"input_tokens":5,"output_tokens":3}}\n',
    ]
    assert of_output(claude) == Tokens(5, 3, 8)
    turn = b'{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":4,"output_tokens":3}}\n'
    assert of_output([b"plain words\n", turn, turn]) == Tokens(10, 6, 16)
    assert of_output([b'{"usage": torn', b"x"]) is None


def test_what_is_not_known_adds_nothing() -> None:
    assert plus(None, None) is None
    assert plus(Tokens(1, 2, 3), None) == plus(None, Tokens(1, 2, 3)) == Tokens(1, 2, 3)
    assert plus(Tokens(1, 2, 3), Tokens(1, 1, 2)) == Tokens(2, 3, 5)
