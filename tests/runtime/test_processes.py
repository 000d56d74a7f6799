"""A call in a process of its own: it answers, or it is told, and then it is killed with all it has started."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

import allswell
from allswell.domain.deadline import Limits
from allswell.runtime.limits import use_limits
from allswell.runtime.processes import call_in_process
from tests.runtime import work


def tool(timeout: str = "1m") -> allswell.Scope:
    return allswell.tool("there", timeout=timeout, on="process")


def test_a_function_answers_from_another_process() -> None:
    assert call_in_process(tool(), work.double, (21,), {}) == 42
    pid, number = work.decorated(5)
    assert pid != os.getpid()
    assert number == 5


def test_errors_come_back_as_they_were_raised() -> None:
    with pytest.raises(LookupError, match="not there"):
        call_in_process(tool(), work.fail, ("not there",), {})
    with pytest.raises(RuntimeError, match=r"returned a function, which cannot be sent"):
        call_in_process(tool(), work.unsendable, (), {})
    with pytest.raises(ChildProcessError, match="exit code 7"):
        call_in_process(tool(), work.die, (), {})


@pytest.mark.row("F3")
def test_the_deadline_travels_into_the_process() -> None:
    with allswell.within("30s"):
        assert 0 < call_in_process(tool(), work.left, (), {}) < 30_000


def gone(pid: int) -> bool:
    """Whether a process has ended: it is no more, or a zombie that nobody has asked for yet."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def pids(place: Path) -> list[int]:
    return [int(pid) for pid in (place / "pids").read_text().split()]


def wait_until_gone(place: Path) -> None:
    for pid in pids(place):
        while not gone(pid):
            time.sleep(0.001)


@pytest.mark.row("F2")
@pytest.mark.parametrize("obeys", [True, False])
def test_a_process_that_hangs_is_told_and_then_killed_with_its_children(tmp_path: Path, obeys: bool) -> None:
    use_limits(Limits(grace=1_000))
    function = work.hang if obeys else work.hang_and_ignore
    with pytest.raises(allswell.ScopeTimeout) as caught:
        call_in_process(tool("2s"), function, (str(tmp_path),), {})
    assert caught.value.scope.name == "there"
    assert not caught.value.abandoned
    wait_until_gone(tmp_path)
    assert (tmp_path / "told").exists() == obeys


@pytest.mark.row("F2")
def test_async_code_awaits_a_process_and_a_cancel_ends_it(tmp_path: Path) -> None:
    async def main() -> None:
        assert await allswell.run(tool(), work.double, 4) == 8
        task = asyncio.create_task(allswell.run(tool(), work.hang, str(tmp_path)))
        while not (tmp_path / "pids").exists() or len(pids(tmp_path)) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        wait_until_gone(tmp_path)

    asyncio.run(main())


@pytest.mark.row("F2")
def test_async_code_is_not_held_by_a_process_that_ignores_everything(tmp_path: Path) -> None:
    use_limits(Limits(grace=1_000))

    async def main() -> None:
        with pytest.raises(allswell.ScopeTimeout) as caught:
            await allswell.run(tool("2s"), work.hang_and_ignore, str(tmp_path))
        assert not caught.value.abandoned  # it was killed within the grace

    asyncio.run(main())
    wait_until_gone(tmp_path)
