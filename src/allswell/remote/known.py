"""The server of a folder: `allswell serve` notes where it listens, and whoever comes later on this machine finds it.

The note lies in the folder beside the store, which only its owner can write to. It is a hint: a server that was killed
leaves one behind, so whoever goes by it asks first whether anybody is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

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
    with contextlib.suppress(OSError):
        fresh = folder / f"{FILE}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(own)
        fresh.replace(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_bytes() == own:  # another one may have come since
                path.unlink()


def known(folder: Path) -> str | None:
    """Where a server of this folder was last seen to listen."""
    try:
        descriptor = os.open(folder / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if os.fstat(descriptor).st_uid != os.geteuid():
                return None
            return msgspec.json.decode(file.read(_MOST), type=ServerNote).url
    except (OSError, msgspec.DecodeError):
        return None
