"""Every bug that is planted, by name: what proves that the simulators and the scenes of a build find anything.

Each list is filled by decorators and literals in modules that name what they change; one that was forgotten in a move,
or whose target is gone, would be missed by nobody. Which seed finds a bug is in tests/sim/pins.toml.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.build.test_planted import PLANTED
from tests.sim.mutants import MUTANTS
from tests.sim.mutants_of_the_mesh import MESH_MUTANTS
from tests.sim.test_proof import BUGS

SEEDS = Path(__file__).parents[1] / "sim" / "seeds.txt"
FEWEST = {"simulator": 57, "mesh": 32, "proof": 6, "build": 29, "seeds": 16}
"""How many there are at least; these numbers only go up."""


def named() -> dict[str, list[str]]:
    """The names of each list; and the seeds that once found something."""
    seeds = [line.split()[0] for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    lists: dict[str, Mapping[str, object]] = {
        "simulator": MUTANTS,
        "mesh": MESH_MUTANTS,
        "proof": BUGS,
        "build": PLANTED,
    }
    return {**{name: list(one) for name, one in lists.items()}, "seeds": seeds}


def text() -> str:
    """What is kept: the names of each list."""
    return (
        "\n".join(line for name, names in named().items() for line in [f"# {name}", *sorted(names), ""]).strip() + "\n"
    )


def plants() -> dict[str, Any]:
    """What plants each bug for as long as it is entered."""
    there: dict[str, Any] = {f"simulator: {name}": plant for name, plant in MUTANTS.items()}
    there |= {f"mesh: {name}": plant for name, (plant, _) in MESH_MUTANTS.items()}
    there |= {f"proof: {name}": plant for name, (plant, _) in BUGS.items()}
    there |= {
        f"build: {name}": partial(patch.object, place, attribute, wrong)
        for name, (place, attribute, wrong, _) in PLANTED.items()
    }
    return there


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """What is patched meanwhile, as the names of its modules; a name that its target does not have is an error."""
    right, replaced, homes = patch.object, patch.dict, list[str]()

    def patched(target: Any, attribute: str, *planted: Any, **how: Any) -> Any:  # noqa: ANN401 - as the real one
        homes.append(_home(target))
        return right(target, attribute, *planted, **how)

    def changed(table: Any, planted: Any) -> Any:  # noqa: ANN401 - as the real one
        homes.extend(_home(key) if key in table else "" for key in planted)
        return replaced(table, planted)

    with patch.object(patch, "object", patched), right(patch, "dict", changed):
        yield homes


def _home(target: object) -> str:
    module = inspect.getmodule(target)
    return "" if module is None else module.__name__
