"""`[prices]`: what models cost, where the table that comes along is old or does not name them."""

from pathlib import Path

import pytest

from allswell.domain.agents.cost import PRICES, Price, TokenUse, estimated, price_of
from allswell.errors import Refused
from allswell.settings import load

OWN = """
[prices]
"claude-sonnet-4" = { input = 30, output = 150, cached = 3 }
[prices.Local]
input = 0
output = 0
"""


def test_rows_of_the_settings_come_before_those_of_the_table_and_add_to_it(tmp_path: Path) -> None:
    assert load(tmp_path, environ={}).prices == PRICES
    (tmp_path / "allswell.toml").write_text(OWN)
    prices = load(tmp_path, environ={}).prices
    assert price_of("claude-sonnet-4-5-20250929", prices) == Price(input=30, output=150, cached=3, cache_write=30)
    assert price_of("claude-opus-5", prices) == PRICES["claude-opus-5"]
    free = price_of("somebody/local-70b", prices)
    assert free is not None
    assert estimated(TokenUse(1_000_000, 1_000_000), free) == 0


def test_a_shorter_name_stands_for_all_rows_that_begin_with_it(tmp_path: Path) -> None:
    (tmp_path / "allswell.toml").write_text("[prices]\nclaude = { input = 1, output = 2 }\n")
    prices = load(tmp_path, environ={}).prices
    for model in ("claude-opus-4-1", "claude-haiku-4-5"):
        price = price_of(model, prices)
        assert price is not None
        assert price.output == 2
    assert price_of("gpt-5", prices) == PRICES["gpt-5"]


@pytest.mark.parametrize(
    "table, says",
    [
        ("[prices]\nmine = 3\n", "prices.mine must be a table"),
        ("[prices]\nmine = { input = 3 }\n", "prices.mine needs output"),
        ("[prices]\nmine = { input = -1, output = 3 }\n", "prices.mine.input must be dollars for a million tokens"),
        ("[prices]\nmine = { input = 1, output = 3, cache = 1 }\n", "prices.mine has no 'cache'"),
    ],
)
def test_what_is_no_price_is_refused_with_its_place(tmp_path: Path, table: str, says: str) -> None:
    (tmp_path / "allswell.toml").write_text(table)
    with pytest.raises(Refused, match=says.replace(".", r"\.")):
        load(tmp_path, environ={})
