"""What the user has trusted: settings and stores that came with a folder are used only after `allswell trust`.

A cloned repository can carry an `allswell.toml` that names commands or another server, and an `.allswell/` with keys of
its author. As with direnv and mise, such things are used only once their user has agreed. The record of that lies in
the user's state folder and says

- of a file with settings: its path, and a digest of what it says to us, so that an edit is asked about anew;
- of a store: its path, and the id that the database was given when it was made. A database that a `git pull` has put in
  the place of ours has another id;
- of a link to a store: its path, and where it leads.

A link is never trusted for what it leads to: a clone can bring one to settings or a store of yours, whose commands
would then be looked for in the clone.

What we make ourselves is trusted from the start. `ALLSWELL_TRUST` names folders that are trusted with all that lies
below them, for machines on which no human answers. Processes of the same user can write the record: see
docs/threat-model.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from allswell.errors import Refused, Unavailable

VARIABLE = "ALLSWELL_TRUST"
NO_DATABASE = ""
"""Stands for the id of a store's folder in which no database lies, as beside a store on a server."""
_FILE = "trust.json"
_LARGEST = 4 << 20


class TrustRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was trusted: paths with the digest or the id that they had, or with the path that a link led to."""

    settings: dict[str, str] = {}
    stores: dict[str, str] = {}
    folders: dict[str, str] = {}
    """Folders that are trusted with all that lies below them; the values say nothing."""


def user_folder(variable: str, below_home: str) -> Path:
    """A folder of the user's own by the XDG base directory specification, such as `~/.local/state/allswell`."""
    named = os.environ.get(variable, "")
    base = Path(named) if named.startswith("/") else Path.home() / below_home
    return base / "allswell"


def state_home() -> Path:
    """Where the record lies, and the store of commands that are run in a folder whose own store is not trusted."""
    return user_folder("XDG_STATE_HOME", ".local/state")


def settings_digest(table: Mapping[str, object]) -> str:
    """A digest of what a file says to us; comments and the order of its lines do not count."""
    import hashlib  # only who has such a file pays for it

    return hashlib.sha256(msgspec.json.encode(table, order="deterministic")).hexdigest()


def place_of(path: Path) -> str:
    """The real path of the folder that something lies in, with its name; a link itself is not followed."""
    return str(Path(os.path.realpath(path.parent), path.name))


def lies_in_trusted_folder(path: Path, record: TrustRecord) -> bool:
    """Whether a folder above is trusted with all that lies below it, by the record or by the environment.

    What a link leads to must lie in such a folder, and so must the link.
    """
    named = os.environ.get(VARIABLE, "").split(":")
    folders = {*record.folders, *(os.path.realpath(folder) for folder in named if folder.startswith("/"))}
    both = (Path(place_of(path)), Path(os.path.realpath(path)))
    return all(not folders.isdisjoint(map(str, (place, *place.parents))) for place in both)


def trusts_settings(path: Path, digest: str) -> bool:
    """Whether a file with settings may be used."""
    record = read_record()
    return record.settings.get(place_of(path)) == digest or lies_in_trusted_folder(path, record)


def trust_folder(folder: Path) -> None:
    """Remember that all that lies below a folder may be used, now and later."""
    _change(lambda record: record.folders.__setitem__(os.path.realpath(folder), ""))


def trust_settings(path: Path, digest: str) -> None:
    """Remember that a file with settings may be used."""
    _change(lambda record: record.settings.__setitem__(place_of(path), digest))


def trust_store(folder: Path, store_id: str) -> None:
    """Remember that the store in a folder may be used."""
    _change(lambda record: record.stores.__setitem__(os.path.realpath(folder), store_id))


def trust_link(link: Path) -> None:
    """Remember that a link may be followed to the store that it leads to now."""
    _change(lambda record: record.stores.__setitem__(place_of(link), os.path.realpath(link)))


def distrust(path: Path) -> bool:
    """Forget a file or a store; whether it was known."""
    place = place_of(path)
    before = read_record()
    if not any(place in known for known in (before.settings, before.stores, before.folders)):
        return False

    def forget(record: TrustRecord) -> None:
        for known in (record.settings, record.stores, record.folders):
            known.pop(place, None)

    _change(forget)
    return True


def read_record() -> TrustRecord:
    """What was trusted so far; nothing, where the record is missing. `Refused` if it cannot be this user's own."""
    path = state_home() / _FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return TrustRecord()
    except OSError as error:
        _not_usable(path, str(error.strerror))
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or not stat.S_ISREG(about.st_mode) or about.st_mode & 0o022:
            _not_usable(path, "others can write to it")
        try:
            return msgspec.json.decode(file.read(_LARGEST), type=TrustRecord)
        except msgspec.DecodeError:
            _not_usable(path, "it is not what was written there")


def _not_usable(path: Path, why: str) -> NoReturn:
    text = f"{path}, the record of what you trust, cannot be used: {why}; remove it, and trust again"
    raise Refused("untrusted", text, where=str(path)) from None


def _change(change: Callable[[TrustRecord], None]) -> None:
    """Change the record: read under a lock, written beside its place, and put there whole."""
    folder = state_home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            record = read_record()
            before = msgspec.json.encode(record)
            change(record)
            try:
                after = msgspec.json.encode(record)
            except UnicodeEncodeError:
                text = "what has a path that is not UTF-8 cannot be trusted; give the folder another name"
                raise Refused("bad_name", text, where="FOLDER") from None
            if after == before:
                return
            draft = folder / f".{_FILE}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(handle, "wb") as file:  # noqa: PTH123 - of a descriptor
                file.write(after)
                file.flush()
                os.fsync(handle)
            draft.replace(folder / _FILE)
    except OSError as error:
        raise Unavailable(f"what you trust cannot be written down in {folder}: {error.strerror}") from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder / f"{_FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
