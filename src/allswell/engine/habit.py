"""What a claim will most likely be picked from: the lanes that were open to it the last time.

A store far away sends such a pick along with its first question, which saves a round trip. It decides nothing: which
lanes are open is found as ever, from the rows that came with it (`open_lanes`), and where the guess was wrong the right
pick is asked for. What was picked in vain is free again when the unit of work ends, a moment later.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.claim import check_claim
from allswell.domain.command import Claim, Command
from allswell.domain.names import AgentId
from allswell.errors import AllswellError
from allswell.store.pick import Pick

_MOST = 1_000
"""Claimers that are remembered; beyond it all are learned anew."""


class Habit:
    """Which lanes were open to whom the last time."""

    def __init__(self) -> None:
        self._open: dict[tuple[AgentId, tuple[str, ...] | None], tuple[int, ...]] = {}

    def learn(self, claim: Claim, lanes: tuple[int, ...]) -> None:
        """These were open to it."""
        if len(self._open) >= _MOST:
            self._open.clear()
        self._open[claim.agent, claim.roles] = lanes

    def likely(self, commands: Sequence[Command | Claim]) -> Pick | None:
        """The pick for all claims among these; None where there is not one alone, or nothing is known."""
        claims = [command for command in commands if isinstance(command, Claim)]
        if not claims or not self._open:
            return None
        try:
            for claim in claims:
                check_claim(claim)
            agents = {claim.agent for claim in claims}
            among = {(self._open.get((claim.agent, claim.roles)), claim.outside, claim.task) for claim in claims}
        except (AllswellError, TypeError):
            return None  # it is refused in its turn
        ((lanes, outside, task), *others) = among
        if others or not lanes or task is not None:
            return None
        count = sum([claim.count for claim in claims])
        return Pick(lanes, count, claims[0].agent if len(agents) == 1 else None, outside)
