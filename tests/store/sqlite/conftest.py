"""What every test of the SQLite store leaves behind: nothing."""

from collections.abc import Iterator

import pytest

from tests.store.sqlite.hearing import close_carriers


@pytest.fixture(autouse=True)
def _no_sockets_are_left() -> Iterator[None]:
    yield
    close_carriers()
