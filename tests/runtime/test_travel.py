"""Deadlines travel to child processes and over HTTP, and nobody on the other side believes he has more time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

import allswell
from allswell.errors import Refused
from allswell.runtime.host import boot_id
from allswell.testing.loop import run

NAME = "ALLSWELL_DEADLINE"
CHILD = """
import allswell
with allswell.inherit_deadline() as scope:
    left = allswell.remaining_ms()
    print("none" if left is None else scope.deadline)
"""


def child(**environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != NAME}
    return subprocess.run(
        [sys.executable, "-c", CHILD], env={**clean, **environ}, capture_output=True, text=True, check=False
    )


@pytest.mark.row("F3")
def test_a_child_process_has_the_same_deadline() -> None:
    with allswell.within("1m") as scope:
        done = child(**allswell.deadline_environment())
    assert done.stderr == ""
    assert float(done.stdout) == pytest.approx(scope.deadline, abs=0.05)  # the time between two readings


def test_without_a_deadline_none_travels() -> None:
    assert allswell.deadline_environment() == {}
    assert allswell.remaining_headers() == {}
    with allswell.within(None):
        assert allswell.deadline_environment() == {}
        assert allswell.remaining_headers() == {}
    assert child().stdout == "none\n"
    assert child(**{NAME: ""}).stdout == "none\n"


@pytest.mark.parametrize("text", ["garbage", "00000000-0000-0000-0000-000000000000:99999999999999999"])
def test_a_deadline_that_means_nothing_here_is_refused_by_name(text: str) -> None:
    done = child(**{NAME: text})
    assert done.returncode == 1
    assert f"Refused: {NAME}" in done.stderr


def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    past = {NAME: f"{boot_id()}:{time.monotonic_ns() - 5_000_000_000}"}
    with pytest.raises(allswell.ScopeTimeout, match="inherited had no time left when it was entered"):
        allswell.inherit_deadline(past).__enter__()

    async def main() -> None:
        async with allswell.inherit_deadline(past):
            pass

    with pytest.raises(allswell.ScopeTimeout, match="no time left"):
        asyncio.run(main())


@pytest.mark.row("F3")
def test_over_http_what_is_left_travels() -> None:
    async def server(headers: dict[str, str]) -> float:
        async def handle() -> None:
            async with allswell.inherit_remaining(headers):
                await asyncio.sleep(1_000)

        began = asyncio.get_running_loop().time()
        with pytest.raises(allswell.ScopeTimeout, match="inherited reached its limit"):
            await handle()
        return asyncio.get_running_loop().time() - began

    async def main() -> None:
        async with allswell.within("60s"):
            await asyncio.sleep(12.3456)
            sent = allswell.remaining_headers()
        assert sent == {"Allswell-Remaining-Ms": "47654"}
        took = await server({name.lower(): value for name, value in sent.items()})
        # The instant is one of the real clock, which goes on while the virtual one stands.
        assert 47.0 < took <= 47.654

    run(main(), seed=None)


def test_headers_are_read_strictly() -> None:
    for wrong in ("", "-1", "1.5", "soon", "9" * 40):
        with pytest.raises(Refused, match="whole milliseconds"):
            allswell.inherit_remaining({"Allswell-Remaining-Ms": wrong})
    with pytest.raises(Refused, match="came 2 times"):
        allswell.inherit_remaining({"Allswell-Remaining-Ms": "5", "allswell-remaining-ms": "7"})
    with allswell.inherit_remaining({}):
        assert allswell.remaining_ms() is None
    with pytest.raises(allswell.ScopeTimeout, match="no time left"):
        allswell.inherit_remaining({"allswell-remaining-ms": "0"}).__enter__()
