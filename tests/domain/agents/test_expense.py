"""What agents say of their cost: read off their lines, added up exactly, and unknown where nobody said."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allswell.domain.agents.cost import Expense, ExpenseRow, Spent, from_usd, shown, together
from allswell.domain.agents.output import TurnEnded, parse
from allswell.domain.agents.spending import UsageCounter
from allswell.domain.ids import AgentId, Millis, TaskId, Token
from tests.properties.budget import DETERMINISTIC


def hear(meter: UsageCounter, line: bytes) -> bool:
    ends = [event for event in parse(line).events if isinstance(event, TurnEnded)]
    return any(meter.hear(end.session, end.expense) for end in ends)


def result(session: str, cost: object, given: int = 5, written: int = 3) -> bytes:
    usage = {"input_tokens": given, "output_tokens": written}
    return json.dumps({"type": "result", "session_id": session, "total_cost_usd": cost, "usage": usage}).encode()


TURN = b'{"type":"turn.completed","usage":{"input_tokens":7,"cached_input_tokens":4,"output_tokens":2}}'


def test_the_last_word_of_each_session_counts_and_each_turn_by_itself() -> None:
    assert UsageCounter().total is None
    meter = UsageCounter()
    assert hear(meter, result("a", 0.25))
    assert hear(meter, result("a", 0.75, 50, 30))
    assert hear(meter, result("b", 0.000018))
    assert meter.total == Expense(750_018, 55, 33)
    codex = UsageCounter()
    assert hear(codex, TURN)
    assert hear(codex, TURN)
    assert codex.total == Expense(None, 14, 4)


@pytest.mark.parametrize(
    "line",
    [
        b"plain words",
        b'{"type": "result", "total_cost_usd": 1}',
        b'{"type": "assistant", "session_id": "s", "message": {"usage": {"input_tokens": 1}}}',
        b'{"usage": torn',
        b'["usage"]',
    ],
)
def test_what_says_nothing_of_it_is_unknown(line: bytes) -> None:
    meter = UsageCounter()
    assert not hear(meter, line)
    assert meter.total is None


@pytest.mark.parametrize("cost", [None, "1", True, -1, 1e300, [1]])
def test_an_amount_that_is_none_is_unknown_and_never_nought(cost: object) -> None:
    meter = UsageCounter()
    hear(meter, result("a", cost))
    assert meter.total == Expense(None, 5, 3)


def test_money_as_people_read_it() -> None:
    assert [shown(cost) for cost in (None, 0, 18, 9_999, 10_000, 1_234_560_000)] == [
        "unknown",
        "$0.00",
        "$0.000018",
        "$0.009999",
        "$0.01",
        "$1,234.56",
    ]
    assert (from_usd(0.1 + 0.2), from_usd(float("nan"))) == (300_000, None)


FIGURE = st.none() | st.integers(0, 10**9)


@settings(DETERMINISTIC, max_examples=200)
@given(st.lists(st.tuples(FIGURE, FIGURE, FIGURE), max_size=6))
def test_sums_are_those_of_what_is_known(told: list[tuple[int | None, int | None, int | None]]) -> None:
    rows = [
        ExpenseRow(TaskId("t_1"), Token(number), AgentId("a"), "", None, Millis(0), *figures)
        for number, figures in enumerate(told)
    ]
    spent = together(rows)
    costs = [cost for cost, _, _ in told if cost is not None]
    assert (spent.attempts, spent.priced) == (len(told), len(costs))
    assert spent.cost == (sum(costs) if costs else None)
    assert (spent.tokens is None) == all(given is None and written is None for _, given, written in told)
    assert together([]) == Spent()
