"""How often a process asks the server: once for a submit, three times for a claim.

A submit goes without a look for its task, whose id was drawn for it; an answer that is lost changes nothing but how
often it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Literal
from unittest.mock import patch

import pytest

from allswell.app import make_watch
from allswell.domain.rules.command import Park
from allswell.domain.task.model import TaskFilter
from allswell.engine.watch import Watch
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection import ServerLine
from allswell.store.postgres.pipeline import ServerAnswer, Statement
from tests.store.postgres.scene import wire


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Watch]:
    """A watch that asks for nothing by itself, and has seen the server's clock and lanes."""
    async with make_watch(PostgresStore(url), sweeping=False) as watch:
        await watch.submit("first")
        lease = await watch.claim(agent="ann")
        assert lease is not None
        await lease.complete()
        yield watch


@contextmanager
def counted() -> Iterator[list[int]]:
    """Round trips, each by the number of its statements."""
    trips: list[int] = []
    ask = ServerLine.ask

    def count(
        self: ServerLine,
        statements: Sequence[Statement],
        *,
        prepare: bool = True,
        afterthought: Statement | None = None,
    ) -> list[ServerAnswer]:
        trips.append(len(statements))
        return ask(self, statements, prepare=prepare, afterthought=afterthought)

    with patch.object(ServerLine, "ask", count):
        yield trips


def on(url: str, test: Callable[[Watch], Awaitable[None]]) -> None:
    async def main() -> None:
        async with watching(url) as watch:
            await test(watch)

    asyncio.run(main())


def test_a_submit_is_one_round_trip_and_a_claim_three(pg_url: str) -> None:
    async def test(watch: Watch) -> None:
        with counted() as submitting:
            task = await watch.submit("a")
        with counted() as claiming:
            lease = await watch.claim(agent="ann")
        assert lease is not None
        assert lease.task == task
        assert (len(submitting), len(claiming)) == (1, 3), "a claim: lanes; pick; what was decided, and the commit"

    on(pg_url, test)


def test_a_lane_that_was_not_there_the_last_time_is_served(pg_url: str) -> None:
    async def test(watch: Watch) -> None:
        async with make_watch(PostgresStore(pg_url), sweeping=False) as other:
            task = await other.submit("a", role="new", priority=5)
            await other.submit("b")
        lease = await watch.claim(agent="ann")
        assert lease is not None
        assert lease.task == task, "and first, as its priority wants it"

    on(pg_url, test)


def test_a_lane_that_was_open_the_last_time_and_is_not_now_is_not_served(pg_url: str) -> None:
    async def test(watch: Watch) -> None:
        await watch.submit_many([{"name": "a", "services": ["gpt"]}, {"name": "b", "services": ["gpt"]}])
        assert await watch.claim(agent="ann") is not None
        async with make_watch(PostgresStore(pg_url), sweeping=False) as other:
            await other._engine.do(Park(other._ids.command(), "gpt", 3_600_000))
        assert await watch.claim(agent="ann") is None

    on(pg_url, test)


def test_claimers_who_were_served_from_different_lanes_get_their_own(pg_url: str) -> None:
    async def test(watch: Watch) -> None:
        for _ in range(3):
            await watch.submit_many([{"name": "a", "role": "left"}, {"name": "b", "role": "right"}])
            left, right = await asyncio.gather(
                watch.claim(agent="lea", roles=["left"]), watch.claim(agent="rob", roles=["right"])
            )
            assert left is not None
            assert right is not None
            assert (left.name, right.name) == ("a", "b")

    on(pg_url, test)


@pytest.mark.parametrize("fate", ["pass and cut", "swallow and cut"])
def test_a_submit_whose_answer_was_lost_is_done_once(
    pg_url: str, fate: Literal["pass and cut", "swallow and cut"]
) -> None:
    with wire(pg_url) as line:

        async def test(watch: Watch) -> None:
            line.next = fate
            task = await watch.submit("a")
            assert [row.task.id for row in await watch.tasks(TaskFilter(name="a"))] == [task]
            entries = await watch._engine.store.journal(await watch._engine.store.cursor("nobody"), 100)
            assert sum(entry.event.kind == "task_submitted" and entry.event.task == task for entry in entries) == 1

        on(line.url, test)


def test_a_task_with_a_key_is_looked_for_before_it_is_made(pg_url: str) -> None:
    """It may well be there: that must cost a look, and not a connection."""

    async def test(watch: Watch) -> None:
        task = await watch.submit("a", key="nightly")
        with counted() as trips:
            assert await watch.submit("a", key="nightly") == task
        assert sum(trips) > 0
        assert len(await watch.tasks(TaskFilter(name="a"))) == 1
        with counted() as trips:
            await watch.submit("b")
        assert len(trips) == 1, "and the connection knows its statements still"

    on(pg_url, test)
