"""Where a store lies: what a URL or a path means, and the folder around it."""

from __future__ import annotations

from pathlib import Path

from allswell.domain.store_url import hide
from allswell.errors import Refused, Unavailable
from allswell.store.sqlite import filesystem

_SCHEME = "sqlite:"


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


def prepare(database: Path) -> None:
    """Make the folder if it is missing, after a look at the file system it will lie on."""
    folder = database.parent
    existing = folder
    try:
        while not existing.exists():
            existing = existing.parent
        filesystem.check(existing)
        if existing != folder:
            folder.mkdir(parents=True, exist_ok=True)
            # git would open, read and close the database by ordinary means (see the package's first words).
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise Unavailable(
            f"cannot make the store's folder {folder}: {error.strerror}",
            hint="make it yourself, or choose another place with $ALLSWELL_STORE",
        ) from error
    if database.is_dir():
        raise Refused("bad_url", f"{database} is a folder; name a file in it", where="store")
