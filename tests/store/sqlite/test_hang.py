"""A disk that hangs: the caller is let go in time, and is never told anything untrue about the commit."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allswell.domain.rules.event import Position
from allswell.domain.task.model import TaskFilter
from allswell.errors import Bug, Unavailable
from allswell.store.port import CommitUnknown, Transaction
from allswell.store.sqlite import SqliteStore
from tests.store.sqlite.scene import opened, plain, put

ANSWER = 600
"""Milliseconds."""


class HangingCommit:
    """A connection whose COMMIT does not return until it is let."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real
        self.begun = threading.Event()
        self.let = threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        if statement == "COMMIT":
            self.begun.set()
            assert self.let.wait(30)
        return self._real.execute(statement, *values)  # type: ignore[arg-type]


@pytest.mark.realtime
def test_a_commit_that_hangs_is_unknown_and_settled_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db", turn_timeout=10, busy_timeout=10, answer_timeout=ANSWER) as store:
            hanging = _hang(store)
            with pytest.raises(CommitUnknown) as unknown:
                await put(store, plain(["t_1"]))
            with pytest.raises(Unavailable, match="still stuck"):
                await put(store, plain(["t_2"]))
            assert await store.view_counts() == {}, "views go on"
            asked = asyncio.create_task(store.outcome(unknown.value.ticket))
            await asyncio.sleep(0.01)
            assert not asked.done()
            hanging.let.set()
            assert await asked is True
            await put(store, plain(["t_3"]))
            assert await store.view_counts() == {"ready": 2}, "the thread is trusted again"
            with pytest.raises(Bug, match="no commit is in doubt"):
                await store.outcome(unknown.value.ticket)

    asyncio.run(main())


@pytest.mark.realtime
def test_work_that_was_given_up_before_its_commit_never_commits(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db", turn_timeout=10, busy_timeout=10, answer_timeout=ANSWER) as store:
            let = threading.Event()

            async def slow(tx: Transaction) -> None:
                await tx.write(plain(["t_1"]))
                assert let.wait(30)

            first = asyncio.create_task(store.transact(slow))
            second = asyncio.create_task(put(store, plain(["t_2"])))
            for task in (first, second):
                with pytest.raises(Unavailable, match="answer_timeout"):
                    await task
            let.set()
            await _until_it_goes(lambda: put(store, plain(["t_3"])))
            assert await store.view_counts() == {"ready": 1}

    asyncio.run(main())


@pytest.mark.realtime
def test_a_cancelled_caller_leaves_the_store_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            hanging = _hang(store)
            caller = asyncio.create_task(put(store, plain(["t_1"])))
            await asyncio.to_thread(hanging.begun.wait, 30)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            hanging.let.set()
            await put(store, plain(["t_2"]))
            assert await store.view_counts() == {"ready": 2}

    asyncio.run(main())


def _hang(store: SqliteStore) -> HangingCommit:
    real = store._writer._connection
    assert real is not None
    hanging = HangingCommit(real)
    store._writer._connection = hanging  # type: ignore[assignment]
    return hanging


@pytest.mark.realtime
def test_asking_what_became_of_a_hung_commit_is_bounded(tmp_path: Path) -> None:
    """Otherwise a caller's patience could never run out."""

    async def main() -> None:
        async with opened(tmp_path / "x.db", turn_timeout=10, busy_timeout=10, answer_timeout=ANSWER) as store:
            hanging = _hang(store)
            with pytest.raises(CommitUnknown) as unknown:
                await put(store, plain(["t_1"]))
            with pytest.raises(Unavailable, match="answer_timeout"):
                await store.outcome(unknown.value.ticket)
            hanging.let.set()
            assert await store.outcome(unknown.value.ticket) is True

    asyncio.run(main())


@pytest.mark.realtime
def test_what_may_be_written_twice_is_simply_tried_again(tmp_path: Path) -> None:
    """A lane or a follower's place can be written again, so its caller never has to ask what became of a commit."""

    async def main() -> None:
        async with opened(tmp_path / "x.db", turn_timeout=10, busy_timeout=10, answer_timeout=ANSWER) as store:
            for write in (lambda: store.advance("page", Position(0, 7)), lambda: store.intern_lanes([("critic", ())])):
                hanging = _hang(store)
                with pytest.raises(Unavailable, match="did not answer to a commit"):
                    await write()
                hanging.let.set()
                await _until_it_goes(write)
            assert await store.cursor("page") == Position(0, 7)

    asyncio.run(main())


@pytest.mark.realtime
def test_work_whose_caller_left_before_its_commit_never_commits(tmp_path: Path) -> None:
    """Otherwise a task could be claimed for somebody who has been told nothing and will never know."""

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            begun, let = threading.Event(), threading.Event()

            async def slow(tx: Transaction) -> None:
                await tx.write(plain(["t_1"]))
                begun.set()
                assert let.wait(30)

            caller = asyncio.create_task(store.transact(slow))
            await asyncio.to_thread(begun.wait, 30)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            let.set()
            await put(store, plain(["t_2"]))
            assert [row.task.id for row in await store.view_tasks(TaskFilter())] == ["t_2"]

    asyncio.run(main())


async def _until_it_goes(write: Callable[[], Awaitable[object]]) -> None:
    """Write as soon as the thread has come back from where it hung."""
    while True:
        try:
            await write()
        except Unavailable:
            await asyncio.sleep(0.001)
        else:
            return
