"""Under which conditions figures were measured, and where they are kept.

A figure without its conditions is a rumour: every file in `bench/results/` carries the date, the machine and the
versions beside its numbers.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def conditions() -> dict[str, object]:
    """The machine, the versions and the moment."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def told(found: Mapping[str, object]) -> str:
    """The conditions in one line."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items())


def keep(name: str, content: object) -> Path:
    """Write one file of results; the path, for those who want to look."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"
