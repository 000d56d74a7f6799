"""Every store keeps the promises of the port: one suite, all stores."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from allswell.store.memory import MemoryStore
from tests.support.conformance import CASES, Case, Place, Skip


def memory(request: pytest.FixtureRequest) -> Place:
    first = MemoryStore()
    return Place(first.another)


def memory_at_ease(request: pytest.FixtureRequest) -> Place:
    first = MemoryStore(strict=False)
    return Place(first.another, concurrent=False)


def sqlite(request: pytest.FixtureRequest) -> Place:
    from allswell.store.sqlite import SqliteStore

    path: Path = request.getfixturevalue("tmp_path")
    return Place(lambda: SqliteStore(path / "watch.db"), concurrent=False)


def postgres(request: pytest.FixtureRequest) -> Place:
    from allswell.store.postgres import PostgresStore

    url: str = request.getfixturevalue("pg_url")
    return Place(lambda: PostgresStore(url))


@pytest.mark.parametrize("make", [memory, memory_at_ease, sqlite, postgres])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_store(make: Callable[[pytest.FixtureRequest], Place], case: Case, request: pytest.FixtureRequest) -> None:
    place = make(request)
    try:
        asyncio.run(case(place))
    except Skip as skip:
        pytest.skip(str(skip))


def test_every_case_has_its_own_name_and_says_what_it_proves() -> None:
    names = [getattr(case, "__name__", "") for case in CASES]
    assert len(set(names)) == len(names)
    assert all(case.__doc__ for case in CASES)
