"""Claims for one component that come close together: the earlier one wins, by the server's clock (C3).

Claims are collected until a second after the first of them, by the server's clock, and then decided together: the
earliest gets the component, of two at the same moment the one with the smaller message id. That the server's clock has
come so far is known in one of two ways: it dates a message so, or a second of ours is over since the first claim was
heard, which cannot have been before it was made. So the two clocks are never compared, and lines that come all at once
after an absence are decided as they would have been in time. A claim that is earlier and comes after the decision is a
dispute (`hearing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.build.step import CollectClaim
from allswell.domain.names import Millis


def in_order(claims: Sequence[CollectClaim]) -> list[CollectClaim]:
    """Claims from the earliest on, each agent once: whoever claims twice has claimed when it did so first."""
    first: dict[str, CollectClaim] = {}
    for claim in sorted(claims, key=lambda one: one.mark):
        first.setdefault(claim.agent, claim)
    return list(first.values())


class ClaimWindow(msgspec.Struct):
    """The claims for one component that are not decided yet."""

    opened: Millis
    """When the first was heard, by our clock."""
    claims: list[CollectClaim]

    def is_over(self, length: int, now: Millis, dated: Millis | None) -> bool:
        """Whether its time is up: by our clock, or because the server dates something after it."""
        return now >= self.opened + length or (dated is not None and dated > self._first + length)

    @property
    def _first(self) -> Millis:
        return min(claim.mark.at for claim in self.claims)


class ClaimWindows:
    """The windows that are open. Moments are handed in."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: dict[str, ClaimWindow] = {}

    def add(self, claim: CollectClaim, now: Millis) -> None:
        """A claim was heard."""
        self._open.setdefault(claim.component, ClaimWindow(now, [])).claims.append(claim)

    def closes_at(self) -> Millis | None:
        """When the next window closes, whatever is heard."""
        return min((Millis(window.opened + self._length) for window in self._open.values()), default=None)

    def closed(self, now: Millis, dated: Millis | None = None) -> list[list[CollectClaim]]:
        """The claims whose windows have closed, for each component in order; they are not held here any more.

        `dated` is the server's moment of the message that is looked at next.
        """
        done = [name for name, window in self._open.items() if window.is_over(self._length, now, dated)]
        return [in_order(self._open.pop(name).claims) for name in done]
