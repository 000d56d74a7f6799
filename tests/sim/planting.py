"""How a bug is planted: a small context manager that patches one function, entered in `MUTANTS` under its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest.mock import patch

Mutant = Callable[[], contextlib.AbstractContextManager[object]]
MUTANTS: dict[str, Mutant] = {}


def mutant(make: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    """Enter a generator function as a planted bug."""
    MUTANTS[make.__name__] = contextlib.contextmanager(make)
    return make


@contextlib.contextmanager
def everywhere(name: str, planted: object, *modules: object) -> Iterator[None]:
    """Patch a name in every module that has imported it."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, name, planted))
        yield
