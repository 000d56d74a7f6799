"""The graph of a build: what needs what, and where each component stands because of that.

A component has a state of its own once it is a task. What it needs can hold it back: it waits while something is not
merged, and is skipped with what it needs. So one change reaches only what needs it, and what was found out about all
others stays as it is, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from allswell.domain.build.component import BuildSpec, cycle_in
from allswell.domain.build.standing import ComponentState


class BuildGraph:
    """The components of one spec; the cycle in it, if there is one, is looked for once (C4)."""

    def __init__(self, spec: BuildSpec) -> None:
        self.spec = spec
        self.needs = {component.name: component.needs for component in spec.components}
        self.cycle = cycle_in(spec) or ""
        self._needed_by: dict[str, list[str]] = {}
        for name, needs in self.needs.items():
            for need in needs:
                self._needed_by.setdefault(need, []).append(name)

    def bring_up_to_date(
        self, states: dict[str, ComponentState], own: Mapping[str, ComponentState], changed: Iterable[str]
    ) -> set[str]:
        """Find out how components stand after the own state of some has changed; of which of them that was found out.

        `own` has the state of each component that is a task; `states` is changed in its place.
        """
        todo = deque(name for name in changed if name in self.needs)
        reached: set[str] = set()
        while todo:
            name = todo.popleft()
            reached.add(name)
            state = self._state(name, own.get(name), states)
            if states.get(name) != state:
                states[name] = state
                todo.extend(self._needed_by.get(name, ()))
        return reached

    def has_its_needs(self, name: str, states: Mapping[str, ComponentState]) -> bool:
        """Whether all that a component needs is merged."""
        return all(states.get(need) == "merged" for need in self.needs[name])

    def _state(self, name: str, own: ComponentState | None, states: Mapping[str, ComponentState]) -> ComponentState:
        if own is not None and own != "free":
            return own
        if any(states.get(need) == "skipped" for need in self.needs[name]):
            return "skipped"
        if own is None or not self.has_its_needs(name, states):
            return "waiting"  # not offered yet; or offered before the spec was changed
        return own
