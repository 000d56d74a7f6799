"""A repository whose configuration an agent writes while we work in it: nothing that it names is ever run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from allswell.domain.receipts.snapshot import SnapshotLimits
from allswell.runtime.workspace.baseline import changes_since, take_baseline
from allswell.runtime.workspace.diff import difference
from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import changed_files, list_snapshots, take
from allswell.runtime.workspace.worktree import make_worktree
from tests.runtime.workspace.repository import files_in, git, make, write

HOSTILE = """
[core]
\tfsmonitor = {spy}
\thooksPath = {hooks}
\tsshCommand = {spy}
\tpager = {spy}
\teditor = {spy}
\talternateRefsCommand = {spy}
\tgitProxy = {spy}
\taskPass = {spy}
[filter "spy"]
\tclean = {spy}
\tsmudge = {spy}
\tprocess = {spy}
\trequired = true
[diff]
\texternal = {spy}
[diff "spy"]
\ttextconv = {spy}
\tcommand = {spy}
[merge "spy"]
\tdriver = {spy}
[commit]
\tgpgSign = true
[tag]
\tgpgSign = true
[gpg]
\tprogram = {spy}
[credential]
\thelper = {spy}
[interactive]
\tdiffFilter = {spy}
[uploadpack]
\tpackObjectsHook = {spy}
[submodule]
\trecurse = true
[submodule "inside"]
\tupdate = !{spy}
[alias]
\tconfig = !{spy}
\tcommit-tree = !{spy}
"""


@pytest.fixture
def spied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which every program that a configuration can name tells when it runs, by a file `ran`.

    The `git` that is found first writes that configuration anew before every call, as a second agent would.
    """
    repo = make(tmp_path / "repo", a="a", **{".gitattributes": "* filter=spy diff=spy merge=spy text\n"})
    inside = make(repo / "inside", b="b")
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\nenv >>{tmp_path}/ran\necho "$0 $*" >>{tmp_path}/ran\nexec cat\n')
    spy.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    names = ("post-index-change", "reference-transaction", "pre-commit", "post-commit", "post-checkout", "pre-auto-gc")
    for hook in names:
        (hooks / hook).symlink_to(spy)
    config = tmp_path / "hostile"
    config.write_text(HOSTILE.format(spy=spy, hooks=hooks))
    for place in (repo, inside):
        with (place / ".git" / "config").open("a") as into:
            into.write(f"[include]\n\tpath = {config}\n")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    real = shutil.which("git")
    shim = bin_ / "git"
    shim.write_text(
        f"#!/bin/sh\ncp {config} {tmp_path}/home/.gitconfig\n"
        f"for place in {repo} {inside}; do cat {config} >>$place/.git/config; done\n"
        f'[ -z "$SECRET" ] || echo told >>{tmp_path}/ran\nexec {real} "$@"\n'
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{bin_}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET", "of the supervisor")
    write(repo, "git", f"#!/bin/sh\nexec {spy}\n", 0o755)
    return repo


def test_nothing_that_a_configuration_names_is_run_even_if_it_is_written_between_two_calls(
    spied: Path, tmp_path: Path
) -> None:
    write(spied, "a", "changed")
    write(spied, "new", "new")
    write(spied, "inside/b", "changed too")
    kept = take(spied, "t_1", 1, reason="test")
    assert kept.kind == "git"
    assert kept.whole
    assert {one.path for one in changed_files(kept)} == {"a", "new", "git", "inside/b"}
    assert [one.id for one in list_snapshots(spied)] == [kept.id]
    into = tmp_path / "back"
    recover(kept, into=into)
    assert files_in(into)[b"inside/b"][2] == b"changed too"
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_nor_by_a_worktree_that_is_made_and_removed_nor_by_a_baseline(spied: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    tree = make_worktree(spied, place / "worktrees", "t_1")
    assert tree.own_git_dir().is_dir()
    tree.remove(with_branch=True)
    assert not tree.path.exists()
    then = take_baseline(place, spied, "t_1", 1, bounds=SnapshotLimits(timeout=60_000, git_timeout=60_000))
    assert then.whole
    write(spied, "a", "changed")
    write(spied, "inside/b", "changed too")
    assert {one.path for one in changes_since(then).changed} == {"a", "inside/b"}
    now = take_baseline(place, spied, "t_1", 1, bounds=SnapshotLimits(timeout=60_000, git_timeout=60_000), end=True)
    assert b"+changed too" in difference((place, then), (place, now)).text
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_a_worktree_is_made_without_the_configuration_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From git 2.54 on it names hooks itself (`hook.NAME.command`), which `core.hooksPath` does not switch off."""
    repo = make(tmp_path / "repo", a="a", b="b")
    git(repo, "sparse-checkout", "set", "--no-cone", "/a")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "git").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nexec {shutil.which("git")} "$@"\n')
    (bin_ / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    tree = make_worktree(repo, tmp_path / "store" / "worktrees", "t_1")
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if " worktree add " in line]
    assert len(calls) == 1
    assert str(repo / ".git") not in calls[0]
    monkeypatch.undo()
    git(tree.path, "reset", "--hard", "-q")
    assert sorted(path.name for path in tree.path.iterdir()) == [".git", "a"], "as sparse as what it was made of"
    assert str(tree.path) in git(repo, "worktree", "list").decode()
    tree.remove(with_branch=True)
    assert git(repo, "worktree", "list").decode().count("\n") == 1


def test_what_has_no_end_in_the_place_of_the_index_is_not_copied(tmp_path: Path) -> None:
    """It filled the disk, and no signal ended that."""
    repo = make(tmp_path / "repo", a="a")
    write(repo, "a", "changed")
    (repo / ".git" / "index").unlink()
    (repo / ".git" / "index").symlink_to("/dev/zero")
    kept = take(repo, "t_1", 1, reason="test")
    assert (kept.kind, kept.whole) == ("folder", True)
    bounds = SnapshotLimits(timeout=60_000, git_timeout=60_000)
    assert "index" in take_baseline(tmp_path / "store", repo, "t_1", 1, bounds=bounds).cut
