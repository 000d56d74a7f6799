"""A call in a process of its own: it answers, or it is told, and then it is killed with all it has started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import allswell
from allswell.domain.scopes import ScopeLimits
from allswell.errors import Refused
from allswell.runtime import process_calls
from allswell.runtime.deadlines import use_limits
from allswell.runtime.process.leftovers import Spawner, install, spawner
from allswell.runtime.process_calls import StopMessage, call_in_process, supervise
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


def test_an_answer_comes_by_a_pipe_whatever_its_size_and_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (work.everything, work.plain):
        for size in (1, 3_000_000):  # more than a pipe holds
            assert repr(call_in_process(tool(), function, (size,), {})) == repr(function(size))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert call_in_process(tool(), work.files_in_tmp, (), {}) == [], "nobody else can put an answer anywhere"


def test_an_answer_that_is_too_large_is_told_and_one_that_never_ends_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_calls, "MOST", 1_000)
    sent = process_calls.AnswerReader()
    process_calls.send(sent.writer, ("x" * 2_000, None))
    outcome = sent.outcome()
    assert outcome is not None
    assert "it returned 2,002 bytes, and 1,000 can be sent" in str(outcome[1])
    sent.close()
    flood = process_calls.AnswerReader()
    os.write(flood.writer.fileno(), b"\0" * 7 + b"\xffj" + b"x" * 5_000)
    assert flood.outcome() is None
    flood.close()


def test_what_cannot_be_sent_there_is_refused_before_anything_is_started() -> None:
    with pytest.raises(Refused, match=r"double runs in a process of its own, and what goes there must be picklable"):
        call_in_process(tool(), work.double, (threading.Lock(),), {})


@pytest.mark.row("F3")
def test_the_deadline_travels_into_the_process() -> None:
    with allswell.within("30s"):
        assert 0 < call_in_process(tool(), work.left, (), {}) < 30_000


def gone(pid: int) -> bool:
    """Whether a process has ended: it is no more, or a zombie that nobody has asked for yet."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the one before its file is opened, the other while it is read
        return True


def pids(place: Path) -> list[int]:
    return [int(pid) for pid in (place / "pids").read_text().split()]


def wait_until_gone(place: Path) -> None:
    for pid in pids(place):
        while not gone(pid):
            time.sleep(0.001)


def until_it_hangs(place: Path) -> None:
    while not (place / "pids").exists() or len(pids(place)) < 2:
        time.sleep(0.001)


@pytest.mark.row("F2")
@pytest.mark.parametrize("obeys", [True, False])
def test_a_process_that_hangs_is_told_and_then_killed_with_its_children(tmp_path: Path, obeys: bool) -> None:
    """However long it takes to begin on a busy machine, its time is up when it hangs."""
    use_limits(ScopeLimits(grace=60_000 if obeys else 200))
    scope, stop = tool(), StopMessage()
    caught: list[allswell.ScopeTimeout] = []

    def call() -> None:
        try:
            supervise(scope, work.hang if obeys else work.hang_and_ignore, (str(tmp_path),), {}, stop)
        except allswell.ScopeTimeout as error:
            caught.append(error)

    with pytest.raises(allswell.ScopeTimeout), scope:  # noqa: PT012 - whatever fails in it, the scope is left for other tests
        thread = threading.Thread(target=call)
        thread.start()
        until_it_hangs(tmp_path)
        scope.deadline = scope.now()
        stop.ask()  # only to make it look at the clock
        thread.join()
        stop.close()
        assert [error.scope for error in caught] == [scope]
        wait_until_gone(tmp_path)
        assert (tmp_path / "told").exists() == obeys


def test_a_process_of_ours_starts_no_other() -> None:
    with pytest.raises(Refused, match="it could not be ended"):
        call_in_process(tool(), work.nested, (), {})


CALLER = """
import sys
import allswell
from allswell.runtime.process_calls import StopMessage, call_in_process, supervise
from tests.runtime import work
call_in_process(allswell.tool("there"), work.hang, (sys.argv[1],), {})
"""


@pytest.mark.row("F2")
def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """After kill -9 nobody is left to tell it."""
    caller = subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path)], cwd=Path(__file__).parents[2])
    until_it_hangs(tmp_path)
    caller.kill()
    caller.wait()
    wait_until_gone(tmp_path)


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
@pytest.mark.realtime
def test_async_code_is_not_held_by_a_process_that_ignores_everything(tmp_path: Path) -> None:
    use_limits(ScopeLimits(grace=3_000))

    async def main() -> None:
        with pytest.raises(allswell.ScopeTimeout) as caught:
            await allswell.run(tool("3s"), work.hang_and_ignore, str(tmp_path))
        assert not caught.value.abandoned  # it was killed within the grace

    asyncio.run(main())
    wait_until_gone(tmp_path)


@pytest.mark.row("F2")
def test_a_process_belongs_to_the_call_that_awaits_it() -> None:
    """A call that is over starts none, whichever thread would have started it."""
    install()
    over = Spawner("t_1.1")
    over.close()

    async def main() -> None:
        assert await allswell.run(tool(), work.double, 4) == 8
        spawner.set(over)
        with pytest.raises(Refused, match="is over"):
            await allswell.run(tool(), work.double, 4)
        spawner.set(None)
        assert await allswell.run(tool(), work.double, 4) == 8

    asyncio.run(main())
