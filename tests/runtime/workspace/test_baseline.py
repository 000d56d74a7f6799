"""What was in a folder when an attempt began, and what is told of it later: in real repositories and without git."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from allswell.domain.receipts.snapshot import SnapshotLimits
from allswell.runtime.workspace import baseline
from allswell.runtime.workspace.baseline import Baseline, before, changes_since, read_baseline, take_baseline
from allswell.runtime.workspace.diff import difference
from tests.runtime.workspace.repository import git, make, picture, write


@pytest.fixture(autouse=True)
def bare_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store" / "baselines"


def begin(place: Path, folder: Path, **bounds: int) -> Baseline:
    """A baseline as it is read back after a restart."""
    made = take_baseline(
        place, folder, "t_1", 1, bounds=SnapshotLimits(**{"timeout": 60_000, "git_timeout": 60_000, **bounds})
    )
    assert read_baseline(place, "t_1", 1) == made
    return made


def told(then: Baseline) -> set[str]:
    return {f"{one.how} {one.path}" for one in changes_since(then).changed}


def test_in_a_repository_only_what_changed_since_the_beginning_is_told(tmp_path: Path, place: Path) -> None:
    names = ("clean", "dirty", "staged", "gone", "later", "touched", "undone", "both", "mine")
    repo = make(tmp_path / "repo", **dict.fromkeys(names, "as committed\n"), **{".gitignore": "*.log\n"})
    for name in ("dirty", "both", "undone"):
        write(repo, name, "mine, not committed\n")
    write(repo, "staged", "staged by me\n")
    git(repo, "add", "staged")
    (repo / "gone").unlink()
    for name in ("note of mine", "old", "folder/ü\nnew\\line"):
        write(repo, name, "untracked before\n")
    index = (repo / ".git" / "index").read_bytes()
    then = begin(place, repo / "folder")
    assert then.whole
    assert (repo / ".git" / "index").read_bytes() == index
    assert told(then) == set()

    write(repo, "clean", "by the attempt\n")
    write(repo, "both", "by the attempt over mine\n")
    write(repo, "undone", "as committed\n")
    write(repo, "gone", "back again\n")
    (repo / "later").unlink()
    (repo / "old").unlink()
    os.utime(repo / "touched")
    os.utime(repo / "note of mine")
    (repo / "mine").chmod(0o755)
    write(repo, "noise.log", "ignored\n")
    write(repo, "new", "by the attempt\n")
    expected = {"M clean", "M both", "M undone", "A gone", "D later", "D old", "M mine", "A new"}
    assert told(then) == expected
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "the attempt commits all of it, and what was there before")
    assert told(then) == expected
    assert changes_since(then).since == "began"

    was = before(place, then, "both")
    assert (was.where, was.content, was.kind) == ("kept", b"mine, not committed\n", "100644")
    assert before(place, then, "old").content == b"untracked before\n"
    assert before(place, then, "clean").where == "head"
    assert before(place, then, "new").where == "absent"
    assert before(place, then, "gone").where == "absent"


def test_before_the_first_commit_and_with_repositories_inside(tmp_path: Path, place: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    write(repo, "a", "a")
    make(repo / "inside", b="b", c="c")
    write(repo, "inside/c", "dirty")
    then = begin(place, repo)
    write(repo, "inside/b", "changed")
    write(repo, "inside/new", "new")
    write(repo, "d", "d")
    assert told(then) == {"M inside/b", "A inside/new", "A d"}
    assert before(place, then, "inside/c").content == b"dirty"


def test_beyond_the_bounds_it_says_since_head(tmp_path: Path, place: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    for number in range(5):
        write(repo, f"untracked {number}", "x" * number)
    then = begin(place, repo, max_files=3)
    found = changes_since(then)
    assert (then.whole, found.since) == (False, "head")
    assert "more than 3 files" in found.gap
    big = begin(place, repo, max_file=2)
    assert big.whole  # known by size and times, without the bytes
    assert before(place, big, "untracked 4").where == "unknown"
    write(repo, "untracked 4", "yyyy")
    assert told(big) == {"M untracked 4"}


def test_git_that_does_not_answer_costs_the_bound_and_no_more(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(tmp_path, "bin/git", "#!/bin/sh\nexec sleep 100\n", 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    began = time.monotonic()
    then = begin(place, repo, git_timeout=50)
    assert time.monotonic() - began < 30
    assert not then.whole
    assert then.head is not None


def test_without_git_every_file_is_noted_and_compared(tmp_path: Path, place: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("same", "changed", "deleted"):
        write(folder, name, "before\n")
    (folder / "link").symlink_to("same")
    os.mkfifo(folder / "pipe")
    then = begin(place, folder)
    assert told(then) == set()
    write(folder, "changed", "after\n")
    (folder / "deleted").unlink()
    (folder / "link").unlink()
    (folder / "link").symlink_to("changed")
    write(folder, "new", "new\n")
    assert told(then) == {"M changed", "D deleted", "M link", "A new"}
    assert before(place, then, "deleted").content == b"before\n"
    assert before(place, then, "link").content == b"same"
    few = begin(place, folder, max_files=1)
    assert changes_since(few).since == "time"


def test_the_difference_of_beginning_and_end_is_shown_and_can_be_applied(tmp_path: Path, place: Path) -> None:
    repo = make(tmp_path / "repo", clean="a\nb\n", mine="a\n", gone="g\n")
    make(repo / "inside", lib="l\n")
    write(repo, "mine", "a\nmine\n")
    write(repo, "big", "x" * 100)
    write(repo, "inside/own", "o\n")
    then = begin(place, repo, max_file=50)
    write(repo, "clean", "a\nB\n")
    write(repo, "mine", "a\nmine\nits\n")
    write(repo, "new", "new\n", 0o755)
    write(repo, "big", "y" * 100)
    write(repo, "inside/lib", "L\n")
    (repo / "gone").unlink()
    git(repo, "commit", "-qam", "half of it is committed")
    bounds = SnapshotLimits(timeout=60_000, git_timeout=60_000, max_file=50)
    now = take_baseline(place, repo, "t_1", 1, bounds=bounds, end=True)
    assert read_baseline(place, "t_1", 1, end=True) == now
    assert read_baseline(place, "t_1", 1) == then
    before_ = picture(repo)
    found = difference((place, then), (place, now))
    assert picture(repo) == before_, "nothing is written into the repository"
    assert {f"{one.how} {one.path}" for one in found.changed} == {
        *("M clean", "M mine", "A new", "M big", "M inside/lib", "D gone"),
    }
    assert found.unshown == ("big",)
    assert b"+its\n" in found.text
    assert b"+mine" not in found.text
    copy = tmp_path / "copy"
    for name, text in (("clean", "a\nb\n"), ("mine", "a\nmine\n"), ("gone", "g\n"), ("inside/lib", "l\n")):
        write(copy, name, text)
    (tmp_path / "patch").write_bytes(found.text)
    git(copy, "apply", str(tmp_path / "patch"))
    assert (copy / "mine").read_text() == "a\nmine\nits\n"
    assert (copy / "new").stat().st_mode & 0o100
    assert not (copy / "gone").exists()
    assert b"clean  " in difference((place, then), (place, now), stat=True).text

    folder = tmp_path / "no git"
    write(folder, "a", "a\n")
    then = begin(place, folder)
    write(folder, "a", "b\n")
    now = begin(place, folder)
    assert b"-a\n+b\n" in difference((place, then), (place, now)).text


def test_contents_that_nobody_asks_for_make_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "_ROOM", 3_000)
    monkeypatch.setattr(baseline, "_LOOKED_AFTER", "0")
    digests = [baseline.keep_content(place, b"%d" % number * 200) for number in range(10_000, 10_100)]
    kept = [digest for digest in digests if baseline.content(place, digest) is not None]
    looked = max(number for number, digest in enumerate(digests) if digest.startswith("0"))
    assert len(digests) - looked - 1 <= len(kept) <= len(digests) - looked + 2


def test_an_end_without_its_git_is_told_of_the_same_folder(tmp_path: Path, place: Path) -> None:
    repo = make(tmp_path / "repo", a="a\n")
    git(repo, "worktree", "add", "-q", str(repo / "tree"))
    then = begin(place, repo / "tree")
    (repo / "tree" / ".git").unlink()
    write(repo / "tree", "b", "b\n")
    now = take_baseline(place, repo / "tree", "t_1", 1, end=True)
    assert now.folder == then.folder
    assert [(one.how, one.path) for one in difference((place, then), (place, now)).changed] == [("A", "b")]
