"""The watch is all that front doors, runtime and flows have: plain values go in and come out, and no engine shows."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from allswell.engine.flow import FlowHold
from allswell.engine.lease import Held, Lease
from allswell.engine.sync import SyncLease, SyncWatch
from allswell.engine.watch import Watch

SOURCE = Path(__file__).parents[2] / "src" / "allswell"
INSIDE = {"Store", "Transaction", "Engine", "Future", "AbstractEventLoop", "Changes"}
"""What a watch over a network does not have, or what only its own loop may touch."""


def outside() -> list[Path]:
    """Every module that is not of the engine, nor the one way in for what tests the engine."""
    found = [path for path in SOURCE.rglob("*.py") if (SOURCE / "engine") not in path.parents]
    return [path for path in found if path != SOURCE / "testing" / "sim" / "process.py"]


def test_nobody_else_reaches_for_the_engine() -> None:
    reaching = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in outside()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("engine", "_engine")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "allswell"))
        and "watch" in ast.unparse(node.value)
    ]
    assert reaching == []


@pytest.mark.parametrize("kind", [Watch, Held, Lease, FlowHold, SyncWatch, SyncLease])
def test_a_watch_speaks_in_plain_values(kind: type) -> None:
    shown = {}
    for name, member in inspect.getmembers(kind):
        if name.startswith("_"):
            continue
        given = member.fget if isinstance(member, property) else member
        if callable(given):
            said = {word for value in given.__annotations__.values() for word in re.findall(r"\w+", str(value))}
            if said & INSIDE:
                shown[name] = said & INSIDE
    assert shown == {}
