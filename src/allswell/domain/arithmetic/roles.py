"""Roles against the agents that are set up: what is asked of a role that nobody has lies there until it is given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allswell.domain.arithmetic.figure import Place
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.fleet import Fleet

ROLE_OF_NOBODY = Rule(
    "role_of_nobody", Severity.WARNING, "There is somebody for each role that is set up, or asked for something."
)
_FIX = "Give an agent the role ([agents.NAME] role = {role!r}), or correct the name."


def has_role(fleet: Fleet, role: str) -> bool:
    """Whether an agent that is set up takes tasks of this role."""
    return any(spec.role in (None, role) for spec in fleet.agents.values())


def roles_set_up(fleet: Fleet, places: Mapping[str, Place | None]) -> Iterator[Finding]:
    """A finding for each role that the settings name and no agent has; where no agents are set up, nobody can tell."""
    for role, place in places.items() if fleet.agents else ():
        if not has_role(fleet, role):
            says = f"There are settings for the role {role!r}, and none of the agents has it."
            yield ROLE_OF_NOBODY.broken(says, (), fix=_FIX.format(role=role), place=place)


def roles_asked(asked: Mapping[str, int]) -> Iterator[Finding]:
    """A finding for each role with so many open requests that nobody is known to have."""
    for role, count in asked.items():
        open_ones = "1 request is" if count == 1 else f"{count} requests are"
        says = f"{open_ones} open for the role {role!r}, and nobody is known who has it."
        yield ROLE_OF_NOBODY.broken(says, (), fix=_FIX.format(role=role))
