"""What a snapshot costs, beside `git status` in the same repository and the same run.

    python bench/snapshot.py                 50,000 files
    python bench/snapshot.py --files 5000
    python bench/snapshot.py --json FILE     and keep the figures

Nothing changed, a hundred files changed, a thousand new ones: seconds, and the ratio to `git status`, both medians of
interleaved rounds; first in a repository whose every object is a file of its own, then in one packed as a clone is. The
first snapshot of an attempt makes a commit; the second of an unchanged tree makes none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import take

ROUNDS = 5


def _git(repo: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0")
    subprocess.run(["git", *identity, *arguments], cwd=repo, check=True, capture_output=True)


def _make(repo: Path, files: int) -> None:
    for number in range(files):
        folder = repo / f"d{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"value = {number}\n" * 30)
    _git(repo, "init", "-q")
    _git(repo, "add", "-A")
    _git(repo, "commit", "-qm", "all of them")
    _git(repo, "status")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _measure(repo: Path, name: str, change: Callable[[int], None]) -> dict[str, float]:
    first, again, status = [], [], []
    for number in range(1, ROUNDS + 1):
        change(number)
        task = "t_" + "".join(filter(str.isalnum, name))
        first.append(_seconds(lambda: take(repo, task, number, reason="bench")))  # noqa: B023 - called at once
        again.append(_seconds(lambda: take(repo, task, number, reason="bench")))  # noqa: B023
        status.append(_seconds(lambda: _git(repo, "--no-optional-locks", "status", "--porcelain")))
    ratio = statistics.median(one / other for one, other in zip(first, status, strict=True))
    figures = {
        "seconds": statistics.median(first),
        "again": statistics.median(again),
        "git status": statistics.median(status),
        "ratio": ratio,
    }
    print(f"{name:<18}", "  ".join(f"{what} {value:7.3f}" for what, value in figures.items()))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        repo = Path(name) / "repo"
        _make(repo, given.files)

        def modify(number: int) -> None:
            for file in range(0, given.files, max(1, given.files // 100)):
                (repo / f"d{file // 100}" / f"f{file}.py").write_text(f"changed in round {number}\n")

        def add(number: int) -> None:
            (repo / "new").mkdir(exist_ok=True)
            for file in range(1_000):
                (repo / "new" / f"{file}").write_text(f"file {file} of round {number}\n" * 50)

        figures = {"all loose": _measure(repo, "all loose", lambda number: None)}  # noqa: ARG005
        _git(repo, "repack", "-adq")  # as a clone is
        figures |= {
            "nothing changed": _measure(repo, "nothing changed", lambda number: None),  # noqa: ARG005
            "100 changed": _measure(repo, "100 changed", modify),
            "1,000 new": _measure(repo, "1,000 new", add),
        }
        snapshot = take(repo, "t_back", 1, reason="bench")
        figures["recover"] = {"seconds": _seconds(lambda: recover(snapshot, into=Path(name) / "back"))}
        print(f"{'recover':<18} seconds {figures['recover']['seconds']:7.3f}  ({given.files + 1_000} files)")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
