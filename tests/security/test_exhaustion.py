"""What an agent makes in its folder costs its supervisor, which watches others too, a bounded time and memory."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.ids import AgentId, Millis, TaskId, Token
from allswell.domain.receipts.snapshot import OmissionReason, SnapshotLimits
from allswell.runtime.attempt import End, InFlightRecord, orphans, progress, record, runner, settle, take_off
from allswell.runtime.attempt.progress import FolderComparison
from allswell.runtime.process.identity import new_record
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace import git as calls_of_git
from allswell.runtime.workspace import snapshot, survey, worktree
from allswell.runtime.workspace.baseline import take_baseline
from allswell.runtime.workspace.files import FOLDER, remove_tree
from allswell.runtime.workspace.snapshot import take
from allswell.runtime.workspace.worktree import make_worktree
from tests import patience
from tests.runtime.attempt.stage import stage
from tests.runtime.supervisor.stage import Night, night
from tests.runtime.workspace.repository import files_in, git, make, write

HASTY = SnapshotLimits(timeout=500, git_timeout=30_000)
MEASURED = """
import sys
from allswell.runtime.workspace.snapshot import take
kept = take(sys.argv[1], "t_1", 1, reason="test")
with open("/proc/self/status") as status:  # and not `getrusage`, which counts what its parent had at the fork
    print(next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM:")), kept.kind)
"""


@pytest.fixture(autouse=True)
def bare_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Callable[[Path, int], None]]:
    """Makes so many folders within each other, with a file in the last one."""
    made: list[Path] = []

    def make_deep(folder: Path, levels: int) -> None:
        made.append(folder)
        folder.mkdir(parents=True)
        opened = os.open(folder, FOLDER)
        for _ in range(levels):
            os.mkdir("d", dir_fd=opened)
            deeper = os.open("d", FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
        os.close(opened)

    yield make_deep
    for place in (*made, tmp_path / ".allswell"):  # pytest's own way calls itself for each level
        if place.exists():
            remove_tree(place)


def test_the_indexes_of_repositories_inside_take_no_memory(tmp_path: Path) -> None:
    """Five of a gigabyte each, without content, took five gigabytes of the supervisor, and 800 KB of the disk."""
    repo = make(tmp_path / "repo", a="a")
    for number in range(3):
        inside = make(repo / f"inside{number}", b="b")
        os.truncate(inside / ".git" / "index", 200 << 20)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, repo], capture_output=True, text=True, timeout=120, check=True
    )
    megabytes, kind = done.stdout.split()
    assert (int(megabytes) < 150, kind) == (True, "git")
    kept = take(repo, "t_1", 1, reason="test")
    names = git(repo, "ls-tree", "-r", "--name-only", kept.id).split()
    assert {b"inside0/b", b"inside1/b", b"inside2/b"} <= set(names)


def test_what_git_answers_is_not_held_in_memory_whatever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million files with names of 4 KB were four gigabytes of names."""
    repo = make(tmp_path / "repo", a="a")
    for number in range(100):
        write(repo, f"{'x' * 200}{number}", "")
    monkeypatch.setattr(calls_of_git, "_ANSWER_MOST", 10_000)
    kept = take(repo, "t_1", 1, reason="test")
    assert (kept.kind, kept.whole) == ("folder", True)
    assert any("more than" in note for note in kept.notes)
    assert "to say" in take_baseline(tmp_path / "store", repo, "t_1", 1).cut


def test_names_are_not_held_in_memory_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        write(tmp_path / "work" / f"folder{number}", "x" * 200, "")
    monkeypatch.setattr(survey, "_NAMES_MOST", 10_000)
    kept = take(tmp_path / "work", "t_1", 1, reason="test", home=tmp_path / ".allswell")
    assert 0 < len(files_in(Path(kept.name) / "files")) < 100
    assert [one.why for one in kept.left_out] == [OmissionReason.OUT_OF_TIME]


def test_folders_within_each_other_are_looked_into_for_as_long_as_there_is_time(
    tmp_path: Path, deep: Callable[[Path, int], None]
) -> None:
    """Each is opened from the top; 20,000 of them held an attempt's end up for hours, and its tree stood still."""
    deep(tmp_path / "work", 4_000)
    assert "no time" in take_baseline(tmp_path / "store", tmp_path / "work", "t_1", 1, bounds=HASTY).cut
    for _ in range(2):
        kept = take(tmp_path / "work", "t_1", 1, reason="test", limits=HASTY, home=tmp_path / ".allswell")
        assert [one.why for one in kept.left_out] == [OmissionReason.OUT_OF_TIME]


@pytest.fixture
def few_calls() -> Iterator[None]:
    """Python calls itself 200 times from here, and not 1,000 times: each folder that is kept takes a flush."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    yield
    sys.setrecursionlimit(usual)


@pytest.mark.usefixtures("few_calls")
def test_what_lies_deep_is_kept(tmp_path: Path, deep: Callable[[Path, int], None]) -> None:
    """More folders within each other than Python calls itself."""
    deep(tmp_path / "work", 300)
    kept = take(tmp_path / "work", "t_1", 1, reason="test", home=tmp_path / ".allswell")
    assert kept.whole


@pytest.mark.usefixtures("few_calls")
def test_a_worktree_with_folders_within_each_other_is_removed(
    tmp_path: Path, deep: Callable[[Path, int], None]
) -> None:
    """The task was begun anew each minute, since its worktree could not be removed."""
    repo = make(tmp_path / "repo", a="a")
    tree = make_worktree(repo, tmp_path / "trees", "t_1", "test")
    deep(tree.path / "ignored", 300)
    tree.remove(with_branch=True)
    assert not tree.path.exists()
    assert git(repo, "branch", "--list", "allswell/*") == b""


def test_folders_without_files_are_counted_where_a_folder_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, scan = list[object](), os.scandir

    def scandir(place: Path) -> object:
        looked.append(place)
        return scan(place)

    for number in range(50):
        (tmp_path / "work" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", scandir)
    FolderComparison(tmp_path / "work", most=10).look()
    assert len(looked) == 10


def test_long_names_are_not_held_in_memory_where_a_folder_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        write(tmp_path / "work", f"{'x' * 200}{number}", "")
    monkeypatch.setattr(progress, "_NAMES_MOST", 10_000)
    assert len(FolderComparison(tmp_path / "work").look()) < 50


# A folder that does not answer: it lies on a disk that is gone, or an agent has mounted a file system there that is
# served by a process of its own, which stands still with its tree, or never meant to answer.

DENIED = Path(__file__).parents[1] / "clients" / "captured" / "claude-denied.jsonl"


def test_a_folder_that_answers_only_when_its_agent_is_gone_keeps_nobody_from_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a limit nor a second Ctrl-C ended the agent, and its supervisor could not be ended either."""
    gone = threading.Event()

    def held(do: Callable[..., object]) -> Callable[..., object]:
        def wait(*args: object, **more: object) -> object:
            gone.wait(patience.SECONDS)
            return do(*args, **more)

        return wait

    monkeypatch.setattr(FolderComparison, "look", held(FolderComparison.look))
    monkeypatch.setattr(snapshot, "take", held(take))
    monkeypatch.setattr(progress, "LOOK_MOST", 0.1)

    async def main() -> None:
        async with stage(tmp_path) as here:
            limit = property(lambda _: 0.1 if here.living() else patience.SECONDS)
            monkeypatch.setattr(runner.AttemptRunner, "_folder_limit", limit)
            attempt = await here.shell("echo new >new; exec sleep 600", timeout=700)
            running = asyncio.ensure_future(attempt.run())
            await here.until(here.living)
            await here.until(lambda: not here.living())
            gone.set()
            outcome = await running
            assert outcome.end is End.TIMEOUT
            assert outcome.receipt is not None
            assert [change.path for change in outcome.receipt.changed] == ["new"], (
                "what was given up went on, and kept it"
            )

    asyncio.run(main())


def test_no_loop_looks_into_a_folder_and_one_that_never_answers_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor of many agents stood still for ever where one of them had `.git` not answer."""
    never, threads = threading.Event(), list[str]()

    def find_top(folder: Path) -> Path | None:
        threads.append(threading.current_thread().name)
        never.wait(patience.SECONDS)
        return calls_of_git.find_top(folder)

    monkeypatch.setattr(record, "find_top", find_top)
    monkeypatch.setattr(runner, "FOLDER_ANSWERS", 0.1)

    async def main() -> None:
        async with stage(tmp_path) as here:
            monkeypatch.setattr(record, "find_top", calls_of_git.find_top)
            attempt = await here.shell(f"cat {DENIED}; exit 1")
            attempt.before_start = lambda: monkeypatch.setattr(record, "find_top", find_top)
            outcome = await attempt.run()
            never.set()
            assert "did not answer for 0.1 s" in outcome.denied.work
            assert not any("MainThread" in name for name in threads)

    asyncio.run(main())


def test_no_supervisor_looks_into_a_worktree_on_its_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[str]()
    places = ("git_dir_of", "head_text", "head_of")
    for name in places:
        looked = getattr(worktree, name)

        def look(path: object, *more: object, looked: Callable[..., object] = looked) -> object:
            threads.append(threading.current_thread().name)
            return looked(path, *more)

        monkeypatch.setattr(worktree, name, look)
    repo = make(tmp_path / "repo", a="a")
    spec = AgentSpec(name="agent", command=("sh", "-c", "{payload}"), worktree=True, grace=500)

    async def scene(night: Night) -> None:
        assert (await night.ended(await night.watch.submit("work", payload="echo new >new"))).state == "done"

    night(repo, scene, spec)
    assert threads
    assert "MainThread" not in threads


def test_a_start_goes_on_past_the_folder_of_a_dead_attempt_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(snapshot, "take", lambda *_, **__: never.wait(patience.SECONDS))
    monkeypatch.setattr(orphans, "_ALL_ANSWERS", 0.1)
    home = StateDir(tmp_path / ".allswell")
    left = InFlightRecord(
        task=TaskId("t_a"),
        name="job",
        attempt=1,
        token=Token(1),
        agent=AgentId("ada"),
        began_at=Millis(1_000),
        folder=str(make(tmp_path / "repo", a="a")),
        record=new_record("none"),
    )
    take_off(home.attempts, left).close()
    (settled,) = settle(home)
    never.set()
    assert settled.receipt.status is End.ORPHANED
    assert any("was not waited for" in warning for warning in settled.receipt.warnings)
    settled.clear()


def test_a_git_that_answers_without_a_pause_has_no_longer_than_any_other(tmp_path: Path) -> None:
    """Where root has git run as the owner of a repository, that owner can trace it, and answer in its place."""
    git_program = tmp_path / "git"
    git_program.write_text("#!/bin/sh\nwhile :; do printf x; done\n")
    git_program.chmod(0o755)
    repo = make(tmp_path / "repo", a="a")
    with calls_of_git.git_of(repo, 60_000) as called:
        called.timeout = 300
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(calls_of_git, "_program", lambda: str(git_program))
            with pytest.raises(calls_of_git.GitFailed, match="did not answer within 300 ms"):
                called.run("status")
