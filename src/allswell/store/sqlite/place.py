"""Where a store lies: what a URL or a path means, the folder around it, and who may enter.

The database's files are looked at, never opened: an ordinary open and close would drop the locks that SQLite holds in
this process. They are for their owner alone; SQLite gives its WAL the mode of the database.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from allswell.domain.store_url import hide
from allswell.errors import Refused, Unavailable
from allswell.store import state_folder
from allswell.store.sqlite import filesystem

_SCHEME = "sqlite:"
_FILES = ("", "-wal", "-shm", "-journal", ".next", ".turn")
_MADE = ("", ".next", ".turn")


def locate(place: str | Path) -> Path:
    """The database's absolute path; `sqlite:///relative`, `sqlite:////absolute` or a plain path.

    Nothing is decoded: a `%` in a file's name is a `%`. Links are followed, or two names of one database would have two
    turnstiles.
    """
    text = str(place)
    if text.startswith(_SCHEME):
        if not text.startswith(f"{_SCHEME}///"):
            raise Refused(
                "bad_url",
                f"{hide(text)!r} names no file: write sqlite:///relative/path or sqlite:////absolute/path",
                where="store",
            )
        text = text.removeprefix(f"{_SCHEME}///")
    if not text or text == ":memory:" or text.endswith("/") or "\0" in text:
        raise Refused("bad_url", f"{str(place)!r} names no file; a store in memory is `memory:`", where="store")
    return Path(text).expanduser().resolve()


def prepare(database: Path) -> HeldFolder:
    """Make what is missing, after a look at the file system it will lie on, and close it to others."""
    folder = database.parent
    existing = folder
    try:
        while not existing.exists():
            existing = existing.parent
        filesystem.check(existing)
        if existing != folder or folder.name == state_folder.NAME:
            state_folder.make(folder)
    except OSError as error:
        raise Unavailable(
            f"cannot make the store's folder {folder}: {error.strerror}",
            hint="make it yourself, or choose another place with $ALLSWELL_STORE",
        ) from error
    if database.is_dir():
        raise Refused("bad_url", f"{database} is a folder; name a file in it", where="store")
    return HeldFolder(database)


def check(database: Path) -> None:
    """Refuse a database whose files are not plain ones: SQLite would write through a link that somebody has put there.

    Only looked at, before every connection.
    """
    for path in _files(database):
        found = _look(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise Refused("not_plain", f"{path} is no plain file; remove it, or choose another store", where="store")


def close_to_others(database: Path) -> None:
    """Take from a store of ours what others may do with it, if it was made before that was so."""
    with suppress(OSError):
        if database.parent.name == state_folder.NAME:
            state_folder.close(database.parent)
        for path in _files(database):
            if _look(path) is not None:
                state_folder.close(path)


def make_empty(file: Path) -> None:
    """Make a file that only its owner can read, without opening it; one that is there is left as it is."""
    try:
        os.mknod(file, stat.S_IFREG | 0o600)
    except FileExistsError:
        return
    folder = file.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:  # root looks after another's store, which must stay theirs to use
        os.chown(file, folder.st_uid, folder.st_gid)


class HeldFolder:
    """The folder of an open store, by a descriptor: its path may come to mean another one, and that is noticed."""

    def __init__(self, database: Path) -> None:
        self._database = database
        try:
            self._handle = os.open(database.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"cannot enter the store's folder {database.parent}: {error.strerror}") from error

    def close_files(self) -> None:
        """Make the files that are missing and take from all of them what others may do."""
        check(self._database)
        with suppress(OSError):  # a read-only disk, or another's store: SQLite says what it can do with it
            for end in _MADE:
                make_empty(Path(f"{self._database}{end}"))
        close_to_others(self._database)

    def check(self) -> None:
        """Refuse a folder that was exchanged for another one since it was looked at."""
        held = os.fstat(self._handle)
        try:
            now = self._database.parent.stat()
        except OSError as error:
            raise Unavailable(f"the store's folder {self._database.parent} is gone: {error.strerror}") from error
        if (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino):
            text = f"{self._database.parent} was exchanged for another folder while the store was opened"
            raise Refused("untrusted", text, where="store")

    def let_go(self) -> None:
        """Hold it no longer; safe to call twice."""
        handle, self._handle = self._handle, -1
        if handle != -1:
            os.close(handle)


def _files(database: Path) -> list[Path]:
    return [Path(f"{database}{end}") for end in _FILES]


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
