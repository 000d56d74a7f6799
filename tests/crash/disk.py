"""A small disk that can really be filled up, for the SQLite store.

Where we may mount, it is a tmpfs of its own, filled with ballast: writers get ENOSPC. Elsewhere the processes' limit on
the size of files is lowered to little more than their histories have, so that the log of the database passes it: they
get EFBIG. Both are what a full disk or a quota does.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_SIZE = 1 << 30
_TAKEN_SLOWLY = 4 << 20
_ROOM_FOR_HISTORIES = 256 * 1024


class SmallDisk:
    """A folder on a disk that can be filled up."""

    def __init__(self, folder: Path, *, mounting: bool = True, size: int = _SIZE) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "allswell-storm", str(folder)]
        allowed = mounting and os.geteuid() == 0
        self.mounted = allowed and subprocess.run(mount, check=False, capture_output=True).returncode == 0

    def fill(self, processes: Iterable[int]) -> None:
        """Leave no room to write."""
        if self.mounted:
            # Most of it at once, the rest page by page until there is none: others write meanwhile.
            with (self.folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
                most = max(1, shutil.disk_usage(self.folder).free - _TAKEN_SLOWLY)
                os.posix_fallocate(ballast.fileno(), 0, most)
                ballast.seek(most)
                while ballast.write(bytes(4_096)):
                    pass
        else:
            histories = [path.stat().st_size for path in self.folder.parent.glob("*.jsonl")]
            self._limit(processes, max(histories, default=0) + _ROOM_FOR_HISTORIES)

    def free(self, processes: Iterable[int]) -> None:
        """Make room again."""
        if self.mounted:
            (self.folder / "ballast").unlink()
        else:
            self._limit(processes, resource.RLIM_INFINITY)

    @staticmethod
    def _limit(processes: Iterable[int], size: int) -> None:
        for process in processes:
            _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))

    def close(self) -> None:
        """Let the disk go, and all that is on it."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
