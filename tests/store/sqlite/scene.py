"""What the tests of the SQLite store are made of: plain rows, a clock set by hand, and other processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import allswell
from allswell.domain.ids import Millis, TaskId
from allswell.domain.rules.event import Event
from allswell.store.port import RowChanges, Transaction
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import Clock, SystemClock
from tests.support.conformance.rows import ready, task

T = TypeVar("T")
ROOT = Path(__file__).parents[3]


class HandClock:
    """A clock that stands where it was put."""

    def __init__(self, wall: int) -> None:
        self.at = wall

    def wall(self) -> int:
        return self.at

    def monotonic(self) -> int:
        return self.at

    def boottime(self) -> int:
        return self.at


@asynccontextmanager
async def opened(path: str | Path, *, clock: Clock | None = None, **settings: int) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=clock or SystemClock(), **settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run(path: str | Path, test: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Run a test on a store."""

    async def main() -> T:
        async with opened(path) as store:
            return await test(store)

    return asyncio.run(main())


async def put(store: SqliteStore, changes: RowChanges, *, durable: bool = True) -> Millis:
    """Commit changes at the store's present moment."""

    async def work(tx: Transaction) -> Millis:
        changes.at = await tx.now()
        await tx.write(changes)
        return changes.at

    return await store.transact(work, durable=durable)


def plain(ids: Sequence[str]) -> RowChanges:
    """Ready tasks, with an event each."""
    return RowChanges(
        new_tasks=[(task(id_), "null") for id_ in ids],
        new_ready=[ready(id_) for id_ in ids],
        events=[Event("task_submitted", TaskId(id_)) for id_ in ids],
    )


def python(script: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Another process that can import what this one can."""
    paths = [str(Path(allswell.__file__).parents[1]), str(ROOT)]
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """What a process printed; it must have ended well."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out
