"""The hunt itself: a mutant that a test notices is found, one that none notices is told."""

import os
import subprocess
import sys
from pathlib import Path

from tests.mutation.hunt import EQUIVALENT, equivalents, named
from tests.mutation.mutants import mutants_of

ROOT = Path(__file__).parents[2]
MODULE = '''
class Lease:
    def over(self, now: int, end: int) -> bool:
        return now >= end


def share(parts: list[int]) -> int:
    """What each has."""
    if not parts:
        raise ValueError("nobody is there")
    return sum(parts) // len(parts)


def never_called() -> int:
    return 1
'''
TESTS = """
import pytest
from small import Lease, share

def test_over():
    assert Lease().over(2, 1)
    assert not Lease().over(1, 2)

def test_share():
    assert share([4, 8]) == 6
    with pytest.raises(ValueError):
        share([])
"""


def test_what_no_test_notices_is_told_and_nothing_else(tmp_path: Path) -> None:
    module = tmp_path / "small.py"
    module.write_text(MODULE)
    (tmp_path / "test_small.py").write_text(TESTS)
    hunt = [sys.executable, "-m", "tests.mutation", str(module), "--tests", str(tmp_path)]
    done = subprocess.run(
        hunt, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout.splitlines()
    assert told[:3] == [f"survived: {tmp_path}/small.py:4 Lease.over", "    - now >= end", "    + now > end"]
    assert [line for line in told[3:] if not line.startswith(" ")] == [
        f"no test comes by: {tmp_path}/small.py:15 never_called",
        f"no test comes by: {tmp_path}/small.py:15 never_called",
        "5 found, 1 survived, 2 no test comes by",
    ]


def test_every_equivalent_is_still_a_mutant_and_has_its_reason() -> None:
    """One that is left over would hide another that comes to be written the same way."""
    core = ROOT / "src" / "allswell" / "domain"
    names = {entry[0] for entry in equivalents()}
    there = {
        (named(one.path), one.function, one.was, one.becomes)
        for path in core.rglob("*.py")
        if named(path) in names
        for one in mutants_of(path)
    }
    assert equivalents() - there == set(), f"not to be found any more: take it out of {EQUIVALENT.name}"
