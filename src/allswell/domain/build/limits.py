"""The figures of a build (C1 to C7), and the policies of the tasks that it is made of."""

from __future__ import annotations

import msgspec

from allswell.domain.audit import AUDIT_FAILURES
from allswell.domain.duration import LONGEST
from allswell.domain.policy import Policy
from allswell.errors import Refused

_NEVER = 1_000_000_000
"""So often nothing happens: a component that times out is simply free again."""


class BuildLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a build may take; lengths of time are milliseconds."""

    progress_every: int = 600_000
    """A builder says PROGRESS at least so often."""
    misses: int = 3
    """So many times in a row it may fail to; then the component is free again."""
    claim_window: int = 1_000
    """Claims that come so close to the first one are decided together; 0: in the order in which they are heard."""
    audit_timeout: int = 300_000
    """So long after READY without a verdict it is announced again."""
    tasks_every: int = 600_000
    """What is free is announced again so often, for builders who have come since."""
    audit_failures: int = AUDIT_FAILURES
    aborts: int = 3
    """A component that was given back so often is asked about."""
    build: int = 7_200_000
    """So long a whole build may take; then a human is asked, and nothing new is offered."""

    def checked(self) -> BuildLimits:
        """These figures, if they can be meant."""
        for name in self.__struct_fields__:
            least = 0 if name == "claim_window" else 1
            if not least <= getattr(self, name) <= LONGEST:
                text = f"{name} is {getattr(self, name)}; it must be positive, and at most 366 days"
                raise Refused("bad_limit", text, where=name)
        return self

    @property
    def silence(self) -> int:
        """How long a builder may be silent before it loses its component (C1)."""
        return min(self.progress_every * self.misses, LONGEST)


def component_policy(limits: BuildLimits) -> Policy:
    """How a component is watched: by its builder's silence alone. There is no limit on an attempt, as in O1."""
    return Policy(timeout=LONGEST, idle=limits.silence, checkpoint_interval=LONGEST, timeout_escalation=_NEVER)


PLAIN_POLICY = Policy(timeout=LONGEST, checkpoint_interval=LONGEST, timeout_escalation=_NEVER)
"""Of the build itself, which its coordinator holds and renews, and of audits, which nobody holds for longer than it
takes to write a verdict down."""
