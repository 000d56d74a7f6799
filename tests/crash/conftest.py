"""Stores on real disks and real servers, and processes that can be killed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from sys import executable

import pytest

HOLDER = Path(__file__).with_name("holder.py")
Start = Callable[..., "Popen[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh durable store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'watch.db'}"
    place: str = request.getfixturevalue("pg_url")
    return place


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a holder process; none survives the test."""
    processes: list[Popen[str]] = []

    def begin(mode: str, url: str, name: str) -> "Popen[str]":
        command = [executable, str(HOLDER), mode, url, name]
        process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()
