"""How soon a free slot and a ready task become a running process, and what an agent costs that is only watched.

    python bench/dispatch.py [--tasks 60] [--watched 100] [--seconds 20]

Each task's process writes down the moment at which it runs; that is compared with the moment at which its submission
was acknowledged. Then agents that only sleep are watched for a while, and the supervisor's own processor time is read.
"""

# ruff: noqa: ASYNC110 - what other processes do can only be polled for

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from allswell import make_watch
from allswell.store.sqlite import SqliteStore

RUNS = "import sys, time; open(sys.argv[1], 'w').write(repr(time.time()))"


class Bench:
    """A supervisor in a folder of its own."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.folder = folder
        (folder / ".allswell").mkdir()
        agents = {
            "runs": [sys.executable, "-I", "-S", "-c", RUNS, "{payload}"],
            "sleeps": ["sleep", "{payload}"],
        }
        text = "".join(
            f'[agents.{name}]\ncommand = {json.dumps(command)}\nrole = "{name}"\nconcurrency = {slots}\n'
            for name, command in agents.items()
        )
        (folder / "allswell.toml").write_text(text)
        command = [sys.executable, "-m", "allswell", "up"]
        with (folder / "up.log").open("wb") as log:
            self.up = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def cpu(self) -> float:
        """Seconds of processor time that the supervisor itself has used."""
        fields = Path(f"/proc/{self.up.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it, and everything it runs."""
        for _ in range(2):
            self.up.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        self.up.wait(30)


def _written(place: Path) -> str:
    return place.read_text() if place.exists() else ""


async def measure(folder: Path, tasks: int, watched: int, seconds: float) -> dict[str, float]:
    """All of it, on an SQLite store."""
    bench = Bench(folder, max(watched, 4))
    try:
        async with make_watch(SqliteStore(folder / ".allswell" / "allswell.db"), sweeping=False) as watch:
            await asyncio.sleep(2)
            delays = []
            for number in range(tasks):
                place = folder / f"ran.{number}"
                await watch.submit(f"n{number}", role="runs", payload=str(place))
                sent = time.time()
                while not place.exists() or not place.read_text():
                    await asyncio.sleep(0.002)
                delays.append((float(place.read_text()) - sent) * 1_000)
                await asyncio.sleep(0.1)
            rest = str(seconds + 30)
            await watch.submit_many([{"name": "s", "role": "sleeps", "payload": rest} for _ in range(watched)])
            while (await watch.counts()).get("held", 0) < watched:
                await asyncio.sleep(0.1)
            await asyncio.sleep(3)
            before = bench.cpu()
            await asyncio.sleep(seconds)
            share = (bench.cpu() - before) / seconds
    finally:
        bench.stop()
    delays.sort()
    return {
        "dispatch_p50_ms": statistics.median(delays),
        "dispatch_p99_ms": delays[int(len(delays) * 0.99)],
        "watched": watched,
        "cpu_percent_each": share * 100 / watched,
    }


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--watched", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="allswell-dispatch-") as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), **vars(given))), indent=2))


if __name__ == "__main__":
    main()
