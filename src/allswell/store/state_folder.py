"""The folder of ours, `.allswell/`: for its user alone, and invisible to git.

What lies in it tells what agents were given and what they said, keys in their arguments included. Nobody else can enter
it, so what is inside needs no care of its own. One that was made before this was so is mended by its owner.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

NAME = ".allswell"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""What nobody but the owner may do."""


def make(folder: Path) -> None:
    """Make it with what is missing above it, or close one of ours that stands open; `OSError` if that cannot be."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    elif folder.name == NAME:
        close(folder)
    # git would open, read and close the database by ordinary means (see the first words of store/sqlite).
    with contextlib.suppress(FileExistsError):  # a link that stands there is not written through
        ignore = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(ignore, b"*\n")
        finally:
            os.close(ignore)


def close(path: Path) -> None:
    """Take from a file or a folder of ours what others may do with it; a link, or another's, is left as it is."""
    found = path.lstat()
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS and not stat.S_ISLNK(found.st_mode):
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
