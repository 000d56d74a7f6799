"""One browser and one server with a night in it for all tests of the page; what a test changes has names of its own."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.browser import TestBrowser
from tests.interfaces.http.served import Served, serving
from tests.interfaces.web import scene


@pytest.fixture(scope="session")
def browser() -> Iterator[TestBrowser]:
    with TestBrowser() as one:
        yield one


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("night")
    (folder / ".allswell").mkdir(0o700)
    asyncio.run(scene.play(folder / ".allswell" / "allswell.db"))
    scene.work(folder)
    with serving(folder) as server:
        yield server
