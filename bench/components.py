"""A build of 10,000 components: from its spec to the first TASKS, beside what `graphlib` needs to sort them.

It is what a coordinator does, without the store: the cycle is looked for, how every component stands is found out, what
can be offered is offered, and the lines are written. Both are done in turns on the same graph, and the ratio is the
median over the rounds; 5 is the limit.

    python bench/components.py
"""

from __future__ import annotations

import random
import statistics
import time
from graphlib import TopologicalSorter

from allswell.domain.build.announcements import Announced, news
from allswell.domain.build.component import BuildGraph, BuildSpec, Component
from allswell.domain.build.hearing import Rights, due_steps
from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import write
from allswell.domain.build.state import BuildStatus, ComponentState, ComponentStatus, OfferComponent
from allswell.domain.ids import Millis, TaskId

SIZE = 10_000
ROUNDS = 15


def graph(most_needs: int) -> BuildSpec:
    """Components in any order, each with needs among those before it."""
    chance = random.Random(1)
    names = [f"component-{number:05}" for number in range(SIZE)]
    components = [
        Component(name, tuple(chance.sample(names[:place], min(place, chance.randint(0, most_needs)))))
        for place, name in enumerate(names)
    ]
    chance.shuffle(components)
    return BuildSpec("large", tuple(components), "https://example.org/spec")


def first_tasks(spec: BuildSpec) -> list[str]:
    """What a coordinator says first."""
    needs = BuildGraph(spec)
    states: dict[str, ComponentState] = {}
    needs.bring_up_to_date(states, {}, needs.needs)
    found = {
        name: ComponentStatus(name, states[name], needs.needs[name], has_its_needs=needs.has_its_needs(name, states))
        for name in needs.needs
    }
    steps = due_steps(BuildStatus(found, cycle=needs.cycle), Rights(), BuildLimits(), Millis(0))
    offered: dict[str, ComponentState] = {step.component: "free" for step in steps if isinstance(step, OfferComponent)}
    for name in needs.bring_up_to_date(states, offered, offered):
        found[name] = ComponentStatus(name, states[name], needs.needs[name], TaskId(name), has_its_needs=True)
    lines, _ = news(Announced(), BuildStatus(found), BuildLimits(), spec.url, Millis(0))
    return [write(line) for line in lines]


def main() -> None:
    """Print the ratio for graphs with few and with many needs."""
    for most_needs in (1, 4, 16):
        spec = graph(most_needs)
        free = sum(not one.needs for one in spec.components)
        sorting, ours = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(TopologicalSorter({one.name: one.needs for one in spec.components}).static_order())
            middle = time.perf_counter()
            lines = first_tasks(spec)
            ours.append(time.perf_counter() - middle)
            sorting.append(middle - start)
            assert sum(len(line.split()) - 2 for line in lines) == free
        ratio = statistics.median(own / other for own, other in zip(ours, sorting, strict=True))
        took = f"{statistics.median(ours) * 1_000:.1f} ms"
        print(f"up to {most_needs:2} needs each: {took}, {ratio:.2f} × graphlib")


if __name__ == "__main__":
    main()
