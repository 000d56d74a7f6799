"""One server for all that is asked of it; what a test changes has names of its own."""

from collections.abc import Iterator

import pytest

from tests.interfaces.http.served import Served, serving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as server:
        yield server
