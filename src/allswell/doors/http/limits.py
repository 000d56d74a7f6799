"""How much one key may call: a bucket that fills at a rate, and a number of calls at a time.

One agent that has lost its mind must not take the watch from all others. Waiting claims and followed journals are calls
too, for as long as they last; a fleet of a thousand with one key fits.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

RATE = 500.0
"""Calls a second for each key, over time."""
SPARE = 1_000.0
"""Calls that may come at once, after a quiet while."""
AT_A_TIME = 2_000
_KEPT = 10_000


class _Account(Struct):
    left: float
    seen: float
    inside: int = 0


class Limits:
    """What each key has used; `clock` is in seconds."""

    def __init__(
        self, clock: Callable[[], float], *, rate: float = RATE, spare: float = SPARE, at_a_time: int = AT_A_TIME
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._spare = spare
        self._at_a_time = at_a_time
        self._accounts: dict[str, _Account] = {}

    def enter(self, name: str) -> float | None:
        """A call begins: None, or after how many seconds it might."""
        now = self._clock()
        account = self._accounts.get(name)
        if account is None:
            self._tidy()
            account = self._accounts[name] = _Account(self._spare, now)
        account.left = min(self._spare, account.left + (now - account.seen) * self._rate)
        account.seen = now
        if account.inside >= self._at_a_time:
            return 1.0
        if account.left < 1:
            return (1 - account.left) / self._rate
        account.left -= 1
        account.inside += 1
        return None

    def leave(self, name: str) -> None:
        """A call is over."""
        self._accounts[name].inside -= 1

    def _tidy(self) -> None:
        if len(self._accounts) >= _KEPT:
            self._accounts = {name: one for name, one in self._accounts.items() if one.inside}
