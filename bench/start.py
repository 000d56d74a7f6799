"""How long commands take from the start of their process, as ratios to `python -c pass`.

    python bench/start.py [--tasks 100000] [--rounds 21]

Rounds are interleaved: each runs every command once, so that a busy moment of the machine falls on all alike; the
figure is the median over the rounds of a command's time by that of the empty Python beside it. The store has so many
open tasks, and one more that needs 500 of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FAN_IN = 500
NOWHERE = subprocess.DEVNULL
EMPTY = ("-c", "pass")


def commands(tasks: int) -> dict[str, tuple[str, ...]]:
    """What is measured: those who only look, and are typed most."""
    ours = ("-m", "allswell")
    return {
        "python -c pass": EMPTY,
        "python -c 'import msgspec'": ("-c", "import msgspec"),
        "allswell --help": (*ours, "--help"),
        "allswell tasks": (*ours, "tasks"),
        "allswell show NAME": (*ours, "show", f"number {tasks // 2}"),
        "allswell why NAME": (*ours, "why", f"number {tasks // 2}"),
        f"allswell why (needs {FAN_IN})": (*ours, "why", "gather"),
        "allswell questions": (*ours, "questions"),
        "allswell runs": (*ours, "runs"),
        "allswell events": (*ours, "events"),
        "allswell": ours,
        "allswell claim": (*ours, "claim", "--agent", "ada", "--role", "nobody"),
    }


def environment(folder: Path) -> dict[str, str]:
    """Ours without settings; modules are compiled once, as they are where the package is installed."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    return {**ours, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def fill(folder: Path, tasks: int) -> None:
    """Make the store."""
    needed = [f"number {number}" for number in range(tasks // 3, tasks // 3 + FAN_IN)]
    given = [*({"name": f"number {number}"} for number in range(tasks)), {"name": "gather", "needs": needed}]
    lines = "\n".join(map(json.dumps, given))
    command = [sys.executable, "-m", "allswell", "submit", "-"]
    subprocess.run(command, cwd=folder, env=environment(folder), input=lines, text=True, stdout=NOWHERE, check=True)


def seconds(command: Sequence[str], folder: Path) -> float:
    """One run, from before the process starts until it has ended."""
    env = environment(folder)
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=folder, env=env, stdout=NOWHERE, stderr=NOWHERE, check=False)
    return time.perf_counter() - began


def measure(folder: Path, tasks: int, rounds: int) -> None:
    """Run and print."""
    wanted = commands(tasks)
    for command in wanted.values():
        seconds(command, folder)
    took: dict[str, list[float]] = {name: [] for name in wanted}
    for _ in range(rounds):
        for name, command in wanted.items():
            took[name].append(seconds(command, folder))
    beside = took["python -c pass"]
    print(f"{tasks:,} tasks, medians of {rounds} interleaved rounds")
    print(f"{'':32}{'ratio':>7}{'ms':>8}{'least ms':>10}")
    for name, times in took.items():
        ratio = statistics.median(one / empty for one, empty in zip(times, beside, strict=True))
        print(f"{name:32}{ratio:7.1f}{statistics.median(times) * 1000:8.1f}{min(times) * 1000:10.1f}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    if given.tasks < 3 * FAN_IN or given.rounds < 1:
        parser.error(f"--tasks must be at least {3 * FAN_IN}, --rounds at least 1")
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), given.tasks)
        measure(Path(folder), given.tasks, given.rounds)


if __name__ == "__main__":
    main()
