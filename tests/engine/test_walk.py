"""How far a reader walks with a command (bench/walk.py): no further than this."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

WALK = Path(__file__).parents[2] / "bench" / "walk.py"
MODULES, JUMPS = {"SQLite": 24, "memory": 20}, 10
"""Of a warm submit. Twenty modules are the goal on SQLite too, and docs/architecture.md says what holds the rest."""


@pytest.mark.parametrize("kind", ["SQLite", "memory"])
def test_a_warm_submit_passes_through_few_modules_and_seldom_changes_layers(kind: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("bench_walk", WALK)
    assert spec is not None
    assert spec.loader is not None
    walk = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(walk)
    found = asyncio.run(walk.walks_on(kind, tmp_path, attempt=False))["submit"]
    assert len(found.modules) <= MODULES[kind], found.modules
    assert len(found.jumps) <= JUMPS, walk.told(found)
