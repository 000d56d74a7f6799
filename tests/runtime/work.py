"""Functions for other processes: they are found by name, so they stand at the top of a module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import allswell


def double(number: int) -> int:
    return 2 * number


def fail(text: str) -> None:
    raise LookupError(text)


def unsendable() -> object:
    return lambda: None


def everything(size: int) -> dict[str, object]:
    return {"text": "x" * size, "list": [1, 2.5, None, True], "tuple": (1, 2), "big": 2**100, "nan": float("nan")}


def plain(size: int) -> dict[str, object]:
    return {"text": "x" * size, "list": [1, 2.5, None, True, "\udcff", 2**63], "none": {}}


def files_in_tmp() -> list[str]:
    return [path.name for path in Path(os.environ["TMPDIR"]).iterdir() if not path.name.startswith("pymp-")]


def die() -> None:
    os._exit(7)


def left() -> float:
    return allswell.remaining_ms() or 0.0


def hang(place: str) -> None:
    """Note our process id, and that of a child, and wait for ever; what SIGTERM raises is noted too."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:  # before the note: what waits for it ends this process at once
        Path(place, "pids").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    except allswell.ScopeTimeout as error:
        Path(place, "told").write_text(error.scope.name)
        raise


def hang_and_ignore(place: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(place)


def nested() -> int:
    return int(decorated(1)[1])


@allswell.tool("decorated", timeout="1m", on="process")
def decorated(number: int) -> tuple[int, int]:
    return os.getpid(), number
