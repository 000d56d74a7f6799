"""A wall clock that another process can make jump: its offset lies in a file that both have mapped."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from allswell.timing.clock import SystemClock

_OFFSET = struct.Struct("q")


class StormClock:
    """The machine's clocks, the wall one off by what the file says, in milliseconds."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _OFFSET.size)
        self._system = SystemClock()

    @property
    def offset(self) -> int:
        """By how much the wall clock is off."""
        offset: int = _OFFSET.unpack_from(self._map)[0]
        return offset

    def jump(self, by: int) -> None:
        """Set the wall clock forward or back, for every process that has it."""
        _OFFSET.pack_into(self._map, 0, self.offset + by)

    def wall(self) -> int:
        """Milliseconds since the epoch, as this clock believes."""
        return self._system.wall() + self.offset

    def monotonic(self) -> int:
        """Never jumps."""
        return self._system.monotonic()

    def boottime(self) -> int:
        """Never jumps."""
        return self._system.boottime()
