"""The parts of a build and what each of them needs.

A component is offered only when everything it needs is merged, so a cycle would be offered never: it is looked for
before anything is (C4). What a spec says is checked by the same rules wherever it was written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from allswell.domain.build.line import is_component_name
from allswell.domain.build.state import ComponentState
from allswell.domain.check.model import Location
from allswell.domain.task.submit import describe_cycle, find_cycle
from allswell.domain.values import nearest

MOST_COMPONENTS = 20_000
MOST_NEEDS = 1_000


class Component(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a build; `text` says what is to be built."""

    name: str
    needs: tuple[str, ...] = ()
    text: str = ""


class BuildSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be built. Its components may still need each other in a circle; see `cycle_in`."""

    name: str
    components: tuple[Component, ...]
    url: str = ""
    """Where builders can read it."""


class ParsedNeed(msgspec.Struct, frozen=True):
    """A need as it stands in a file."""

    name: str
    place: Location


class ParsedComponent(msgspec.Struct, frozen=True):
    """A component as it stands in a file."""

    name: str
    place: Location
    needs: tuple[ParsedNeed, ...] = ()
    text: str = ""


class SpecMistake(msgspec.Struct, frozen=True):
    """One thing that is wrong with a spec: where, which field, what, and what to do."""

    place: Location
    field: str
    says: str
    fix: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field}: {self.says} {self.fix}"


def mistakes_in(written: Sequence[ParsedComponent]) -> Iterator[SpecMistake]:
    """What is wrong with components, beside cycles."""
    known = {one.name for one in written}
    if len(written) > MOST_COMPONENTS:
        says = f"There are {len(written):,} components; at most {MOST_COMPONENTS:,} are taken."
        yield SpecMistake(written[MOST_COMPONENTS].place, "components", says, "Split the build.")
    first: dict[str, ParsedComponent] = {}
    for one in written:
        if not is_component_name(one.name):
            fix = "Use at most 64 letters, digits, '_', '-' and '.': it names a branch and a folder."
            yield SpecMistake(one.place, "name", f"{one.name[:80]!r} cannot be the name of a component.", fix)
        other = first.setdefault(one.name.lower(), one)
        if other is not one:
            says = f"There are two components {one.name!r}; the first is at {other.place}."
            if other.name != one.name:
                says = f"{one.name!r} and {other.name!r} ({other.place}) are the same name in many folders."
            yield SpecMistake(one.place, "name", says, "Rename one.")
        yield from _mistakes_in_needs(one, known)


def _mistakes_in_needs(one: ParsedComponent, known: Collection[str]) -> Iterator[SpecMistake]:
    if len(one.needs) > MOST_NEEDS:
        says = f"{one.name} depends on {len(one.needs):,} components; at most {MOST_NEEDS:,} are taken."
        yield SpecMistake(one.place, "depends on", says, "Group them.")
    seen: set[str] = set()
    for need in one.needs:
        if need.name not in known:
            near = nearest(need.name, known)
            fix = f"Did you mean {near!r}?" if near else "Add it, or take the line out."
            says = f"{one.name} depends on {need.name[:80]!r}, and there is no such component."
            yield SpecMistake(need.place, "depends on", says, fix)
        elif need.name in seen:
            says = f"{one.name} depends on {need.name} twice."
            yield SpecMistake(need.place, "depends on", says, "Take one out.")
        seen.add(need.name)


def cycle_in(spec: BuildSpec) -> str | None:
    """A dependency cycle in words, `A <-> B` or `A -> B -> C -> A`; None if there is none (C4)."""
    cycle = find_cycle({component.name: component.needs for component in spec.components})
    return None if cycle is None else describe_cycle(cycle)


# The graph of a build: what needs what, and where each component stands because of that.
#
# A component has a state of its own once it is a task. What it needs can hold it back: it waits while something is not
# merged, and is skipped with what it needs. So one change reaches only what needs it, and what was found out about all
# others stays as it is, however many there are.


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
