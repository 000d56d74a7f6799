"""Copies of a store, made by SQLite itself: never by opening its files."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from allswell.errors import Refused, Unavailable
from allswell.store.sqlite.connection import connect, connect_reader
from allswell.store.sqlite.faults import translated
from allswell.store.sqlite.place import make_empty


def copy(database: Path, target: Path, busy_timeout: int) -> None:
    """Copy a database into a file that appears whole or not at all.

    In one step: a copy in several would begin anew whenever somebody writes in between.
    """
    target = target.absolute()
    if target.exists() and target.samefile(database):
        raise Refused("bad_backup", f"{target} is the store itself", where="target")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        make_empty(part)
        with translated(part, busy_timeout), closing(connect(part, busy_timeout)) as there:
            with translated(database, busy_timeout), closing(connect_reader(database, busy_timeout)) as here:
                here.backup(there, pages=-1)
            # The copy is one file, whoever opens it next: no WAL beside it.
            there.execute("PRAGMA journal_mode = DELETE").fetchall()
        part.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Unavailable(f"cannot write the backup {target}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
