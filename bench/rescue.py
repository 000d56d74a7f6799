"""What `allswell run` costs: the start, and a gigabyte that passes through it.

    python bench/rescue.py [--rounds 21] [--megabytes 1000]

Rounds are interleaved: each runs everything once, so that a busy moment of the machine falls on all alike. The start is
told as the median difference to `true` within a round, and as a ratio to `python -c pass`, which is what a machine's
speed at starting Python is. The stream is compared with `cat`, and the memory is that of the supervisor at its peak.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NOWHERE = subprocess.DEVNULL
ALLOWED_MS = 250
WRITER = "import os; piece = (b'x' * 79 + b'\\n') * 800\nfor _ in range({0}): os.write(1, piece)"
"""Prints so many pieces of 64,000 bytes."""


def environment(folder: Path) -> dict[str, str]:
    """Ours without settings; modules are compiled once, as they are where the package is installed."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    return {**ours, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def seconds(command: list[str], folder: Path) -> float:
    """One run."""
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment(folder), stdout=NOWHERE, check=True)
    return time.perf_counter() - began


def start(folder: Path, rounds: int) -> None:
    """The start, beside an empty Python and beside nothing."""
    ours = str(Path(sys.executable).with_name("allswell"))
    ways = {
        "true": ["true"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "allswell run -- true": [ours, "run", "--", "true"],
    }
    for command in ways.values():
        seconds(command, folder)
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, command in ways.items():
            took[name].append(seconds(command, folder))
    nothing, empty, run = took.values()
    more = statistics.median(one - other for one, other in zip(run, nothing, strict=True)) * 1_000
    least = (min(run) - min(nothing)) * 1_000
    ratio = statistics.median(one / other for one, other in zip(run, empty, strict=True))
    for name, times in took.items():
        print(f"{name:24} median {statistics.median(times) * 1_000:7.1f} ms, least {min(times) * 1_000:7.1f} ms")
    print(f"more than `true`: median {more:.0f} ms, least {least:.0f} ms (allowed: {ALLOWED_MS} on a quiet machine)")
    print(f"`python -c pass` times {ratio:.1f}")


def stream(folder: Path, megabytes: int) -> None:
    """A lot of output, through a pipe to nobody who minds."""
    writer = [sys.executable, "-c", WRITER.format(megabytes * 1_000_000 // 64_000)]
    ours = str(Path(sys.executable).with_name("allswell"))
    plain = piped(writer, folder)[0]
    took, peak = piped([ours, "run", "--timeout", "10m", "--", *writer], folder)
    print(
        f"{megabytes} MB to a pipe: {plain:.1f} s; through `allswell run`: {took:.1f} s, {peak / 1_024:.0f} MB at most"
    )


def piped(command: list[str], folder: Path) -> tuple[float, int]:
    """How long until all of it was read, and the largest memory of the process itself, in kB."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        peak = 0
        while running.stdout.read1(1 << 20):
            peak = max(peak, memory(running.pid))
    assert running.returncode == 0
    return time.perf_counter() - began, peak


def memory(pid: int) -> int:
    """The peak of a process so far, in kB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--megabytes", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        start(Path(name), given.rounds)
        stream(Path(name), given.megabytes)


if __name__ == "__main__":
    main()
