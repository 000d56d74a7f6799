"""`run_tool`: a command as a tool, with its deadline inside and outside, and its output in every ending."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import allswell
from allswell.domain.scopes import ScopeLimits
from allswell.runtime.deadlines import use_limits
from allswell.runtime.process import EndCause
from allswell.runtime.process.handle import WardenKeeper
from tests.runtime.process.stage import IGNORING, tagged, until


@pytest.fixture
def tag(tmp_path: Path) -> Iterator[dict[str, str]]:
    yield {"TAG": tmp_path.name}
    assert tagged(tmp_path.name) == []  # when a call is over, nobody is left


def run(*argv: str, **more: object) -> allswell.ToolResult:
    """Both spellings, which must agree."""
    ours = asyncio.run(allswell.run_tool(argv, **more))  # type: ignore[arg-type]
    theirs = allswell.run_tool_sync(argv, **more)  # type: ignore[arg-type]
    assert (ours.exit_code, ours.stdout, ours.stderr) == (theirs.exit_code, theirs.stdout, theirs.stderr)
    return ours


def test_a_command_answers(tmp_path: Path) -> None:
    done = run("sh", "-c", "cat; pwd; echo hm >&2; exit 7", cwd=tmp_path, input="given\n")
    assert (done.exit_code, done.ok) == (7, False)
    assert done.stdout == f"given\n{tmp_path}\n"
    assert done.stderr == "hm\n"
    assert done.ended.ending is EndCause.EXITED
    assert done.stdout_path is None
    assert run("true").ok


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert run("printf", r"a\377b").stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_files_stay_where_they_were_asked_for(tmp_path: Path) -> None:
    done = asyncio.run(allswell.run_tool(["seq", "1", "1000"], output=allswell.Output(folder=tmp_path, cap=100)))
    assert done.stdout_path is not None
    assert done.stdout_path.parent == tmp_path
    assert done.stdout_path.read_text() == done.stdout
    assert "[allswell: 3793 bytes left out here]" in done.stdout
    assert done.stdout.startswith("1\n2\n")
    assert done.stdout.endswith("1000\n")


def test_text_is_bounded_however_much_is_kept(tmp_path: Path) -> None:
    output = allswell.Output(folder=tmp_path, cap=10_000_000)
    done = allswell.run_tool_sync(["head", "-c", "5000000", "/dev/zero"], output=output)
    assert done.stdout_path is not None
    assert done.stdout_path.stat().st_size == 5_000_000
    assert 1_048_576 <= len(done.stdout) < 1_048_700


def test_what_is_printed_can_be_seen_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    allswell.run_tool_sync(["sh", "-c", "echo out; echo err >&2"], output=allswell.Output(live=True))
    assert capfd.readouterr() == ("out\n", "err\n")


# --- the environment --------------------------------------------------------------------------------------------------


def _environment() -> list[str]:
    return allswell.run_tool_sync(["env"], env={"MINE": "yes"}).stdout.splitlines()


def test_the_environment_is_an_allowlist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("ALLSWELL_STORE", "postgresql://somewhere")
    monkeypatch.setenv("LC_TIME", "C")
    seen = dict(line.split("=", 1) for line in _environment())
    assert seen["MINE"] == "yes"
    assert seen["LC_TIME"] == "C"
    assert {"SOME_API_KEY", "ALLSWELL_STORE"}.isdisjoint(seen)
    assert {"PATH", "ALLSWELL_DEADLINE", "ALLSWELL_MARKER"} <= set(seen)


@pytest.mark.row("F3")
def test_the_deadline_travels_into_the_command() -> None:
    script = "import allswell\nwith allswell.inherit_deadline(): print(allswell.remaining_ms())"
    with allswell.within("30s"):
        done = allswell.run_tool_sync([sys.executable, "-c", script])
    assert 0 < float(done.stdout) < 30_000


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("F2")
@pytest.mark.realtime
def test_at_the_deadline_the_tree_is_ended_and_what_it_printed_is_kept(tmp_path: Path, tag: dict[str, str]) -> None:
    """In time: told at the deadline, killed within the grace."""
    use_limits(ScopeLimits(grace=500))
    began = time.monotonic()
    with pytest.raises(allswell.ToolTimeout) as caught:
        asyncio.run(allswell.run_tool(["sh", "-c", f"echo so far; {IGNORING}"], "1s", env=tag, cwd=tmp_path))
    assert 1 <= time.monotonic() - began < 2.5
    error = caught.value
    assert error.result is not None
    assert error.result.stdout == "so far\n"
    assert error.result.ended.killed
    assert (error.scope.kind, error.scope.name, error.abandoned) == ("tool", "sh", False)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.result, str(again)) == (error.result, str(error))


@pytest.mark.row("F2")
def test_sync_code_is_let_go_at_the_deadline(tag: dict[str, str]) -> None:
    with pytest.raises(allswell.ToolTimeout, match="'sh' reached its limit") as caught:
        allswell.run_tool_sync(["sh", "-c", "echo so far; sleep 600"], "400ms", env=tag)
    assert caught.value.result is not None
    assert caught.value.result.stdout == "so far\n"


@pytest.mark.row("F2")
def test_a_scope_further_out_ends_the_tree_too(tag: dict[str, str]) -> None:
    async def main() -> None:
        async with allswell.step("build", timeout="400ms"):
            await allswell.run_tool(["sh", "-c", "echo so far; sleep 600"], env=tag)

    with pytest.raises(allswell.ScopeTimeout, match="step 'build'") as caught:
        asyncio.run(main())
    cause = caught.value.__cause__
    assert isinstance(cause, allswell.ToolCancelled)
    assert cause.result.stdout == "so far\n"


@pytest.mark.row("F2")
def test_a_cancel_ends_the_tree_and_passes(tmp_path: Path, tag: dict[str, str]) -> None:
    async def main() -> None:
        task = asyncio.create_task(allswell.run_tool(["sh", "-c", IGNORING], cwd=tmp_path, env=tag))
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


def test_many_cancels_do_not_leave_anybody(tmp_path: Path, tag: dict[str, str]) -> None:
    async def main() -> None:
        task = asyncio.create_task(allswell.run_tool(["sh", "-c", IGNORING], cwd=tmp_path, env=tag))
        while not task.done():
            task.cancel() if (tmp_path / "ready").exists() else None
            await asyncio.sleep(0.005)
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(0, 12, 2))
def test_a_cancel_may_come_at_any_moment_of_the_start(turns: int, tag: dict[str, str]) -> None:
    async def main() -> None:
        task = asyncio.create_task(allswell.run_tool(["sleep", "600"], env=tag))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    until(lambda: tagged(tag["TAG"]) == [])


def test_many_tools_run_at_once() -> None:
    async def main() -> list[allswell.ToolResult]:
        return await asyncio.gather(*(allswell.run_tool(["sh", "-c", f"exit {code}"]) for code in range(30)))

    assert [done.exit_code for done in asyncio.run(main())] == list(range(30))


def test_threads_run_tools_side_by_side() -> None:
    codes: dict[int, int | None] = {}

    def call(code: int) -> None:
        codes[code] = allswell.run_tool_sync(["sh", "-c", f"exit {code}"]).exit_code

    threads = [threading.Thread(target=call, args=(code,)) for code in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == {code: code for code in range(10)}


# --- what cannot be run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv, where, said",
    [
        ("ls -l", "argv", "a list of its words"),
        ([], "argv", "empty"),
        (["ls", 3], "argv[1]", "must be text"),
        (["ls\0"], "argv[0]", "without NUL"),
        (["no-such-program-at-all"], "argv[0]", "no program 'no-such-program-at-all' on PATH"),
        (["./nowhere"], "argv[0]", "there is no program"),
        (["/"], "argv[0]", "is a directory"),
        (["./plain"], "argv[0]", "is not executable"),
        (["./odd"], "argv[0]", "cannot be run: .*interpreter"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_by_name(
    tmp_path: Path, argv: list[str], where: str, said: str
) -> None:
    (tmp_path / "plain").write_text("text")
    (tmp_path / "odd").write_text("#!/nowhere/at/all\n")
    (tmp_path / "odd").chmod(0o755)
    with pytest.raises(allswell.Refused, match=said) as caught:
        allswell.run_tool_sync(argv, cwd=tmp_path)
    assert caught.value.where == where
    with pytest.raises(allswell.Refused, match=said):
        asyncio.run(allswell.run_tool(argv, cwd=tmp_path))


@pytest.mark.parametrize(
    "more, where",
    [
        ({"cwd": "/no/such/folder"}, "cwd"),
        ({"cwd": "/dev/null"}, "cwd"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": 3}}, "env"),
        ({"timeout": "banana"}, "timeout"),
        ({"timeout": "2h"}, "timeout"),
        ({"output": allswell.Output(folder="/no/such/folder")}, "output.folder"),
        ({"output": allswell.Output(cap=-1)}, "output.cap"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(more: dict[str, object], where: str) -> None:
    with pytest.raises(allswell.Refused) as caught:
        allswell.run_tool_sync(["true"], **more)  # type: ignore[arg-type]
    assert caught.value.where == where


def test_a_working_directory_that_is_gone_is_refused(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = "import os; from allswell import run_tool_sync; os.rmdir(os.getcwd()); run_tool_sync(['true'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=gone, capture_output=True, text=True, check=False)
    assert "working directory of this process is gone" in done.stderr


def test_a_command_that_is_too_long_is_refused() -> None:
    with pytest.raises(allswell.Refused, match="too long"):
        allswell.run_tool_sync(["true", "x" * (os.sysconf("SC_ARG_MAX") * 4)])


def test_other_systems_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allswell.runtime.process.handle.KEEPER", WardenKeeper())
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(allswell.Refused, match="only Linux has; this is darwin"):
        allswell.run_tool_sync(["true"])


def test_an_interrupted_program_leaves_nobody(tmp_path: Path, tag: dict[str, str]) -> None:
    """Ctrl-C in sync code."""
    script = "import sys, allswell; allswell.run_tool_sync(['sh', '-c', sys.argv[1]], env={'TAG': sys.argv[2]})"
    process = subprocess.Popen(
        [sys.executable, "-c", script, IGNORING, tag["TAG"]], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until((tmp_path / "ready").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert said.endswith("KeyboardInterrupt\n")
