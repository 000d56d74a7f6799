"""A queue of its own for each test, in a database that is set up once."""

import itertools
from collections.abc import Iterator

import pytest

from allswell.testing.postgres import Cluster
from allswell.worker import setup
from tests.worker.stage import Stage

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def worker_url(pg_cluster: Cluster) -> Iterator[str]:
    """A database with PGMQ."""
    url = pg_cluster.create_database()
    setup(url, "first")
    yield url
    pg_cluster.drop_database(url)


@pytest.fixture
def stage(worker_url: str) -> Iterator[Stage]:
    """An empty queue."""
    stage = Stage(worker_url, f"queue_{next(_NUMBERS)}")
    yield stage
    stage.close()
