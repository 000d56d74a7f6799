"""What it costs to run a command under a reaper, beside `subprocess.run` and `python -c pass`.

    python bench/trees.py [--rounds 51]

Rounds are interleaved: each runs everything once, so that a busy moment of the machine falls on all alike; the figure
is the median over the rounds of a ratio within one. The warden is started before: the first command waits for it once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import allswell


def seconds(run: Callable[[], object]) -> float:
    """One run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def measure(rounds: int, loop: asyncio.Runner) -> None:
    """Run and print."""
    ways: dict[str, Callable[[], object]] = {
        "subprocess.run(['true'])": lambda: subprocess.run(["true"], capture_output=True, check=True),
        "python -c pass": lambda: subprocess.run([sys.executable, "-c", "pass"], capture_output=True, check=True),
        "run_tool_sync(['true'])": lambda: allswell.run_tool_sync(["true"]),
        "run_tool(['true'])": lambda: loop.run(allswell.run_tool(["true"])),
    }
    first = seconds(ways["run_tool_sync(['true'])"])
    for run in ways.values():
        run()
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            took[name].append(seconds(run))
    print(
        f"medians of {rounds} interleaved rounds; the first tool, with the start of the warden: {first * 1000:.1f} ms"
    )
    print(f"{'':28}{'ms':>8}{'to subprocess':>16}{'to python':>12}")
    for name, times in took.items():
        ratios = [
            statistics.median(one / other for one, other in zip(times, took[beside], strict=True))
            for beside in ("subprocess.run(['true'])", "python -c pass")
        ]
        print(f"{name:28}{statistics.median(times) * 1000:8.1f}{ratios[0]:16.1f}{ratios[1]:12.2f}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=51)
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    with asyncio.Runner() as loop:
        measure(given.rounds, loop)


if __name__ == "__main__":
    main()
