"""The search upward: which folders are looked into for a store and for settings, and where it ends.

What is found can name commands to run. So the search stays inside what is one person's or one project's: it looks into

- the folder that one stands in, and those above it,
- no further than the top of a git repository; a linked worktree and a submodule go on at the top of the main one,
- no further than the home folder, and no further than the top of a mount;
- a sticky folder above (`/tmp`), in which anybody can put things, is not looked into at all.

What is found there must be this user's own besides (`store/files.py`), and trusted by them (`store/trusted.py`).
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from allswell.errors import Refused
from allswell.store.files import DATABASE, IGNORE, IGNORES_ALL, NAME, doubt, doubt_about
from allswell.store.trusted import NO_DATABASE, lies_in_trusted_folder, place_of, read_record, state_home

FOLDER = NAME
_JOURNAL = f"{DATABASE}-journal"
_BESIDE = (f"{DATABASE}-wal", _JOURNAL, f"{DATABASE}-shm")
"""What SQLite puts beside a database; it takes what stands in the first two for the database's own."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOOKS, _BETWEEN_LOOKS = 40, 0.05
"""How often it is looked whether a store that is being made is there, and the seconds between two looks."""
_POINTER = 4_096
"""Bytes that are read of a `.git` that is a file."""


def folders(here: Path) -> Iterator[Path]:
    """The folders to look into, the nearest first; `here` is resolved."""
    home = _home()
    seen: set[Path] = set()
    folder = here
    while folder not in seen:
        seen.add(folder)
        yield folder
        above = folder.parent
        if folder in (home, above):
            return
        if os.path.lexists(folder / ".git"):
            main = _main(folder)
            if main is None:
                return
            above = main
        elif _is_edge(folder, above):
            return
        folder = above


def _home() -> Path | None:
    named = os.environ.get("HOME", "")
    if not named.startswith("/"):
        try:
            named = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return Path(os.path.realpath(named))


def _is_edge(folder: Path, above: Path) -> bool:
    """Whether the search must not go from a folder to the one above."""
    try:
        lower, upper = folder.stat(), above.stat()
    except FileNotFoundError:
        return False  # a folder that is still to be made
    except OSError:
        return True
    return lower.st_dev != upper.st_dev or bool(upper.st_mode & stat.S_ISVTX)


def _main(top: Path) -> Path | None:
    """The top of the main working tree of a linked worktree or a submodule, as its own `.git` says."""
    pointer = top / ".git"
    try:
        found = pointer.lstat()
        if not stat.S_ISREG(found.st_mode) or doubt(found):
            return None
        with pointer.open("rb") as opened:
            said = os.fsdecode(opened.read(_POINTER))
    except OSError:
        return None
    place = Path(os.path.normpath(top / said.removeprefix("gitdir:").strip()))
    for folder in place.parents if "\0" not in said else ():
        if folder.name in ("worktrees", "modules") and folder.parent.name == ".git":
            main = Path(os.path.realpath(folder.parent.parent))
            known = main if folder.name == "modules" else _worktree(folder / place.relative_to(folder).parts[0])
            return main if known in (top, *top.parents) else None
    return None


