"""Whatever state a repository is in: a snapshot changes nothing, misses nothing, and gives every file back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allswell.runtime.workspace.recover import recover
from allswell.runtime.workspace.snapshot import take
from tests.runtime.workspace.repository import files_in, git, make, picture, write
from tests.runtime.workspace.situations import SITUATIONS, Situation, corrupt_index, rebase_in_progress, special_files


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_a_snapshot_changes_nothing_and_gives_every_file_back(situation: Situation, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    ignored = situation(repo) or ()
    corrupt = situation is corrupt_index
    before = files_in(repo) if corrupt else picture(repo)

    snapshot = take(repo, "t_1", 1, reason="a test")
    assert (files_in(repo) if corrupt else picture(repo)) == before
    assert snapshot.kind == "git"
    assert {one.why for one in snapshot.left_out} <= ({"special"} if situation is special_files else set())

    again = take(repo, "t_1", 1, reason="another test")
    assert again == snapshot

    recovered = recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == files_in(repo, but=ignored)
    assert recovered.conflicts == ()
    assert not list((repo / ".git").glob("fast_import_crash*"))
    # Nothing that the snapshot needs hangs in the air.
    git(repo, "fsck", "--connectivity-only", snapshot.id)


def test_a_snapshot_survives_gc_and_what_was_only_staged_with_it(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    write(repo, "a", "staged and nowhere else")
    git(repo, "add", "a")
    staged = git(repo, "rev-parse", ":a").decode().strip()
    write(repo, "a", "and changed")
    snapshot = take(repo, "t_1", 1, reason="a test")
    git(repo, "reset", "-q", "--hard")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "cat-file", "blob", staged) == b"staged and nowhere else"
    recover(snapshot, into=tmp_path / "back")
    assert (tmp_path / "back" / "a").read_text() == "and changed"


def test_the_index_is_kept_to_the_byte_and_both_sides_of_a_conflict_too(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    rebase_in_progress(repo)
    snapshot = take(repo, "t_1", 1, reason="a test")
    assert git(repo, "cat-file", "blob", f"{snapshot.id}^2:index") == (repo / ".git" / "index").read_bytes()
    assert git(repo, "cat-file", "blob", f"{snapshot.id}^2:conflict/2/a") == b"side\n"
    assert git(repo, "cat-file", "blob", f"{snapshot.id}^2:conflict/3/a") == b"trunk\n"


def test_the_work_of_a_removed_worktree_is_still_there(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    make(tmp_path / "tree" / "cloned", lib="l")
    write(tmp_path / "tree", "a", "changed")
    snapshot = take(tmp_path / "tree", "t_1", 1, reason="a test")
    there = files_in(tmp_path / "tree")
    git(repo, "worktree", "remove", "--force", "--force", str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    recover(snapshot, into=tmp_path / "back")
    assert files_in(tmp_path / "back") == there


def test_nothing_of_the_repository_is_run(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a", **{".gitattributes": "* filter=spy\n"})
    script = tmp_path / "spy"
    write(tmp_path, "spy", f"#!{sys.executable}\nopen({str(tmp_path / 'ran')!r}, 'a').write('x')\n", 0o755)
    for hook in ("post-index-change", "reference-transaction", "pre-commit", "post-commit", "fsmonitor-watchman"):
        write(repo / ".git" / "hooks", hook, script.read_bytes(), 0o755)
    for key in ("core.fsmonitor", "filter.spy.clean", "filter.spy.smudge", "filter.spy.process", "core.sshCommand"):
        git(repo, "config", key, str(script))
    git(repo, "config", "core.hooksPath", ".git/hooks")
    (tmp_path / "ran").unlink(missing_ok=True)
    write(repo, "a", "b")  # as young as the index, so that git compares contents
    snapshot = take(repo, "t_1", 1, reason="a test")
    recover(snapshot, apply=True)
    assert not (tmp_path / "ran").exists()


def test_the_callers_environment_does_not_mislead_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make(tmp_path / "repo", a="a")
    other = make(tmp_path / "other", b="b")
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other),
        "GIT_LITERAL_PATHSPECS": "0",
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
    }.items():
        monkeypatch.setenv(name, value)
    before = picture(other)
    recover(take(repo, "t_1", 1, reason="a test"), into=tmp_path / "back")
    assert files_in(tmp_path / "back") == files_in(repo)
    assert picture(other) == before


def test_from_a_folder_inside_the_whole_working_tree_is_taken(tmp_path: Path) -> None:
    repo = make(tmp_path / "repo", a="a", **{"in/b": "b"})
    write(repo, "new", "n")
    assert take(repo / "in", "t_1", 1, reason="a test") == take(repo, "t_1", 1, reason="a test")
