"""The figures of a build (C1 to C7), and the policies of the tasks that it is made of."""

from __future__ import annotations

import msgspec

from allswell.domain.duration import LONGEST
from allswell.domain.ids import RunId
from allswell.domain.lease.audit import AUDIT_FAILURES
from allswell.domain.task.model import Policy
from allswell.errors import Refused

_NEVER = 1_000_000_000
"""So often nothing happens: a component that times out is simply free again."""


USUAL_PROGRESS = 600_000
"""Milliseconds: how often builders say PROGRESS where neither TASKS nor ACK says how often."""


class BuildLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a build may take; lengths of time are milliseconds."""

    progress_every: int = USUAL_PROGRESS
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


BUILD = BuildLimits()
"""The protocol's figures."""
PLAIN_POLICY = Policy(timeout=None, checkpoint_interval=LONGEST, timeout_escalation=_NEVER)
"""Of the build itself, which its coordinator holds and renews; of components, whose silent holders that coordinator
ends, since the watch hears no chat; of audits, which are held for no longer than it takes to write a verdict down."""


# The roles of a build's tasks. Nobody takes one out of the pool: a coordinator gives them, each by its name.

BUILD_ROLE = "build.coordinator"
"""The build itself, which its coordinator holds."""
COMPONENT_ROLE = "build.component"
AUDIT_ROLE = "build.audit"
BUILD_ROLES = frozenset((BUILD_ROLE, COMPONENT_ROLE, AUDIT_ROLE))


def command_key(run: RunId) -> str:
    """Where the command is kept that coordinates a build."""
    return f"build.{run}.command"
