"""The server of a folder: `allswell serve` notes where it listens, and whoever comes later on this machine finds it.

The note lies in the folder beside the store, and its file is locked for as long as the server lives. Keys are sent to
where it says. So one that no process holds is not believed: a server that was killed has left it, or a `git pull`
brought it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from allswell.domain.access.key import parts_of
from allswell.errors import Refused

FILE = "server.json"
_MOST = 4_096


class ServerNote(msgspec.Struct, frozen=True):
    """Where a server listens, and which process it is."""

    url: str
    pid: int


@contextlib.contextmanager
def noted(folder: Path, url: str) -> Iterator[None]:
    """Keep a note of a server for as long as it serves; where none can be kept, it serves all the same."""
    path = folder / FILE
    own = msgspec.json.encode(ServerNote(url, os.getpid()))
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            fresh = folder / f"{FILE}.{os.getpid()}"
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, own)
            fresh.replace(path)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if path.read_bytes() == own:  # another one may have come since
                    path.unlink()


def known(folder: Path) -> str | None:
    """Where the server of this folder listens; None if no process says that it is one."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if os.fstat(descriptor).st_uid != os.geteuid() or not _is_held(descriptor):
                return None
            return msgspec.json.decode(file.read(_MOST), type=ServerNote).url
    except (OSError, msgspec.DecodeError):
        return None


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


# Where the key for a server comes from: the environment, or a file that nobody else can read. Never a command line.
#
# `ALLSWELL_KEY` is the key itself, `ALLSWELL_KEY_FILE` names a file with it.

VARIABLE = "ALLSWELL_KEY"
FILE_VARIABLE = "ALLSWELL_KEY_FILE"
_KEY_SOURCE_MOST = 1_000


def key_from(environ: Mapping[str, str]) -> str:
    """The key to show; `Refused` says what is wrong with what there is."""
    shown = environ.get(VARIABLE, "").strip()
    where = VARIABLE
    if not shown and environ.get(FILE_VARIABLE):
        shown, where = _read(Path(environ[FILE_VARIABLE])), FILE_VARIABLE
    if not shown:
        text = f"a server wants a key: set {VARIABLE}, or {FILE_VARIABLE} to a file that only you can read"
        raise Refused(
            "no_key", text, where=VARIABLE, hint="`allswell key create` makes one, on the machine of the store"
        )
    if parts_of(shown) is None:
        raise Refused("bad_key", f"what {where} holds is not a key: one begins with awk_", where=where)
    return shown


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
                text = f"{path} can be read by others; `chmod 600` it"
                raise Refused("open_key", text, where=FILE_VARIABLE)
            return file.read(_KEY_SOURCE_MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise Refused("no_key", f"{path} cannot be read: {why}", where=FILE_VARIABLE) from None
