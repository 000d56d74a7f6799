"""What goes wrong outside is told in our words: what happened, and what to do."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from allswell.errors import Bug, Refused, Unavailable
from allswell.store.port import RowChanges, RowConflict, Transaction
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.connection import NEWEST
from tests.store.sqlite.scene import finish, opened, plain, put, python, run
from tests.support.conformance.rows import ready, task


async def nothing(store: SqliteStore) -> None:
    pass


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("Dear diary, " * 100)
    with pytest.raises(Refused, match="is not an SQLite database") as refused:
        run(tmp_path / "x.db", nothing)
    assert refused.value.code == "not_a_database"
    assert (tmp_path / "x.db").read_text().startswith("Dear diary")


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as other, other:
        other.execute("CREATE TABLE song (title)")
    other.close()
    with pytest.raises(Refused, match="not a store of Allswell's"):
        run(tmp_path / "x.db", nothing)


def test_a_newer_schema_names_both_versions(tmp_path: Path) -> None:
    run(tmp_path / "x.db", nothing)
    with closing(sqlite3.connect(tmp_path / "x.db")) as other, other:
        other.execute("UPDATE meta SET value = '99' WHERE key IN ('schema_version', 'oldest_writer')")
    other.close()
    with pytest.raises(Refused, match=rf"has schema 99 .* schema 99 or later; .* up to {NEWEST}:") as refused:
        run(tmp_path / "x.db", nothing)
    assert refused.value.code == "newer_schema"


@pytest.mark.realtime
def test_locked_too_long_names_the_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db", busy_timeout=50) as store:
            outside = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            outside.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match=r"busy_timeout \(50 ms\)"):
                await put(store, plain(["t_1"]))
            assert await store.view_counts() == {}, "views never wait for writers"
            outside.close()
            await put(store, plain(["t_1"]))

    asyncio.run(main())


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, plain(["t_1"]))

            async def limit(tx: Transaction) -> None:
                store._writer._connection.execute("PRAGMA max_page_count = 40")  # type: ignore[union-attr]

            async def relieve(tx: Transaction) -> None:
                store._writer._connection.execute("PRAGMA max_page_count = 100000")  # type: ignore[union-attr]

            await store.transact(limit)
            with pytest.raises(Unavailable, match="no room left") as full:
                await put(store, RowChanges(new_tasks=[(task("t_big"), "x" * 1_000_000)]))
            assert full.value.hint is not None
            assert await store.view_counts() == {"ready": 1}
            await store.transact(relieve)
            await put(store, RowChanges(new_tasks=[(task("t_big"), "x" * 1_000_000)], new_ready=[ready("t_big")]))
            assert await store.view_counts() == {"ready": 2}

    asyncio.run(main())


def test_a_limit_on_file_sizes_is_an_error_and_no_loss(tmp_path: Path) -> None:
    """The kernel refuses to let the WAL grow, as a quota would."""
    script = """
import asyncio, resource, sys
from allswell.errors import Unavailable
from allswell.store.port import RowChanges
from tests.support.conformance.rows import task
from tests.store.sqlite.scene import opened, plain, put

async def main():
    async with opened(sys.argv[1]) as store:
        await put(store, plain(["t_1"]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        try:
            await put(store, RowChanges(new_tasks=[(task("t_big"), "x" * 2_000_000)]))
        except Unavailable as error:
            print(error)
        assert await store.view_counts() == {"ready": 1}
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await put(store, plain(["t_2"]))
        assert await store.view_counts() == {"ready": 2}

asyncio.run(main())
"""
    said = finish(python(script, tmp_path / "x.db"))
    assert "nothing of this batch was kept" in said
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 600_000


READ_ONLY = """
import asyncio, os, sys
from allswell.errors import Unavailable
from tests.store.sqlite.scene import opened, plain, put
path = sys.argv[1]
if os.geteuid() == 0:  # nothing is read-only for root
    os.setgid(65534)
    os.setuid(65534)

async def main():
    try:
        async with opened(path) as store:
            await put(store, plain(["t_1"]))
    except Unavailable as error:
        print(error)

asyncio.run(main())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are for one user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder
        for path in (folder, *folder.glob("store")):
            path.chmod(0o755)


@pytest.mark.parametrize("what", ["file", "folder", "parent"])
def test_read_only(open_folder: Path, what: str) -> None:
    folder = open_folder / "store"
    database = folder / "x.db"
    if what != "parent":
        run(database, nothing)
        for file in folder.iterdir():
            file.chmod(0o666)
    if what == "file":
        folder.chmod(0o777)
        database.chmod(0o444)
    elif what == "folder":
        folder.chmod(0o555)
        for file in folder.glob("*.next"):
            file.unlink()
    else:
        open_folder.chmod(0o555)
    said = finish(python(READ_ONLY, database))
    expected = {"file": "is read-only", "folder": "cannot open the lock file", "parent": "cannot make the store's"}
    assert expected[what] in said
    assert "mode" in said or "make it yourself" in said


def test_our_own_mistakes_are_bugs(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, plain(["t_1"]))
            with pytest.raises(RowConflict):
                await put(store, plain(["t_1"]))
            with pytest.raises(Bug, match="SQLITE_CONSTRAINT"):
                await put(store, RowChanges(new_ready=[ready("t_1")]))
            with pytest.raises(Bug, match="changed 0"):
                await put(store, RowChanges(tasks=[(task("t_2"), None)]))

            async def careless(tx: Transaction) -> None:
                await tx.write(plain(["t_3"]))
                try:
                    await tx.write(RowChanges(new_ready=[ready("t_1")]))
                except sqlite3.Error:
                    return

            with pytest.raises(Bug, match="went on after a write"):
                await store.transact(careless)
            assert await store.view_counts() == {"ready": 1}

    asyncio.run(main())


def test_work_that_waits_for_something_else_is_a_bug_and_undone(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:

            async def patient(tx: Transaction) -> None:
                await tx.write(plain(["t_1"]))
                await asyncio.sleep(0)

            with pytest.raises(Bug, match="awaited something other"):
                await store.transact(patient)
            assert await store.view_counts() == {}

    asyncio.run(main())


def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "x.db")
        for _ in range(2):
            with pytest.raises(Unavailable, match="is not open"):
                await put(store, plain(["t_1"]))
            with pytest.raises(Unavailable, match="is not open"):
                await store.view_counts()
            await store.open()
            await store.open()
            await store.close()
            await store.close()

    asyncio.run(main())
    assert not list(tmp_path.glob("*-wal")), "the last one out leaves no WAL"
