"""Every store answers every query."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from allswell.domain.rules.query import QUERIES, ViewAgenda
from allswell.store.memory.store import MemoryViews
from allswell.store.postgres.views import PostgresViews
from allswell.store.sqlite import views


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(MemoryViews._views.keys(), id="memory"),
        pytest.param({*views._VIEWS, ViewAgenda}, id="sqlite"),
        pytest.param(PostgresViews._views.keys(), id="postgres"),
    ],
)
def test_every_query_has_its_line(known: Collection[type]) -> None:
    assert set(known) == set(QUERIES.values())
