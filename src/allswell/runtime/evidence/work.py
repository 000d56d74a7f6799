"""Changes in the work: whether any file of a folder is not as it was at the last look.

Names, sizes and times are compared, level by level and within bounds, so that what lies deep in a huge tree may be
missed and what lies near the top is not. Ignored files count too: a compiler writes little else. Of git's own files
only those that a commit or a checkout writes are looked at; what is ours never: neither the store, nor what this
process itself has open, such as the file that it prints to (`allswell run -- … > log`).

The first look comes when the attempt has begun already. What was written before it is found by its time (`begin`).
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from allswell.domain.evidence import NOT_WORK

MOST = 50_000
"""Files looked at."""
_GIT = ("HEAD", "logs/HEAD", "ORIG_HEAD", "MERGE_HEAD")
_STAMPS = 5
"""The clock that files are stamped with, which moves in steps of a few milliseconds: Linux calls it
CLOCK_REALTIME_COARSE, and Python has no name for it. What is stamped with a later step was written later."""

Print = tuple[int, int, int]
"""A file at one moment: when it was changed, its size, and when anything about it was changed, which nobody can set."""
Prints = Mapping[str, Print]
"""The files of a folder at one moment, by name."""


class WorkLook:
    """One folder, compared with how it was at the last look."""

    def __init__(self, folder: str | os.PathLike[str], most: int = MOST, ours: str | None = None) -> None:
        self.folder = Path(folder)
        self._most = most
        self._ours = ours
        """How the path of a store's files begins: what changes there is not the work of whoever is watched."""
        self._before: Prints | None = None
        self._began: int | None = None

    @property
    def about(self) -> tuple[Path, str | None]:
        """The same for whoever looks at the same: they can share a look."""
        return self.folder, self._ours

    def begin(self) -> None:
        """From this moment on changes count, and none before it: the next look is a first one."""
        self._before = None
        self._began = time.clock_gettime_ns(_STAMPS)

    def changed(self, now: Prints) -> str | None:
        """What has changed since the last look, by name; at the first look, since `begin`. None if nothing has."""
        before, self._before = self._before, now
        if before is now:
            return None
        if before is None:
            began = self._began
            return None if began is None else next((name for name, seen in now.items() if seen[2] > began), None)
        for name, seen in now.items():
            if before.get(name) != seen:
                return name if name in before else f"{name} (new)"
        gone = next((name for name in before if name not in now), None) if len(now) < self._most else None
        return None if gone is None else f"{gone} (gone)"

    def look(self) -> Prints:
        """How the folder is now."""
        found: dict[str, Print] = {}
        open_here = _open_here()
        for name in _GIT:
            self._note(found, f".git/{name}")
        folders = deque([""])
        while folders and len(found) < self._most:
            place = folders.popleft()
            try:
                with os.scandir(self.folder / place) as entries:
                    for entry in entries:
                        name = f"{place}{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in NOT_WORK:
                                folders.append(f"{name}/")
                        elif len(found) < self._most and not (self._ours and entry.path.startswith(self._ours)):
                            seen = entry.stat(follow_symlinks=False)
                            if (seen.st_dev, seen.st_ino) not in open_here:
                                found[name] = (seen.st_mtime_ns, seen.st_size, seen.st_ctime_ns)
            except OSError:
                continue  # it is gone, or not ours to read: neither is progress
        return found

    def _note(self, found: dict[str, Print], name: str) -> None:
        try:
            seen = (self.folder / name).stat()
        except OSError:
            return
        if stat.S_ISREG(seen.st_mode):
            found[name] = (seen.st_mtime_ns, seen.st_size, seen.st_ctime_ns)


def _open_here() -> set[tuple[int, int]]:
    """The files that this process has open: our own output, where it goes to a file, our logs, our store."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - hundreds of numbers, no paths
        try:
            seen = os.fstat(int(name))
        except OSError:
            continue  # it has just been closed
        if stat.S_ISREG(seen.st_mode):
            found.add((seen.st_dev, seen.st_ino))
    return found
