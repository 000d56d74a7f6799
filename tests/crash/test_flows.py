"""kill -9 of a Python flow, at the boundaries of its steps and inside them: resumed, it comes to the same result."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import allswell
from allswell.domain.task.model import TaskFilter
from tests import patience

JOB = Path(__file__).with_name("job.py")
RESULT = "result 309"
STEPS = 20
CUTS = (
    "begin plan 5",
    "after plan 5",
    "end load 1",
    "after load 3",
    "begin square 3",
    "after square",
    "begin polish 306",
    "after polish",
)


def life(kind: str, url: str, run: str, cut: str = "") -> tuple[int, list[str]]:
    """One life of the program: how it ended, and what it said."""
    command = [sys.executable, str(JOB), kind, url, run, *cut.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience.SECONDS, check=False)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode, done.stdout.splitlines()


async def recorded(watch: allswell.Watch, run: str) -> list[str]:
    """The steps whose results are in the store, as the program says them when it runs one."""
    rows = await watch.tasks(TaskFilter(run=allswell.RunId(f"r_{run}"), role="step"))
    assert all(row.task.state == "done" for row in rows)
    return [row.task.id for row in rows]


@pytest.mark.row("F11")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_flow_that_is_killed_goes_on_where_it_was(url: str, kind: str) -> None:
    """Promise 9: resume repeats no finished step; the result is that of the flow that nobody cut."""
    code, said = life(kind, url, "uncut")
    assert (code, said[-1], len(said)) == (0, RESULT, STEPS + 1)
    whole = said[:-1]

    async def look(run: str) -> list[str]:
        async with allswell.open(url) as watch:
            assert await watch.unaccounted() == []
            return await recorded(watch, run)

    ran: list[str] = []
    before = 0
    for cut in CUTS:
        code, said = life(kind, url, "cut", cut)
        assert code == -9, f"{cut}: it was not killed, but said {said}"
        kept = asyncio.run(look("cut"))
        # What ran in this life and is not in the store was under way when it died; everything else ran for good.
        unfinished = len(said) - (len(kept) - before)
        in_flight = 8 if cut.startswith("begin square") and kind == "async" else 1
        assert 0 <= unfinished <= in_flight, f"{cut}: {said}, {len(kept) - before} recorded"
        assert (unfinished == 0) == cut.startswith("after"), f"{cut}: {said}"
        ran += said
        before = len(kept)
    code, said = life(kind, url, "cut")
    assert (code, said) == (0, [RESULT])
    assert set(ran) == set(whole)
    assert len(asyncio.run(look("cut"))) == len(asyncio.run(look("uncut"))) == STEPS
    again = [step for step in set(ran) if ran.count(step) > 1]
    assert all(step in ("ran plan 5", "ran load 1", "ran polish 306") or "square" in step for step in again), again


@pytest.mark.row("F11")
def test_a_flow_that_is_finished_runs_nothing_and_gives_the_same_result(url: str) -> None:
    assert life("async", url, "once")[1][-1] == RESULT
    assert life("async", url, "once") == (0, [RESULT])
    code, said = life("async", url, "twice", "after flow")  # killed after the flow was left
    assert (code, len(said)) == (-9, STEPS)
    assert life("async", url, "twice") == (0, [RESULT])