def _worktree(entry: Path) -> Path | None:
    """Where a linked worktree lies, as the main repository says; an archive can bring a `.git` that names any."""
    try:
        with open(entry / "gitdir", "rb", opener=without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return None
            return Path(os.path.realpath(entry / os.fsdecode(opened.read(_POINTER)).strip())).parent
    except (OSError, ValueError):
        return None


def without_waiting(path: str, flags: int) -> int:
    """Opens a file for `open`: a pipe that stands in its place, out of an archive perhaps, would never open."""
    return os.open(path, flags | os.O_NONBLOCK)


def nearest_store(here: Path) -> Path | None:
    """The folder of the nearest store upward, its real path; None if there is none, `Refused` if it is not ours."""
    found = find_store(here)
    return None if found is None else found.folder


class FoundStore(NamedTuple):
    """A folder of ours that was found."""

    folder: Path
    """Its real path."""
    link: Path | None
    """What leads there, where that is a link."""


def find_store(here: Path) -> FoundStore | None:
    """The nearest store upward; None if there is none, `Refused` if it is not ours.

    It may be a link of the user's own. It is followed once, here: what was looked at is what the path names.
    One without a database (what lies beside a store on a server, or beside one with another name) hides none further
    up that has one, as git passes over a `.git` that is no repository; it is the one only where there is no other.
    """
    empty: FoundStore | None = None
    for folder in folders(here):
        place = folder / FOLDER
        try:
            link = place.lstat()
        except OSError:
            continue
        is_link = stat.S_ISLNK(link.st_mode)
        if is_link and link.st_uid != os.geteuid():
            if empty is not None:
                return empty  # what is not ours further up is no reason to refuse what is
            raise _untrusted(place, doubt(link))
        try:
            handle = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            if is_link and folder == here and empty is None:  # a store would be made where it leads
                raise _untrusted(place, "it is a link that leads nowhere") from None
            continue  # a file, or a link to nowhere
        try:
            found = FoundStore(_checked(place, handle), place if is_link else None)
        except Refused:
            if empty is not None:
                return empty
            raise
        finally:
            os.close(handle)
        if os.path.lexists(found.folder / DATABASE):
            return found
        empty = empty or found
    return empty


def distrusted(store: FoundStore) -> str | None:
    """Why a store that was found is not used before its user has said so; None if it may be used."""
    record = read_record()
    folder, link = store
    if lies_in_trusted_folder(link or folder, record):
        return None
    if link is not None and record.stores.get(str(link)) != str(folder):
        return f"{link} leads to {folder} and may have come with this folder: you have not trusted it"
    known = record.stores.get(str(folder))
    for _ in range(_LOOKS):
        if known != NO_DATABASE or not os.path.lexists(folder / DATABASE):
            break
        time.sleep(_BETWEEN_LOOKS)  # another command of the user's makes it, and then writes down which it is
        known = read_record().stores.get(str(folder))
    if not os.path.lexists(folder / DATABASE):
        if known == NO_DATABASE or _says_nothing(folder):
            return None
    elif known is not None:
        from allswell.store.sqlite.connection import read_store_id

        found = read_store_id(folder / DATABASE)
        if known == found:
            return None
        if found is None:
            return f"{folder / DATABASE} cannot be read, so it is not known whether it is the store that you trusted"
        return f"{folder} is not the store that you trusted: another database lies there now"
    return f"{folder} may have come with this folder: you have not trusted it"


def _says_nothing(folder: Path) -> bool:
    """Whether a folder of ours could as well be new.

    One that a link of the clone's leads to could be anywhere, and with another `.gitignore` than ours, `git add` would
    take the store along.
    """
    names = os.listdir(folder)  # noqa: PTH208 - names
    if folder.name != FOLDER or any(name != IGNORE for name in names):
        return False
    if not names:
        return True
    try:
        handle = os.open(folder / IGNORE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        return stat.S_ISREG(os.fstat(handle).st_mode) and file.read(len(IGNORES_ALL) + 1) == IGNORES_ALL


def own_folder(here: Path) -> Path:
    """The folder of ours in this one, there already or not; `Refused` if it is somebody else's."""
    place = here / FOLDER
    if reason := doubt_about(place):
        raise Refused("untrusted", f"{place}: {reason}; or work in a folder of your own", where=str(place))
    return place


def folder_beside(database: Path, *, skip_untrusted: bool) -> Path:
    """The folder of ours beside a database that was named; `Refused` if it is not trusted, or the user's own instead.

    It holds notes and receipts, which name commands, and may be a link: it was found, and not named.
    """
    place = own_folder(database.parent)
    if not os.path.lexists(place):
        return place
    link = Path(place_of(place)) if place.is_symlink() else None
    reason = distrusted(FoundStore(Path(os.path.realpath(place)), link))
    if reason is None:
        return place
    if skip_untrusted:
        return state_home() / FOLDER
    raise Refused("untrusted", f"{reason}; read it, then type `allswell trust`", where=str(place))


def _checked(place: Path, handle: int) -> Path:
    """The real path of a folder that was opened, if it and the database in it are ours."""
    if reason := doubt(os.fstat(handle)):
        raise _untrusted(place, reason)
    if not os.access(f"/proc/self/fd/{handle}", os.R_OK | os.X_OK):
        raise _untrusted(place, "it cannot be looked into: `chmod u+rwx` it, or remove it")
    open_to = _OTHERS
    for name in (DATABASE, *_BESIDE):
        try:
            # Looked at, never opened: that would drop the locks of this very process (see store/sqlite).
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            continue
        if reason := doubt(found):
            raise _untrusted(place / name, reason)
        if name == DATABASE:
            open_to = found.st_mode & _OTHERS
        elif found.st_mode & _OTHERS & ~(0 if name == _JOURNAL else open_to):  # in use, a store of ours has no journal
            reason = (
                "others can read it, and SQLite gives what it makes the mode of the database: it may have come with a"
                " `git pull`, and would change what the store says; remove it"
            )
            raise _untrusted(place / name, reason)
    return Path(os.path.realpath(f"/proc/self/fd/{handle}"))


def _untrusted(place: Path, reason: str | None) -> Refused:
    text = f"{place}: {reason}; or name a store of your own with --store or $ALLSWELL_STORE"
    return Refused("untrusted", text, where=str(place))
