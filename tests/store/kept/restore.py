"""Puts back what is kept here, with its moments moved so that it was all left ten minutes ago."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg

from tests.store.kept.make import FOLDER, HERE

AGO = 600_000
"""Milliseconds: whoever promised to renew every minute has not."""
_MOMENT = re.compile(r"\b(1[78][0-9]{11}|4398[0-9]{15})\b")
"""Milliseconds since the epoch; or a task's rank, whose lower 42 bits are the moment at which it was submitted."""
_STAMP = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}(?=Z)")


def _read(night: str, name: str) -> tuple[str, Callable[[str], str]]:
    """A dump, and what moves the moments in its texts and in the files beside it."""
    text = (HERE / night / name).read_text()
    left = re.match(r"-- left at ([0-9]+)\n", text)
    assert left is not None
    by = time.time_ns() // 1_000_000 - AGO - int(left[1])

    def moved(moment: re.Match[str]) -> str:
        return str(int(moment[0]) + by)

    def moved_stamp(stamp: re.Match[str]) -> str:
        at = datetime.fromisoformat(stamp[0]).replace(tzinfo=UTC) + timedelta(milliseconds=by)
        return at.replace(tzinfo=None).isoformat(timespec="milliseconds")

    return text, lambda kept: _STAMP.sub(moved_stamp, _MOMENT.sub(moved, kept))


def restore_sqlite(folder: Path, night: str) -> str:
    """The watch of a folder that was left, and all that lay in the folder; its URL."""
    text, move = _read(night, "sqlite.sql")
    shutil.copytree(HERE / night / "folder", folder, dirs_exist_ok=True)
    for file in folder.rglob("*"):
        if file.is_file():
            file.write_text(move(file.read_text().replace(FOLDER, str(folder))))
    home = (folder / "allswell").rename(folder / ".allswell")
    home.chmod(0o700)
    for file in home.rglob("*"):
        if file.is_file():
            file.chmod(0o600)  # as it was: it came here by git
    raw = sqlite3.connect(home / "allswell.db")
    raw.executescript(move(text.replace(FOLDER, str(folder))))
    raw.close()
    return f"sqlite:///{home / 'allswell.db'}"


def restore_postgres(url: str, night: str) -> str:
    """The same night on PostgreSQL, in a database that is empty; its URL."""
    text, move = _read(night, "postgres.sql")
    with psycopg.connect(url) as connection:
        connection.execute(move(text).encode())
        # This server counts its transactions from another number, and nobody may be told of what is still to come.
        connection.execute("UPDATE allswell.journal SET xid = '3'; UPDATE allswell.cursor SET xid = 3")
    return url
