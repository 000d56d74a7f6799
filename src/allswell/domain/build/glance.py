"""A build at one glance: how far it is, who is at what, and what comes next."""

from __future__ import annotations

from collections import Counter

import msgspec

from allswell.domain.build.standing import ComponentStanding, Standing
from allswell.domain.names import RunId


class BuildGlance(msgspec.Struct, frozen=True):
    """A build that is not over."""

    run: RunId
    name: str
    coordinated: bool
    """Whether a coordinator is there: without one nobody gets anything, and silence still counts."""
    standing: Standing

    @property
    def counts(self) -> dict[str, int]:
        """How many components stand in each state, without those in which none does."""
        return dict(Counter(str(one.state) for one in self.standing.components.values()))

    @property
    def at_work(self) -> list[ComponentStanding]:
        """What somebody has, in the order of the spec."""
        return [one for one in self.standing.components.values() if one.state == "held"]

    @property
    def asked(self) -> list[str]:
        """What a human has to decide about."""
        return [one.name for one in self.standing.components.values() if one.state == "asked"]

    @property
    def free(self) -> list[str]:
        """What can be claimed."""
        return [] if self.standing.stands_still() else self.standing.free

    @property
    def next(self) -> list[str]:
        """What can begin once that is merged which somebody has or could claim now."""
        components = self.standing.components
        near = {"merged", "held", "free"}
        return [
            one.name
            for one in components.values()
            if one.state == "waiting" and all(components[need].state in near for need in one.needs)
        ]


def work_on(one: ComponentStanding) -> str:
    """What its builder is at: building it, waiting for its audit or its merge, or mending it."""
    audit = one.current
    if audit is None:
        return "building"
    return {None: "in audit", True: "passed, to be merged", False: "mending it after an audit"}[audit.passed]
