"""Scopes of these tests go by limits of their own, with a short grace."""

from collections.abc import Iterator

import pytest

from allswell.domain.scopes import ScopeLimits
from allswell.runtime.deadlines import use_limits


@pytest.fixture(autouse=True)
def short_grace() -> Iterator[None]:
    use_limits(ScopeLimits(grace=100))
    yield
    use_limits(None)
