"""A data job in pure Python that can be killed at any moment and goes on where it was.

    python examples/data_job.py                        # writes some sales, adds them up, prints a report
    python examples/data_job.py --crash-in merge       # dies in the middle of a step, as in a power cut
    python examples/data_job.py                        # goes on: what was counted is not counted again

Each `@allswell.step` is a plain function. Inside `allswell.flow(..., run_id=…)` its result is kept in the store of the
project (`.allswell/`) as soon as it returns, so a later run of the same `run_id` gets the result instead of calling it.
`allswell runs`, `allswell tasks` and `allswell why` know the flow and its steps.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import allswell

SHOPS = ("harbour", "market", "station")
CRASH_IN = ""


@dataclass
class Sales:
    """What one file comes to, in cents."""

    file: str
    lines: int
    by_shop: dict[str, int]


def working_on(step: str) -> None:
    """Say what is really done; die there, if that was asked for."""
    print(f"  running {step}", flush=True)
    if step == CRASH_IN:
        os.kill(os.getpid(), signal.SIGKILL)


@allswell.step("make")
def make(folder: str, days: int) -> list[str]:
    """Some sales to work on: a file a day."""
    working_on("make")
    chance = random.Random(7)
    files = []
    for day in range(1, days + 1):
        path = Path(folder, f"day-{day:02}.csv")
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows((chance.choice(SHOPS), chance.randint(100, 9_999)) for _ in range(1_000))
        files.append(path.name)
    return files


@allswell.step("count", timeout="5m")
def count(folder: str, name: str) -> Sales:
    """One file. Called once for each, and told apart by the file's name."""
    working_on(f"count {name}")
    totals: Counter[str] = Counter()
    with Path(folder, name).open(newline="") as file:
        rows = list(csv.reader(file))
    for shop, cents in rows:
        totals[shop] += int(cents)
        allswell.check_deadline()
    return Sales(name, len(rows), dict(totals))


@allswell.step("merge")
def merge(parts: list[Sales]) -> dict[str, int]:
    """All files together."""
    working_on("merge")
    totals: Counter[str] = Counter()
    for part in parts:
        totals.update(part.by_shop)
    return dict(sorted(totals.items()))


@allswell.step("report")
def report(folder: str, totals: dict[str, int]) -> str:
    """What people read."""
    working_on("report")
    lines = [f"{shop:<10}{cents / 100:>12,.2f}" for shop, cents in totals.items()]
    text = "\n".join([*lines, f"{'all':<10}{sum(totals.values()) / 100:>12,.2f}"])
    Path(folder, "report.txt").write_text(text + "\n")
    return text


def main() -> None:
    """Run the job, or what is left of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--run", default="sales", help="the name of the run; another one begins anew")
    options.add_argument("--folder", default="sales", help="where the files are")
    options.add_argument("--store", help="the store's URL; by default that of the project")
    options.add_argument(
        "--crash-in", default="", metavar="STEP", help="die there, such as 'merge' or 'count day-03.csv'"
    )
    chosen = options.parse_args()
    global CRASH_IN  # noqa: PLW0603 - an example is one file
    CRASH_IN = chosen.crash_in
    Path(chosen.folder).mkdir(parents=True, exist_ok=True)
    with allswell.flow("daily sales", run_id=chosen.run, store=chosen.store, timeout="20m") as flow:
        files = make(chosen.folder, days=7)
        parts = [count(chosen.folder, name) for name in files]
        text = report(chosen.folder, merge(parts))
    print(f"{flow.found} steps were done before.\n{text}")


if __name__ == "__main__":
    main()
