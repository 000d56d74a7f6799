"""Changes in the work: whether any file of a folder is not as it was at the last look.

Names, sizes and times are compared, level by level and within bounds, so that what lies deep in a huge tree may be
missed and what lies near the top is not. Ignored files count too: a compiler writes little else. Of git's own files
only those that a commit or a checkout writes are looked at; what is ours never.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path

MOST = 50_000
"""Files looked at."""
_SKIPPED = (".git", ".allswell", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
_GIT = ("HEAD", "logs/HEAD", "ORIG_HEAD", "MERGE_HEAD")

Prints = Mapping[str, tuple[int, int]]
"""The files of a folder at one moment, by name: when each was changed, and its size."""


class WorkLook:
    """One folder, compared with how it was at the last look."""

    def __init__(self, folder: str | os.PathLike[str], most: int = MOST, ours: str | None = None) -> None:
        self.folder = Path(folder)
        self._most = most
        self._ours = ours
        """How the path of a store's files begins: what changes there is not the work of whoever is watched."""
        self._before: Prints | None = None

    @property
    def about(self) -> tuple[Path, str | None]:
        """The same for whoever looks at the same: they can share a look."""
        return self.folder, self._ours

    def changed(self, now: Prints) -> str | None:
        """What has changed since the last look, by name; None if nothing has, or if this is the first."""
        before, self._before = self._before, now
        if before is None or before is now:
            return None
        for name, seen in now.items():
            if before.get(name) != seen:
                return name if name in before else f"{name} (new)"
        gone = next((name for name in before if name not in now), None) if len(now) < self._most else None
        return None if gone is None else f"{gone} (gone)"

    def look(self) -> Prints:
        """How the folder is now."""
        found: dict[str, tuple[int, int]] = {}
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
                            if entry.name not in _SKIPPED:
                                folders.append(f"{name}/")
                        elif len(found) < self._most and not (self._ours and entry.path.startswith(self._ours)):
                            seen = entry.stat(follow_symlinks=False)
                            found[name] = (seen.st_mtime_ns, seen.st_size)
            except OSError:
                continue  # it is gone, or not ours to read: neither is progress
        return found

    def _note(self, found: dict[str, tuple[int, int]], name: str) -> None:
        try:
            seen = (self.folder / name).stat()
        except OSError:
            return
        if stat.S_ISREG(seen.st_mode):
            found[name] = (seen.st_mtime_ns, seen.st_size)
