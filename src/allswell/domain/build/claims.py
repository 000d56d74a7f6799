"""Claims for one component that come close together: the earlier one wins, by the server's clock (C3).

The first claim opens a window, which closes a second later by our clock; what arrives meanwhile is decided together.
The earliest by the server's clock gets the component, of two at the same moment the one with the smaller message id. So
whatever the server dates within the second after the first claim is weighed against it, unless it was late; a claim
that is earlier and comes after the decision is a dispute (`hearing.py`). The two clocks are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.build.step import CollectClaim
from allswell.domain.names import Millis


def in_order(claims: Sequence[CollectClaim]) -> list[CollectClaim]:
    """Claims from the earliest on, each agent once: whoever claims twice has claimed when it did so first."""
    first: dict[str, CollectClaim] = {}
    for claim in sorted(claims, key=lambda one: one.mark):
        first.setdefault(claim.agent, claim)
    return list(first.values())


class ClaimWindows:
    """The windows that are open. Moments are handed in."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: dict[str, tuple[Millis, list[CollectClaim]]] = {}

    def add(self, claim: CollectClaim, now: Millis) -> None:
        """A claim was heard."""
        self._open.setdefault(claim.component, (now, []))[1].append(claim)

    def closes_at(self) -> Millis | None:
        """When the next window closes."""
        return min((Millis(opened + self._length) for opened, _ in self._open.values()), default=None)

    def closed(self, now: Millis) -> list[list[CollectClaim]]:
        """The claims whose windows have closed, for each component in order; they are not held here any more."""
        done = [name for name, (opened, _) in self._open.items() if now >= opened + self._length]
        return [in_order(self._open.pop(name)[1]) for name in done]
