"""`make mutants`: what no test of the core would notice.

    make mutants                                    every module of the core
    make mutants ARGS="domain/lease/model.py"             one, or several
    make mutants ARGS="--seconds 60 domain/lease/expiry.py"

It prints each mutant that survived, and fails if there is one in what was asked for by name.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

import allswell
from tests.mutation.hunt import Fate, Hunt

ROOT = Path(__file__).parents[2]
PACKAGE = Path(allswell.__file__).parent
TESTS = ("tests/domain", "tests/properties", "tests/engine")


def main() -> int:
    """Hunt, and tell what survived."""
    parser = argparse.ArgumentParser(prog="make mutants", description="What no test of the core would notice.")
    parser.add_argument("modules", nargs="*", help="such as domain/lease/model.py; all of the core without any")
    parser.add_argument("--seconds", type=float, default=900.0, help="begin no mutant after so long (900)")
    parser.add_argument("--abreast", type=int, default=os.cpu_count() or 1, help="how many are tried at once")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="where the tests are")
    asked = parser.parse_args()
    paths = [PACKAGE / name for name in asked.modules] or sorted((PACKAGE / "domain").rglob("*.py"))
    for path in paths:
        if not path.is_file():
            parser.error(f"there is no module {path.relative_to(PACKAGE)} in {PACKAGE}")
    hunt = Hunt(paths, seconds=asked.seconds, abreast=asked.abreast)
    quiet = [
        "-o",
        "addopts=--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "--hypothesis-seed=0",
    ]
    chosen = ["-m", "not realtime and not slow", *(str(ROOT / one) for one in asked.tests)]
    code = pytest.main([*quiet, *chosen, f"--rootdir={ROOT}"], plugins=[hunt])
    if hunt.broken or code not in (0, 5):
        print("These fail before anything is changed:", *hunt.broken, f"(pytest: {code})", sep="\n  ")  # noqa: T201
        return 2
    for mutant, fate in hunt.hunted:
        if fate in (Fate.SURVIVED, Fate.UNSEEN):
            print(f"{fate}: {mutant}")  # noqa: T201
    counted = Counter(fate for _, fate in hunt.hunted)
    print(", ".join(f"{counted[fate]} {fate}" for fate in Fate if counted[fate]))  # noqa: T201
    return 1 if counted[Fate.SURVIVED] or counted[Fate.UNSEEN] else 0


if __name__ == "__main__":
    sys.exit(main())
