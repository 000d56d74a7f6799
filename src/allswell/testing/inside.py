"""The engine behind a watch, for what tests the engine itself: the simulator, and whoever checks histories."""

from __future__ import annotations

from allswell.engine.engine import Engine
from allswell.engine.watch import Watch


def engine_of(watch: Watch) -> Engine:
    """The engine behind a watch. Programs and front doors have the watch, and need nothing else."""
    engine = watch._engine  # noqa: SLF001 - this is the one way in
    assert isinstance(engine, Engine)  # noqa: S101 - one that is not reached over a network
    return engine
