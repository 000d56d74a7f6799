"""Makes a night to be kept here: `python -m tests.store.kept.make 2026-11-18`, from the root of the tree.

Each folder was made by Allswell as it was on that day, and must open for ever: on 2026-11-17 before the engine was made
plainer, on 2026-11-18 before the tree of modules was made anew, with a row in every table. Do not make one anew because
a test fails: keep what a later version makes beside it, in a folder of its own, and name it in `scene.NIGHTS`.

Everything is text: a dump of a SQLite store, one of the same night on PostgreSQL, and the folder of the first with a
flow's run in it. What would tell of the machine (its name, its boot, the folder) is taken out.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from allswell.runtime.host import boot_id
from allswell.testing.postgres import Cluster, find_binaries
from tests.store.kept.scene import end_last_run, fill, interrupt_flow, program

HERE = Path(__file__).parent
FOLDER = "@FOLDER@"
"""Stands for the folder in which it all happened."""
_NOT_KEPT = ("*.db", "*.db-*", "*.db.*", ".gitignore", "lock")


def _anonymous(folder: Path) -> Callable[[str], str]:
    host = re.escape(socket.gethostname())
    told = [
        (re.escape(str(folder)), FOLDER),
        (re.escape(boot_id()), "00000000-0000-4000-8000-000000000000"),
        (rf"\b{host}(:[0-9]+\.[0-9]+)\.[0-9a-f]{{8}}", r"elsewhere\1.0a0b0c0d"),
        (rf"\bflow-{host}-", "flow-elsewhere-"),
        (re.escape(tempfile.gettempdir()) + "/allswell-[0-9a-f]{16}", f"{FOLDER}/.allswell/socket"),
    ]

    def change(text: str) -> str:
        for pattern, instead in told:
            text = re.sub(pattern, instead, text)
        return text

    return change


def _keep_sqlite(folder: Path, night: Path) -> None:
    (folder / ".allswell").mkdir()
    path = folder / ".allswell" / "allswell.db"
    url = f"sqlite:///{path}"
    asyncio.run(fill(url))
    assert program(folder, url, "dies")[0] == 9
    interrupt_flow(folder, url)
    asyncio.run(end_last_run(url))
    change = _anonymous(folder)
    raw = sqlite3.connect(path)
    dumped = "\n".join(raw.iterdump())
    raw.close()
    (night / "sqlite.sql").write_text(change(f"-- left at {time.time_ns() // 1_000_000}\n{dumped}\n"))
    kept = night / "folder"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(*_NOT_KEPT))
    (kept / ".allswell").rename(kept / "allswell")  # a folder of that name would be seen as a watch's
    for file in kept.rglob("*"):
        if file.is_file():
            file.write_text(change(file.read_text()))


def _keep_postgres(folder: Path, night: Path) -> None:
    with Cluster() as cluster:
        url = cluster.create_database()
        asyncio.run(fill(url))
        assert program(folder, url, "dies")[0] == 9
        asyncio.run(end_last_run(url))
        left = time.time_ns() // 1_000_000
        dump = [str(find_binaries() / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", "--no-comments", url]
        dumped = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    # Settings of the session that loads it are its own business, and differ from server to server.
    lines = [
        line
        for line in dumped.splitlines()
        if not line.startswith(("SET ", "SELECT pg_catalog.set_config", "\\", "--"))
    ]
    text = re.sub(r"\n{2,}", "\n", "\n".join(lines))
    (night / "postgres.sql").write_text(_anonymous(folder)(f"-- left at {left}\n{text.strip()}\n"))


if __name__ == "__main__":
    made = HERE / sys.argv[1]
    made.mkdir()  # one that is there stays as it is
    for keep in (_keep_sqlite, _keep_postgres):
        with tempfile.TemporaryDirectory(prefix="allswell-kept-") as place:
            keep(Path(place), made)
