"""Behind a pooler in transaction mode: every promise holds, and nothing of ours stays in a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import allswell
from allswell.errors import Unavailable
from allswell.store.port import Wakeup
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection import is_pooled
from tests.store.postgres.pooler import POOLERS, behind, left_behind, pooled
from tests.store.postgres.scene import opened, put_tasks
from tests.support.conformance import Case, Place, Skip, following, holding, living, picking

CASES: tuple[Case, ...] = (*holding.CASES, *picking.CASES, *following.CASES, *living.CASES)
"""Those of the suite in which it matters that a transaction is a session's; the rest are single statements."""


@pytest.fixture(params=POOLERS)
def pooled_url(request: pytest.FixtureRequest, pg_url: str) -> Iterator[str]:
    """A database behind a pooler in transaction mode."""
    with behind(request.param, pg_url) as url:
        yield url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_store_keeps_its_promises_behind_a_pooler(case: Case, pg_url: str) -> None:
    with pooled(pg_url, size=4) as pooler:
        try:
            asyncio.run(case(Place(lambda: PostgresStore(pooler.url), calls=False)))
        except Skip as skip:
            pytest.skip(str(skip))


def test_two_processes_work_and_nothing_is_left_in_any_session(pooled_url: str) -> None:
    async def work(watch: allswell.Watch, name: str) -> None:
        for number in range(15):
            await watch.submit(f"{name}-{number}", role=name)
            lease = await watch.claim(agent=name, roles=[name], lease="60s", wait="1m")
            assert lease is not None
            await lease.checkin("on it")
            await lease.complete(number)

    async def main() -> None:
        async with allswell.open(pooled_url) as first, allswell.open(pooled_url) as second:
            watches = [first, second]
            await asyncio.gather(*(work(watches[number % 2], f"w{number}") for number in range(8)))
            assert await first.counts() == {"done": 8 * 15}
            assert await second.unaccounted() == []
        assert left_behind(pooled_url) == []

    asyncio.run(main())


def test_calls_are_told_through_a_pooler_and_heard_past_it(pooled_url: str, pg_url: str) -> None:
    """Who connects directly hears those behind the pooler; those behind it poll, and bind no session with LISTEN."""

    async def main() -> None:
        async with opened(pooled_url) as behind, opened(pg_url) as direct:
            heard: list[Wakeup] = []
            direct.hear(heard.append)
            deaf: list[Wakeup] = []
            behind.hear(deaf.append)
            async with asyncio.timeout(20):
                while not any(call.spreads for call in heard):
                    await asyncio.sleep(0.01)
                heard.clear()
                behind.announce(Wakeup(ready=True))
                while Wakeup(ready=True) not in heard:
                    await asyncio.sleep(0.01)
            assert behind._herald._carrier.fileno() is None

    asyncio.run(main())


def test_statements_are_prepared_only_where_nobody_is_in_between(pooled_url: str, pg_url: str) -> None:
    async def prepared(url: str, **settings: float | None) -> bool:
        async with opened(url, **settings) as store:
            await put_tasks(store, [f"t_{len(settings)}_{'direct' if url == pg_url else 'pooled'}"])
            line = store._desks["decisions 1"]._line
            assert line is not None
            return bool(line._talk._prepared)

    async def main() -> None:
        assert await prepared(pg_url)
        assert not await prepared(pg_url, prepare_threshold=None)
        assert not await prepared(pooled_url)

    asyncio.run(main())


def test_a_server_that_goes_while_it_is_asked_is_unavailable(pg_url: str) -> None:
    """Found by a storm: the driver's own error came out of opening a store."""
    connection = PostgresStore(pg_url)._address.connect()
    connection.close()
    with pytest.raises(Unavailable):
        is_pooled(connection, "here")


def test_a_pooler_that_can_carry_prepared_statements_may_be_told_so(pg_url: str) -> None:
    """What is asked for is done, whoever is in between."""
    store = PostgresStore(pg_url, prepare_threshold=5)
    assert store._address.prepare_threshold == 5
    asyncio.run(_open_and_close(store))
    assert store._address.prepare_threshold == 5


async def _open_and_close(store: PostgresStore) -> None:
    await store.open()
    await store.close()
