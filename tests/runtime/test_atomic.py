"""Files that are replaced together: each whole, and nothing beside them."""

import errno
import os
import stat
from pathlib import Path

import pytest

from allswell.runtime.workspace import files as atomic
from allswell.runtime.workspace.files import replace_files


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every flush, in its order: of the file system, of one file, or of the folder."""
    seen: list[str] = []
    together, alone = atomic._flush_of_file_system(), os.fsync
    assert together is not None, "the tests run on a Linux whose syncfs tells of errors"

    def whole(folder: int) -> None:
        assert all(name.startswith(".") for name in os.listdir(folder)), "named before it was flushed"
        seen.append("file system")
        together(folder)

    def one(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        alone(handle)

    monkeypatch.setattr(atomic, "_flush_of_file_system", lambda: whole)
    monkeypatch.setattr(os, "fsync", one)
    return seen


@pytest.mark.parametrize("count", [1, 7, 8, 40])
def test_all_of_them_are_there_and_whole(tmp_path: Path, flushes: list[str], count: int) -> None:
    files = [(f"{number}.json", b"x" * number) for number in range(count)]
    replace_files(tmp_path, files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict(files)
    assert flushes == [*(["file"] * count if count < 8 else ["file system"]), "folder"]


def test_what_could_not_be_flushed_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "3.json").write_bytes(b"old")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic, "_flush_of_file_system", lambda: broken)
    with pytest.raises(OSError, match="Input/output error"):
        replace_files(tmp_path, [(f"{number}.json", b"new") for number in range(9)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"3.json": b"old"}


def test_where_the_system_keeps_errors_to_itself_each_file_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        sysname, release = "Linux", "5.4.0-generic"

    monkeypatch.setattr(os, "uname", lambda: Old)
    atomic._flush_of_file_system.cache_clear()
    try:
        assert atomic._flush_of_file_system() is None
    finally:
        atomic._flush_of_file_system.cache_clear()
