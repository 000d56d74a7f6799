"""The layers around a message: which limits are refused, and how long the next statement may take."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.worker.limits import Layers, checked_layers, layer_rules, statement_cap


@pytest.mark.row("W2")
def test_the_seeds_figures_are_the_defaults() -> None:
    layers = checked_layers(Layers())
    assert (layers.statement_timeout, layers.visibility_timeout, layers.pool_timeout) == (25_000, 30, 30.0)
    assert layers.stuck_after == 35


@pytest.mark.row("W2")
def test_a_statement_that_outlasts_the_visibility_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"statement_timeout \(30000ms\) .* visibility_timeout \(30s = 30000ms\)"):
        checked_layers(Layers(statement_timeout=30_000))


@pytest.mark.parametrize(
    "wrong",
    [
        {"statement_timeout": 0},
        {"statement_timeout": -1},
        {"visibility_timeout": 0},
        {"visibility_timeout": -30},
        {"visibility_timeout": 2.5},
        {"visibility_timeout": "30"},
        {"pool_timeout": 0},
        {"concurrency": 0},
        {"concurrency": -4},
        {"stuck_grace": -1},
        {"statement_timeout": 2**31, "visibility_timeout": 30_000_000},
        {"visibility_timeout": 10**12},
        {"pool_timeout": float("inf")},
        {"pool_timeout": float("nan")},
        {"stuck_grace": float("inf")},
    ],
)
def test_figures_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        checked_layers(Layers(**wrong))


LAYERS = st.builds(
    Layers,
    statement_timeout=st.integers(-10, 100_000),
    visibility_timeout=st.integers(-2, 100),
    pool_timeout=st.floats(-1, 60),
    concurrency=st.integers(-1, 50),
)


@pytest.mark.row("W2")
@given(LAYERS, st.floats(-10, 200))
def test_a_statement_ends_before_its_message_shows_again(layers: Layers, left: float) -> None:
    try:
        checked_layers(layers)
    except ValueError:
        assert not all(holds for holds, _ in layer_rules(layers))
        return
    cap = statement_cap(layers, left)
    assert 0 <= cap <= layers.statement_timeout < layers.visibility_timeout * 1_000 < layers.stuck_after * 1_000
    assert cap <= max(left, 0) * 1_000
