"""What an attempt costs is counted as its messages come, and its client's own total replaces what was estimated."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.agents.cost import PRICES, Expense, TokenUse, estimated, price_of, shown
from allswell.domain.agents.output import parse
from allswell.domain.agents.spending import UsageCounter

MODEL = "claude-sonnet-4-5"
TOOK = {
    "input_tokens": 1_000,
    "cache_creation_input_tokens": 2_000,
    "cache_read_input_tokens": 30_000,
    "output_tokens": 400,
}
ONE = 25_500
"""What that costs, in millionths of a dollar: 0.003 + 0.0075 + 0.009 + 0.006 dollars."""


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "session_id": "s", **fields}).encode()


def message(id_: str, model: str = MODEL, **usage: object) -> bytes:
    return line("assistant", message={"id": id_, "model": model, "content": [], "usage": {**TOOK, **usage}})


def stream(kind: str, parent: str | None = None, **fields: object) -> bytes:
    return line("stream_event", event={"type": kind, **fields}, parent_tool_use_id=parent)


def result(cost: float | None, given: int, written: int) -> bytes:
    return line("result", total_cost_usd=cost, usage={"input_tokens": given, "output_tokens": written})


def heard(*lines: bytes, meter: UsageCounter | None = None) -> UsageCounter:
    meter = meter or UsageCounter()
    for one in lines:
        meter.hear_line(parse(one))
    return meter


def test_messages_count_as_they_come_and_the_largest_figures_of_each() -> None:
    twice = heard(message("m1", output_tokens=3), message("m1", output_tokens=3))
    assert twice.total == Expense(round(ONE - 397 * 15), 33_000, 3, estimated=True)
    grown = heard(message("m1", output_tokens=3), message("m1"), message("m1", output_tokens=3), meter=twice)
    assert grown.total == Expense(ONE, 33_000, 400, estimated=True)
    assert heard(message("m2"), meter=grown).total == Expense(2 * ONE, 66_000, 800, estimated=True)


def test_what_was_written_is_known_where_messages_are_streamed() -> None:
    began = {"id": "m1", "model": MODEL, "content": [], "usage": {**TOOK, "output_tokens": 3}}
    meter = heard(
        stream("message_start", message=began),
        stream("message_start", "toolu_1", message={**began, "id": "m2"}),
        message("m1", output_tokens=3),
        stream("message_delta", usage={"output_tokens": 400}),
        stream("message_delta", "toolu_1", usage={"output_tokens": 400}),
    )
    assert meter.total == Expense(2 * ONE, 66_000, 800, estimated=True)


def test_the_total_of_the_client_replaces_the_estimate_and_nothing_counts_twice() -> None:
    meter = heard(message("m1"), message("m2"), result(0.05, 66_000, 800))
    assert meter.total == Expense(50_000, 66_000, 800)
    heard(message("m3"), meter=meter)
    assert meter.total == Expense(50_000 + ONE, 99_000, 1_200, estimated=True)
    assert heard(result(0.08, 99_000, 1_200), meter=meter).total == Expense(80_000, 99_000, 1_200)


def test_a_total_without_money_keeps_what_its_messages_were_priced_at() -> None:
    assert heard(message("m1"), result(None, 40_000, 500)).total == Expense(ONE, 40_000, 500, estimated=True)


def test_a_model_that_no_row_names_has_tokens_and_no_dollars() -> None:
    meter = heard(message("m1", "mystery-9"))
    assert meter.total == Expense(None, 33_000, 400)
    assert meter.unpriced == ("mystery-9",)
    mixed = heard(message("m2"), meter=meter)
    assert mixed.total == Expense(ONE, 66_000, 800, estimated=True)
    assert heard(message("m1", "<synthetic>")).total is None


def turn(given: int) -> bytes:
    usage = {"input_tokens": given, "cached_input_tokens": given - 10, "output_tokens": 7}
    return json.dumps({"type": "turn.completed", "usage": usage}).encode()


THREAD = b'{"type":"thread.started","thread_id":"t"}'


def test_a_thread_of_codex_tells_all_of_it_each_time_also_where_another_process_goes_on_with_it() -> None:
    first = heard(THREAD, turn(132_000), turn(140_000))
    assert first.total == Expense(None, 140_000, 7)
    second = UsageCounter(before={"t": Expense(None, 140_000, 7)})
    assert heard(THREAD, turn(264_000), meter=second).total == Expense(None, 124_000, 0)


@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 10_000), st.booleans()), max_size=60))
def test_the_sum_is_that_of_the_newest_figures_however_they_come(told: list[tuple[int, int, bool]]) -> None:
    meter, largest, total, ends = UsageCounter(), dict[int, int](), 0, count(1)
    for number, written, over in told:
        if over:
            total = next(ends) * 1_000
            largest.clear()
            heard(result(total / 1_000_000, 0, 0), meter=meter)
        else:
            largest[number] = max(largest.get(number, 0), written)
            usage = {"input_tokens": 0, "output_tokens": written}
            about = {"id": f"m{number}", "model": MODEL, "content": [], "usage": usage}
            heard(line("assistant", message=about), meter=meter)
    expected = total + 15 * sum(largest.values())
    assert (0 if meter.total is None else meter.total.cost or 0) == expected
    # More than 64 messages: the oldest are closed, and a line that comes after all counts as another message.


@pytest.mark.parametrize(
    "model, input_",
    [
        ("claude-sonnet-4-5-20250929", 3),
        ("claude-opus-4-20250514", 15),
        ("claude-opus-4-1-20250805", 15),
        ("claude-opus-4-5-20251101", 5),
        ("us.anthropic/claude-haiku-4-5@20251001", 1),
        ("GPT-5-mini-2025-08-07", 0.25),
        ("gpt-5-codex", 1.25),
        ("gpt-50", None),
        ("gpt-5.1", None),
        ("", None),
    ],
)
def test_the_longest_beginning_counts(model: str, input_: float | None) -> None:
    price = price_of(model)
    assert (None if price is None else price.input) == input_


def test_tokens_that_are_cached_for_an_hour_cost_twice_what_goes_in() -> None:
    price = PRICES["claude-sonnet-4"]
    assert estimated(TokenUse(stored=1_000, stored_long=1_000), price) == 6_000
    assert estimated(TokenUse(stored=1_000), price) == 3_750
    assert shown(6_000_000, estimated=True) == "$6.00 (estimated)"
