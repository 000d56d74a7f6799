"""Find the planted bugs afresh and write `pins.toml`: `python -m tests.sim.repin [NAME…]`, when the world has changed.

A seed's history changes with every change to the engine that awaits or draws differently, so a pin may go stale: then
its test says so, and this finds another seed. A bug that is no longer found at all is what must not happen. Of a few
seeds the one is pinned that finds it soonest: a history ends where a promise is broken, and every test run lives it.
"""

from __future__ import annotations

import multiprocessing
import sys
import tomllib
from pathlib import Path

from allswell.testing.sim import simulate
from tests.sim.mutants import MUTANTS

HOURS = 20
MOST_SEEDS = 1_000
COMPARED = 12
"""Seeds of which the one is pinned that finds it soonest."""
PINS = Path(__file__).with_name("pins.toml")


def find(name: str, most: int = MOST_SEEDS) -> tuple[int, str] | None:
    """The first seed that finds a planted bug, and the promise that it breaks there."""
    for seed in range(1, most + 1):
        with MUTANTS[name]():
            report = simulate(seed, hours=HOURS)
        if report.broken:
            fits(name, report.broken[0].seen)
            return seed, report.broken[0].promise
    return None


def soonest(name: str) -> tuple[int, str] | None:
    """Of the first seeds the one after which a planted bug is found soonest, or else the first that finds it."""
    found = []
    for seed in range(1, COMPARED + 1):
        with MUTANTS[name]():
            report = simulate(seed, hours=HOURS)
        if report.broken:
            fits(name, report.broken[0].seen)
            found.append((report.commits, seed, report.broken[0].promise))
    return min(found)[1:] if found else find(name)


def pins() -> dict[str, dict[str, object]]:
    """The pins as they are."""
    return tomllib.loads(PINS.read_text())


def fits(name: str, seen: str) -> None:
    """A planted bug is one of the engine: one that is called wrongly since that changed would break it anyhow."""
    if "TypeError(" in seen and name in seen:
        raise AssertionError(f"the planted bug {name} no longer fits the engine: {seen}")


def main() -> int:
    """Search on all cores, for all or for those that are named; the exit code says whether every bug was found."""
    names = sys.argv[1:] or list(MUTANTS)
    lines = ["# Which seed finds each planted bug, and the promise it breaks there; written by repin.py."]
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = dict(zip(names, pool.imap(soonest, names), strict=True))
    known = {name: (pin["seed"], pin["breaks"]) for name, pin in pins().items() if name not in found}
    for name in MUTANTS:
        pin = found.get(name) or known.get(name)
        if pin is not None:
            lines.append(f'\n[{name}]\nseed = {pin[0]}\nbreaks = "{pin[1]}"')
    PINS.write_text("\n".join(lines) + "\n")
    missing = [name for name, pin in found.items() if pin is None]
    sys.stdout.write(f"{len(found) - len(missing)} found, missing: {missing}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
