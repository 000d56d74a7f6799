"""Several processes on one store: turns, crashes, forks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from allswell.domain.rules.event import Position
from allswell.domain.task.model import TaskFilter
from allswell.errors import Unavailable
from allswell.store.sqlite.writer import Turnstile
from tests.store.sqlite.scene import finish, opened, plain, put, python

SATURATE = """
import asyncio, sys, time
from tests.store.sqlite.scene import opened, plain, put

async def main(path, mark, seconds):
    async with opened(path) as store:
        print("open", flush=True)
        until, count, longest = time.monotonic() + float(seconds), 0, 0.0
        while time.monotonic() < until:
            start = time.monotonic()
            await put(store, plain([f"t_{mark}_{count:05d}_{number:03d}" for number in range(100)]))
            longest = max(longest, time.monotonic() - start)
            count += 1
        print(count, longest)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.realtime
@pytest.mark.alone
def test_a_small_commit_beside_a_saturating_writer_waits_one_turn(tmp_path: Path) -> None:
    """SQLite's own lock made it wait 600 ms."""
    path = tmp_path / "x.db"
    other = python(SATURATE, path, "other", "3")
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"

    async def main() -> list[float]:
        waits = []
        async with opened(path) as store:
            for number in range(40):
                start = time.monotonic()
                await put(store, plain([f"t_{number}"]))
                waits.append(time.monotonic() - start)
                await asyncio.sleep(0.02)
        return sorted(waits)

    waits = asyncio.run(main())
    turns = int(finish(other).split()[0])
    assert turns > 20, "the other one was not at work"
    assert waits[len(waits) // 2] < 0.2
    assert waits[-1] < 1.0


@pytest.mark.realtime
@pytest.mark.alone
def test_two_saturating_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    both = [python(SATURATE, path, mark, "2") for mark in ("a", "b")]
    figures = [finish(process).split()[1:] for process in both]
    counts = [int(count) for count, _ in figures]
    assert min(counts) * 4 > max(counts), f"one starved the other: {counts}"
    assert max(float(longest) for _, longest in figures) < 1.5
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("SELECT count(*) FROM task").fetchone() == (sum(counts) * 100,)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()


@pytest.mark.realtime
def test_no_turn_names_the_timeout(tmp_path: Path) -> None:
    held = os.open(tmp_path / "x.db.turn", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    turnstile = Turnstile(tmp_path / "x.db", 30)
    turnstile.open()
    with pytest.raises(Unavailable, match=r"turn_timeout \(0.03 s\)"):
        turnstile.enter()
    following = os.open(tmp_path / "x.db.next", os.O_RDWR)
    fcntl.flock(following, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who gave up holds nobody up
    with pytest.raises(Unavailable, match="turn_timeout"):
        turnstile.enter()
    os.close(held)
    os.close(following)
    turnstile.enter()
    turnstile.leave()
    turnstile.close()


ACKNOWLEDGE = """
import asyncio, sys
from tests.store.sqlite.scene import opened, plain, put

async def main(path, mark):
    async with opened(path) as store:
        for number in range(100_000):
            await put(store, plain([f"t_{mark}_{number:06d}"]), durable=number % 2 == 0)
            print(f"t_{mark}_{number:06d}", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """Ten times a writer dies in the middle, with a reader and other stores coming and going."""
    path = tmp_path / "x.db"
    acknowledged: list[str] = []
    for round_ in range(10):
        writer = python(ACKNOWLEDGE, path, f"{round_}")
        assert writer.stdout is not None
        acknowledged += [writer.stdout.readline().strip() for _ in range(5 + 7 * round_)]
        if round_ % 2:
            asyncio.run(look_in(path))
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=30)
        acknowledged += [line for line in rest.split("\n")[:-1] if line]

    async def listed() -> set[str]:
        async with opened(path) as store:
            rows = await store.view_tasks(TaskFilter(limit=1_000_000))
            events = await store.journal(Position(), 1_000_000)
            assert len(events) == len(rows), "a task without its event, or the other way round"
            return {row.task.id for row in rows}

    assert set(acknowledged) - asyncio.run(listed()) == set()
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()


async def look_in(path: Path) -> None:
    async with opened(path) as store:
        await store.view_counts()


def test_a_store_inherited_over_fork_is_refused(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from allswell.errors import Refused
from allswell.store.sqlite import SqliteStore
from tests.store.sqlite.scene import plain, put

def child(store):
    async def main():
        for call in (store.open, store.close, store.view_counts, lambda: put(store, plain(["t_2"]))):
            try:
                await call()
            except Refused as error:
                assert error.code == "forked", error.code
            else:
                raise AssertionError("not refused")
    asyncio.run(main())

loop = asyncio.new_event_loop()
store = SqliteStore(sys.argv[1])
loop.run_until_complete(store.open())
loop.run_until_complete(put(store, plain(["t_1"])))
pid = os.fork()
if pid == 0:
    child(store)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
loop.run_until_complete(put(store, plain(["t_3"])))
os._exit(0)  # as if killed: what counts is in the files
"""
    finish(python(script, tmp_path / "x.db"))

    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            assert await store.view_counts() == {"ready": 2}

    asyncio.run(main())


def test_a_child_does_not_keep_its_dead_parents_turn(tmp_path: Path) -> None:
    """A flock belongs to the open file, and a fork shares it."""
    script = """
import os, sys, time
from pathlib import Path
from allswell.store.sqlite.writer import Turnstile
turnstile = Turnstile(Path(sys.argv[1]), 1000)
turnstile.open()
turnstile.enter()
if os.fork() == 0:
    print("child", os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.read(0, 1)
os.kill(os.getpid(), 9)
"""
    parent = python(script, tmp_path / "x.db")
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = int(parent.stdout.readline().split()[1])
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(timeout=30)
    try:
        os.kill(child, 0)
        turnstile = Turnstile(tmp_path / "x.db", 1)
        turnstile.open()
        turnstile.enter()
        turnstile.close()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdin.close()
        parent.stdout.close()
        if parent.stderr is not None:
            parent.stderr.close()


MAKE = """
import asyncio, sys
from tests.store.sqlite.scene import opened, plain, put

async def main(path, mark):
    sys.stdin.readline()
    async with opened(path) as store:
        await put(store, plain([f"t_{mark}"]))

asyncio.run(main(*sys.argv[1:]))
"""


def test_many_processes_make_one_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new/x.db"
    makers = [python(MAKE, path, f"{number}") for number in range(4)]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("\n")
        maker.stdin.flush()
    for maker in makers:
        finish(maker)

    async def main() -> None:
        async with opened(path) as store:
            assert await store.view_counts() == {"ready": 4}

    asyncio.run(main())


VISITED = """
import asyncio, sys
from pathlib import Path
from tests.store.sqlite.scene import opened, plain, put

async def main(path, ordinary):
    async with opened(path) as store:
        await put(store, plain(["t_00"]))
        if ordinary == "True":
            Path(path).read_bytes()
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(1, 11):
            await put(store, plain([f"t_{number:02d}"]))
        print("acknowledged", flush=True)
        sys.stdin.readline()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("ordinary", [False, True])
def test_why_nothing_but_sqlite_may_open_the_database(tmp_path: Path, ordinary: bool) -> None:
    """One ordinary read by the writing process, one visitor, one kill -9: and what was acknowledged is gone."""
    path = tmp_path / "x.db"
    writer = python(VISITED, path, str(ordinary))
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    visitor = sqlite3.connect(path)
    visitor.execute("SELECT count(*) FROM task").fetchone()
    visitor.close()
    writer.stdin.write("\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == "acknowledged\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=30)
    raw = sqlite3.connect(path)
    kept = raw.execute("SELECT count(*) FROM task").fetchone()[0]
    raw.close()
    assert (kept == 11) is not ordinary
