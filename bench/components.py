"""A build of 10,000 components: the check for cycles and the first TASKS, beside what `graphlib` needs to sort them.

Both are done in turns on the same graph, and the ratio is the median over the rounds; 5 is the limit.

    python bench/components.py
"""

from __future__ import annotations

import random
import statistics
import time
from graphlib import TopologicalSorter

from allswell.domain.build.component import BuildSpec, Component, cycle_in, free_components
from allswell.domain.build.wording import tasks_lines, write

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


def main() -> None:
    """Print the ratio for graphs with few and with many needs."""
    for most_needs in (1, 4, 16):
        spec = graph(most_needs)
        sorting, ours = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(TopologicalSorter({one.name: one.needs for one in spec.components}).static_order())
            middle = time.perf_counter()
            assert cycle_in(spec) is None
            lines = [write(line) for line in tasks_lines(spec.url, free_components(spec, frozenset(), frozenset()))]
            assert lines
            ours.append(time.perf_counter() - middle)
            sorting.append(middle - start)
        ratio = statistics.median(own / other for own, other in zip(ours, sorting, strict=True))
        took = f"{statistics.median(ours) * 1_000:.1f} ms"
        print(f"up to {most_needs:2} needs each: {took}, {ratio:.2f} × graphlib")


if __name__ == "__main__":
    main()
