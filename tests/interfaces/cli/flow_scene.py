"""What tests of flows at the command line are made of: a folder, a flow in it, and a run that is begun."""

import subprocess
import sys
import time
from pathlib import Path

from tests import patience
from tests.interfaces.cli.upkeep import environment

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")


def write(folder: Path, text: str, name: str = "flow.yaml") -> str:
    (folder / name).write_text(text)
    return name


def repository(folder: Path) -> None:
    """A repository with one committed file."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "kept.txt").write_text("as committed\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")


def git(folder: Path, *args: str) -> str:
    return subprocess.run([*GIT, "-C", str(folder), *args], check=True, capture_output=True, text=True).stdout


def base_of(folder: Path) -> Path:
    (found,) = (folder / ".allswell" / "runs").iterdir()
    return found


def until(path: Path) -> None:
    """Wait for a file that another process writes."""
    end = time.monotonic() + patience.SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.02)


def start(*args: str, cwd: Path, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "allswell", *args]
    return subprocess.Popen(command, cwd=cwd, env=environment(), stdout=stdout, stderr=subprocess.DEVNULL)
