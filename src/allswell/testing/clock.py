"""A clock for tests: it stands until the deterministic loop moves on, and its wall can be made to jump."""

from __future__ import annotations

from allswell.testing.loop import DeterministicLoop, running_loop

_US_PER_MS = 1_000


class VirtualClock:
    """The `Clock` of one simulated machine; machines on one loop share its pace, not their walls."""

    def __init__(self, loop: DeterministicLoop | None = None) -> None:
        self._loop = loop or running_loop()
        self._wall_at_zero = self._loop.start_wall_ms
        self._slept = 0

    def wall(self) -> int:
        """Milliseconds since the Unix epoch, as this machine believes."""
        return self._wall_at_zero + self.monotonic()

    def monotonic(self) -> int:
        """Milliseconds since the loop began."""
        return self._loop.now_us // _US_PER_MS

    def boottime(self) -> int:
        """Milliseconds since the loop began, and those in which the machine was made to sleep."""
        return self.monotonic() + self._slept

    def jump_wall(self, ms: int) -> None:
        """Set the wall, as an NTP step or an operator does (either way)."""
        self._wall_at_zero += ms

    def suspend(self, ms: int) -> None:
        """Have slept for so long: the wall has gone on, and nothing on this machine has."""
        self._wall_at_zero += ms
        self._slept += ms
