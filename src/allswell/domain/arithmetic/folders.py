"""Agents against the folders they work in: a file does not say who wrote it, so what is shared proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.fleet import Fleet, beside_each_other

SHARED_FOLDER = Rule(
    "shared_folder", Severity.WARNING, "Agents that can be at work at the same time have folders of their own."
)


def folders_apart(fleet: Fleet, here: str) -> Iterator[Finding]:
    """A finding for each agent that may find somebody at work in its folder; `here` is where the fleet is started."""
    for name, others in beside_each_other(fleet.agents, here).items():
        spec = fleet.agents[name]
        beside = [f"up to {spec.concurrency} of itself" if other == name else other for other in others]
        yield SHARED_FOLDER.broken(
            f"{name} may share its folder ({spec.cwd}) with {', '.join(beside)}: meanwhile what changes there is no"
            " proof of progress of anybody, because a file does not say who wrote it.",
            (),
            fix="Set worktree = true, give each agent a cwd of its own, or have them check in.",
            place=fleet.places.get(name),
        )
