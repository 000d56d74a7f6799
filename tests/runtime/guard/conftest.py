"""The fake provider, one for each module."""

from collections.abc import Iterator

import pytest

from allswell.testing.provider import Provider


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.recover()
    running.requests.clear()
    return running
