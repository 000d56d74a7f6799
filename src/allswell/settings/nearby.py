"""The search upward: which folders are looked into for a store and for settings, and where it ends.

What is found can name commands to run. So the search stays inside what is one person's or one project's: it looks into

- the folder that one stands in, and those above it,
- no further than the top of a git repository; a linked worktree and a submodule go on at the top of the main one,
- no further than the home folder, and no further than the top of a mount;
- a sticky folder above (`/tmp`), in which anybody can put things, is not looked into at all.

What is found there must be this user's own besides (`store/ownership.py`).
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from allswell.errors import Refused
from allswell.store.ownership import doubt, doubt_about

FOLDER = ".allswell"
DATABASE = "allswell.db"
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
    for folder in place.parents:
        if folder.name in ("worktrees", "modules") and folder.parent.name == ".git":
            return Path(os.path.realpath(folder.parent.parent))
    return None


def nearest_store(here: Path) -> Path | None:
    """The folder of the nearest store upward, its real path; None if there is none, `Refused` if it is not ours.

    It may be a link of the user's own. It is followed once, here: what was looked at is what the path names.
    One without a database (what lies beside a store on a server, or beside one with another name) hides none further
    up that has one, as git passes over a `.git` that is no repository; it is the one only where there is no other.
    """
    empty: Path | None = None
    for folder in folders(here):
        place = folder / FOLDER
        try:
            link = place.lstat()
        except OSError:
            continue
        if stat.S_ISLNK(link.st_mode) and link.st_uid != os.geteuid():
            if empty is not None:
                return empty  # what is not ours further up is no reason to refuse what is
            raise _untrusted(place, doubt(link))
        try:
            handle = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # a file, or a link to nowhere
        try:
            found = _checked(place, handle)
        except Refused:
            if empty is not None:
                return empty
            raise
        finally:
            os.close(handle)
        if os.path.lexists(found / DATABASE):
            return found
        empty = empty or found
    return empty


def own_folder(here: Path) -> Path:
    """The folder of ours in this one, there already or not; `Refused` if it is somebody else's."""
    place = here / FOLDER
    if reason := doubt_about(place):
        raise Refused("untrusted", f"{place}: {reason}; or work in a folder of your own", where=str(place))
    return place


def _checked(place: Path, handle: int) -> Path:
    """The real path of a folder that was opened, if it and the database in it are ours."""
    if reason := doubt(os.fstat(handle)):
        raise _untrusted(place, reason)
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        try:
            # Looked at, never opened: that would drop the locks of this very process (see store/sqlite).
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            continue
        if reason := doubt(found):
            raise _untrusted(place / name, reason)
    return Path(os.path.realpath(f"/proc/self/fd/{handle}"))


def _untrusted(place: Path, reason: str | None) -> Refused:
    text = f"{place}: {reason}; or name a store of your own with --store or $ALLSWELL_STORE"
    return Refused("untrusted", text, where=str(place))
