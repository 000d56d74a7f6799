"""The folder of ours, `.allswell/`: for its user alone, and invisible to git.

What lies in it tells what agents were given and what they said, keys in their arguments included. Nobody else can enter
it, so what is inside needs no care of its own. One that was made before this was so is mended by its owner.

An agent of another user may own the folder around it, and can move it away and put a link in its place. So a process
holds it by a descriptor from its first use on (`enter`), and a link is followed only where its user has made it.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
import threading
from enum import StrEnum
from pathlib import Path

import msgspec

from allswell.errors import AllswellError
from allswell.store.trusted import NO_DATABASE, trust_store

NAME = ".allswell"
DATABASE = "allswell.db"
"""The store that is found by the search upward."""
IGNORE = ".gitignore"
IGNORES_ALL = b"*\n"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""What nobody but the owner may do."""
_HELD_MOST = 16
"""Folders that a process holds, the ones that it entered last."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_held: dict[Path, int] = {}
_lock = threading.Lock()


def make(folder: Path) -> None:
    """Make it with what is missing above it, or close one of ours that stands open; `OSError` if that cannot be."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.name == NAME:
            with contextlib.suppress(AllswellError):  # no place to remember it: its user is asked the next time
                trust_store(folder, NO_DATABASE)
    elif folder.name == NAME:
        close(folder)
    # git would open, read and close the database by ordinary means (see the first words of store/sqlite).
    inside = enter(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        ignore = os.open(IGNORE, flags, 0o600, dir_fd=inside)
    except FileExistsError:  # a link that stands there is not written through
        if not _is_pulled(inside):
            return
        os.unlink(IGNORE, dir_fd=inside)
        ignore = os.open(IGNORE, flags, 0o600, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        os.write(ignore, IGNORES_ALL)
    finally:
        os.close(ignore)


def _is_pulled(inside: int) -> bool:
    """Whether another rule than ours stands there that its user has not written: a `git pull` overwrites ours.

    A file of git's can be read by others, unless its user's umask says otherwise. Ours cannot.
    """
    try:
        there = os.open(IGNORE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    except OSError as error:
        return error.errno == errno.ELOOP
    try:
        found = os.fstat(there)
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & OTHERS:
            return False
        return os.read(there, len(IGNORES_ALL) + 1) != IGNORES_ALL
    finally:
        os.close(there)


def enter(folder: Path) -> int:
    """A descriptor of the folder that had this path when this process entered it first; `OSError` if there is none.

    A folder that is not called `.allswell` is its user's to exchange: it is opened as it stands.
    """
    if folder.name != NAME:
        return os.open(folder, _FOLDER)
    folder = folder.absolute()
    with _lock:
        known = _held.pop(folder, None)
        if known is not None and os.fstat(known).st_nlink == 0:  # removed, which only its owner can do
            os.close(known)
            known = None
        _held[folder] = _open(folder) if known is None else known  # the one that was entered last is let go last
        if len(_held) > _HELD_MOST:
            os.close(_held.pop(next(iter(_held))))
        return os.dup(_held[folder])


def check_in_place(folder: Path) -> None:
    """`OSError` if another folder has this path by now: for programs that go by the path, and cannot be given ours."""
    inside = enter(folder)
    try:
        held, there = os.fstat(inside), folder.stat()
    finally:
        os.close(inside)
    if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
        raise OSError(errno.EPERM, "it was exchanged for another folder", str(folder))


def is_anothers_link(folder: Path) -> bool:
    """Whether what is called like a folder of ours is a link that neither this user nor root has made."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return folder.name == NAME and stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid())


def _open(folder: Path) -> int:
    """Open it; where it is a link, only one of this user's or of root's is followed, and that very one."""
    try:
        return os.open(folder, _FOLDER | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    link = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it is a link of another user's, or no folder", str(folder))
        return os.open(folder.parent / os.readlink("", dir_fd=link), _FOLDER)
    finally:
        os.close(link)


def close(path: Path) -> None:
    """Take from a file or a folder of ours what others may do with it; a link, or another's, is left as it is."""
    found = path.lstat()
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS and not stat.S_ISLNK(found.st_mode):
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)


# Whether something that was found, rather than named, is to be trusted.
#
# What lies in a folder on the way up may have been put there by anybody who can write there, and it can name commands
# to run. So only what is this user's own counts, and only if nobody else could have changed it.


class Ownership(msgspec.Struct, frozen=True):
    """Whose a file is, and who may write to it."""

    uid: int
    gid: int
    mode: int


class CallerIdentity(msgspec.Struct, frozen=True):
    """Who asks."""

    uid: int
    group: int | None = None
    """The group that is this user's alone, if there is one: what it may write, only the user writes."""


class DistrustReason(StrEnum):
    """Why something is not trusted."""

    FOREIGN = "foreign"
    """It belongs to somebody else."""
    ANYBODY = "anybody"
    """Anybody can write to it."""
    GROUP = "group"
    """A group with others in it can write to it."""


def distrust(found: Ownership, user: CallerIdentity) -> DistrustReason | None:
    """Why this user should not trust what was found; None if it is to be trusted."""
    if found.uid != user.uid:
        return DistrustReason.FOREIGN
    if found.mode & stat.S_IWOTH:
        return DistrustReason.ANYBODY
    if found.mode & stat.S_IWGRP and found.gid != user.group:
        return DistrustReason.GROUP
    return None


# Whose a file or a folder is, and in words why it is not trusted; the rule itself is `store/files.py`.


def _own_group() -> int | None:
    """The group that is ours alone: our first one, if it bears our name, as most systems make it, and has no others."""
    gid, own = os.getegid(), user_name(os.geteuid())
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid if str(gid) == own else None
    return gid if group.gr_name == own and set(group.gr_mem) <= {own} else None


def user_name(uid: int) -> str:
    """A user's name; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def doubt(found: os.stat_result) -> str | None:
    """What speaks against something that was found, in words with what to do; None if nothing does."""
    # Names may have to be asked for over a network, at every command: only where they matter.
    user = CallerIdentity(os.geteuid(), _own_group() if found.st_mode & stat.S_IWGRP else None)
    match distrust(Ownership(found.st_uid, found.st_gid, found.st_mode), user):
        case None:
            return None
        case DistrustReason.FOREIGN:
            owner, us = user_name(found.st_uid), user_name(os.geteuid())
            return f"it belongs to {owner}, and you are {us}: {_NOT_USED}"
        case DistrustReason.ANYBODY:
            return f"other users can write to it: {_NOT_USED}; `chmod go-w` it once you have read it"
        case DistrustReason.GROUP:
            return (
                f"the group {_group_name(found.st_gid)} can write to it: {_NOT_USED}; "
                "`chmod g-w` it once you have read it"
            )


_NOT_USED = "it is not used, since it could name commands to run"


def doubt_about(path: Path) -> str | None:
    """The same about a path, and about the link if it is one; None where there is nothing, or nothing to doubt."""
    try:
        link = path.lstat()
        return doubt(link if link.st_uid != os.geteuid() else path.stat())
    except OSError:
        return None
