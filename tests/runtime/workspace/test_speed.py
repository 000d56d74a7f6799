"""Fifty thousand files that have not changed cost no more than a look at each."""

import os
import time
from pathlib import Path

import pytest

from allswell.runtime.workspace.snapshot import take
from tests.runtime.workspace.repository import git, make, picture, write


def _big(repo: Path, files: int) -> Path:
    make(repo)
    for number in range(files):
        write(repo, f"d{number // 100}/f{number}", f"file {number}\n" * 10)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "all of them")
    git(repo, "update-index", "--refresh")
    return repo


def _objects(repo: Path) -> int:
    return int(git(repo, "count-objects").split()[0])


def _spent() -> float:
    """Seconds of processor time of this process and of those it has waited for, as git's are."""
    return sum(os.times()[:4])


def test_what_has_not_changed_is_neither_read_nor_stored_again(tmp_path: Path) -> None:
    repo = _big(tmp_path / "repo", 5_000)
    write(repo, "d3/f300", "changed\n")
    before, objects = picture(repo), _objects(repo)
    began = _spent()
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert _spent() - began < 3
    # The file, its two trees, the particulars (text, index, tree, commit), the commit; and one tree that was staged.
    assert _objects(repo) - objects <= 9
    objects = _objects(repo)
    assert take(repo, "t_1", 1, reason="again") == snapshot
    assert _objects(repo) == objects
    assert picture(repo) == before


@pytest.mark.realtime
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fifty_thousand_unchanged_files_take_under_three_seconds(tmp_path: Path) -> None:
    repo = _big(tmp_path / "repo", 50_000)
    git(repo, "repack", "-adq")  # as a clone is, and as `git gc --auto` leaves it beyond some thousand objects
    began = time.monotonic()
    take(repo, "t_1", 1, reason="a test")
    assert time.monotonic() - began < 3
