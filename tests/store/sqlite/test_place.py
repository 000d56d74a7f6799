"""Where a store lies: URLs, folders, and who opens the database's files."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from allswell.domain.rules.event import Position
from allswell.domain.task.model import TaskFilter
from allswell.errors import Refused
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.paths import locate
from tests.store.sqlite.scene import finish, opened, plain, put, python, run


def test_urls_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("sqlite:///a/b.db") == tmp_path / "a/b.db"
    assert locate(f"sqlite:///{tmp_path}/b.db") == tmp_path / "b.db"
    assert locate("100%25.db") == tmp_path / "100%25.db"
    assert locate(tmp_path / "x.db") == tmp_path / "x.db"
    store = SqliteStore("a.db")
    assert SqliteStore(store.url).path == store.path


def test_two_names_of_one_file_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert locate(tmp_path / "link/x.db") == locate(tmp_path / "real/x.db")


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite://", "sqlite:///", "sqlite://x.db", ":memory:", "folder/"])
def test_what_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(Refused) as refused:
        locate(url)
    assert refused.value.code == "bad_url"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is a folder"):
        asyncio.run(SqliteStore(tmp_path).open())


def test_a_missing_folder_is_made_and_kept_from_git(tmp_path: Path) -> None:
    async def nothing(store: SqliteStore) -> None:
        pass

    run(tmp_path / "deep/.allswell/allswell.db", nothing)
    assert (tmp_path / "deep/.allswell/.gitignore").read_text() == "*\n"
    run(tmp_path / "deep/other.db", nothing)
    assert not (tmp_path / "deep/.gitignore").exists(), "a folder that was there is left as it is"


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="less than answer_timeout"):
        SqliteStore(tmp_path / "x.db", answer_timeout=15_000)


def test_nothing_but_sqlite_opens_the_database(tmp_path: Path) -> None:
    """To open, read and close one's own database by ordinary means drops its POSIX locks; rows were lost by it."""
    script = """
import asyncio, sys
from allswell.domain.rules.event import Position
from allswell.domain.task.model import TaskFilter
from tests.store.sqlite.scene import opened, plain, put
seen = []
sys.addaudithook(lambda event, given: seen.append(str(given[0])) if event == "open" else None)

async def main(path, copy):
    for _ in range(2):
        async with opened(path) as store:
            if not await store.view_counts():
                await put(store, plain(["t_1", "t_2"]))
            await store.view_tasks(TaskFilter())
            await store.journal(Position(), 10)
            await store.backup(copy)

asyncio.run(main(sys.argv[1], sys.argv[2]))
base = sys.argv[1]
touched = [name for name in seen if name in (base, base + "-wal", base + "-shm")]
assert base + ".turn" in seen, "the hook works"
assert touched == [], touched
"""
    finish(python(script, tmp_path / "x.db", tmp_path / "copy.db"))


def test_a_backup_is_a_whole_store_and_replaces_the_one_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "x.db") as store:
            await put(store, plain(["t_1"]))
            await store.backup(tmp_path / "copy.db")
            await put(store, plain(["t_2"]))
            await store.backup(tmp_path / "copy.db")
            await put(store, plain(["t_3"]))
            with pytest.raises(Refused, match="the store itself"):
                await store.backup(tmp_path / "x.db")
        async with opened(tmp_path / "copy.db") as copy:
            assert [row.task.id for row in await copy.view_tasks(TaskFilter())] == ["t_1", "t_2"]
            assert len(await copy.journal(Position(), 10)) == 2

    asyncio.run(main())
    assert not (tmp_path / "copy.db.part").exists()
    with closing(sqlite3.connect(tmp_path / "copy.db")) as raw, raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()
