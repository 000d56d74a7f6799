"""A snapshot beside a store that is open."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from allswell.domain.receipts.snapshot import OmissionReason
from allswell.runtime.workspace.snapshot import take
from tests.runtime.workspace.repository import git, write


@pytest.mark.parametrize("in_git", [True, False])
def test_a_store_that_this_process_has_open_is_never_opened_by_a_snapshot(tmp_path: Path, in_git: bool) -> None:
    """To open and close it would drop SQLite's locks; whoever came next would take its journal for left over."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if in_git:
        git(folder, "init", "-q")
    write(folder, "work", "work")
    store = sqlite3.connect(folder / "watch.db", isolation_level=None)
    try:
        store.execute("CREATE TABLE t (x)")
        store.execute("BEGIN IMMEDIATE")
        store.execute("INSERT INTO t VALUES (1)")
        kept = take(folder, "t_a", 1, reason="test")
        assert {one.path: one.why for one in kept.left_out} == {
            "watch.db": OmissionReason.SPECIAL,
            "watch.db-journal": OmissionReason.SPECIAL,
        }
        other = f"import sqlite3; sqlite3.connect({str(folder / 'watch.db')!r}, timeout=0).execute('BEGIN IMMEDIATE')"
        done = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
        assert "database is locked" in done.stderr
    finally:
        store.close()
