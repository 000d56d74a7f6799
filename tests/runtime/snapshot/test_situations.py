"""Whatever state a repository is in: a snapshot changes nothing, misses nothing, and gives every file back."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allswell.runtime.snapshot import recover, take
from tests.runtime.snapshot.repository import files_in, git, make, picture, write

Situation = Callable[[Path], tuple[bytes, ...] | None]


def nothing_changed(repo: Path) -> None:
    make(repo, a="a\n", b="b\n")


def no_commits(repo: Path) -> None:
    repo.mkdir()
    git(repo, "init", "-q")
    write(repo, "new", "new")


def staged_unstaged_untracked_deleted(repo: Path) -> tuple[bytes, ...]:
    make(
        repo,
        staged="1",
        both="1",
        unstaged="1",
        deleted="1",
        removed="1",
        moved="some content\n",
        **{".gitignore": "no/\n*.o\n"},
    )
    write(repo, "staged", "2")
    write(repo, "both", "2")
    git(repo, "add", "staged", "both")
    git(repo, "rm", "-q", "removed")
    git(repo, "mv", "moved", "here")
    write(repo, "both", "3")
    write(repo, "unstaged", "2")
    write(repo, "untracked/deep/down", "u")
    write(repo, "empty", "")
    write(repo, "added", "a")
    git(repo, "add", "-N", "added")
    (repo / "deleted").unlink()
    write(repo, "no/ignored", "i")
    write(repo, "x.o", "i")
    return (b"no/", b"x.o")


def binary_and_line_endings(repo: Path) -> None:
    make(
        repo,
        **{".gitattributes": "*.txt text\n*.auto text=auto eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n"},
    )
    git(repo, "config", "core.autocrlf", "true")
    write(repo, "a.txt", b"one\r\ntwo\r\n")
    write(repo, "b.auto", b"one\r\ntwo\n")
    write(repo, "c.id", b"$Id: something that was expanded $\n")
    write(repo, "d.u16", "sixteen".encode("utf-16"))
    write(repo, "e", b"plain\r\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "all kinds")
    write(repo, "new.txt", b"\r\n\r\n")
    write(repo, "bytes", bytes(range(256)) * 40)
    write(repo, "more.txt", b"\xff\x00\r\n\r")


def settings_changed_after_the_add(repo: Path) -> None:
    """The index says clean, no attribute says otherwise, and the blob is still not what is on disk."""
    make(repo)
    git(repo, "config", "core.autocrlf", "input")
    write(repo, "a", b"one\r\ntwo\r\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "converted")
    git(repo, "config", "core.autocrlf", "false")


def modes_and_links(repo: Path) -> None:
    make(repo, plain="p", run="r", swap="s", **{"dir/in": "i"})
    (repo / "run").chmod(0o755)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "executable")
    git(repo, "config", "core.fileMode", "false")
    (repo / "plain").chmod(0o755)
    write(repo, "secret", "s", 0o600)
    write(repo, "odd", "s", 0o4711)
    write(repo, "shut", "s", 0o000)
    (repo / "swap").unlink()
    (repo / "swap").symlink_to("plain")
    (repo / "nowhere").symlink_to("does/not/exist")
    (repo / "out").symlink_to("/etc")
    (repo / "dir" / "in").unlink()
    (repo / "dir").rmdir()
    (repo / "dir").symlink_to(".")  # dir/in is gone now, although a path of that name could be opened
    write(repo, "in", "not dir/in")


def folder_for_file_and_back(repo: Path) -> None:
    make(repo, was_file="f", **{"was_dir/x": "x", "was_dir/y": "y"})
    (repo / "was_file").unlink()
    write(repo, "was_file/now", "n")
    (repo / "was_dir" / "x").unlink()
    (repo / "was_dir" / "y").unlink()
    (repo / "was_dir").rmdir()
    write(repo, "was_dir", "file now")


def names(repo: Path) -> None:
    make(repo)
    for name in (
        b"new\nline",
        b'"quotes"',
        b"tab\t",
        b"\xff\xfe not utf-8",
        b"back\\slash",
        b"-dash",
        b":colon",
        b" ",
        b"\xc3\xa9",
        b"*",
        b"\\x41",
        b"deep\n/\xff/x",
        b"a" * 255,
    ):
        write(repo, name, name)
    git(repo, "add", "-A")
    for name in (b"other\nline", b"\xfd", b"git~1", b".gitmodules "):
        write(repo, name, name)
    write(repo, b"\xff\xfe not utf-8", "changed")


def special_files(repo: Path) -> None:
    make(repo, a="a", pipe="a file once")
    os.mkfifo(repo / "fifo")
    (repo / "pipe").unlink()
    os.mkfifo(repo / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(repo)  # a socket's path may be only so long
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)


def filter_that_is_missing(repo: Path) -> None:
    make(repo, **{".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    git(repo, "-c", "filter.lfs.clean=tr a-z n-za-m", "add", "-A")
    write(repo, "same-length.bin", "content")
    git(repo, "-c", "filter.lfs.clean=tr a-z n-za-m", "add", "-A")
    git(repo, "-c", "filter.lfs.clean=tr a-z n-za-m", "commit", "-qm", "a file that is not its blob")
    git(repo, "config", "filter.lfs.required", "true")
    git(repo, "config", "filter.lfs.clean", "git-lfs-that-is-not-here clean %f")
    git(repo, "config", "filter.lfs.process", "git-lfs-that-is-not-here filter-process")
    write(repo, "new.bin", "new content")


def submodules(repo: Path) -> None:
    library = make(repo.parent / "library", lib="lib\n", **{"deep/er": "x"})
    make(repo, a="a")
    git(repo, "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "submodule", "--quiet", "add", str(library), "other")
    git(repo, "submodule", "--quiet", "add", str(library), "plain")
    git(repo, "commit", "-qm", "submodules")
    write(repo, "lib/lib", "changed in the submodule")
    write(repo, "lib/untracked", "in the submodule")
    git(repo, "submodule", "--quiet", "deinit", "-f", "other", "plain")
    write(repo, "plain/file", "written where a submodule should be")


def repositories_inside(repo: Path) -> None:
    make(repo, a="a")
    make(repo / "inner", committed="c\n", **{".gitignore": "*.o\n"})
    write(repo, "inner/untracked", "u")
    git(repo, "init", "-q", "unborn")
    write(repo, "unborn/file", "f")
    make(repo / "unborn" / "deeper", way="down")
    write(repo, "broken/.git", "gitdir: /nowhere/at/all\n")
    write(repo, "broken/file", "f")
    git(repo, "worktree", "add", "-q", "trees/one", "-b", "one")
    write(repo, "trees/one/mine", "m")


def sparse(repo: Path) -> None:
    make(repo, **{"in/a": "a", "out/b": "b", "out/c": "c", "top": "t"})
    git(repo, "sparse-checkout", "set", "--cone", "in")
    write(repo, "in/a", "changed")
    write(repo, "out/new", "outside the cone")


def sparse_index(repo: Path) -> None:
    sparse(repo)
    (repo / "out" / "new").unlink()
    (repo / "out").rmdir()
    git(repo, "sparse-checkout", "reapply", "--sparse-index")


def hidden_by_flags(repo: Path) -> None:
    make(repo, assumed="1", skipped="1")
    git(repo, "update-index", "--assume-unchanged", "assumed")
    git(repo, "update-index", "--skip-worktree", "skipped")
    write(repo, "assumed", "2")
    write(repo, "skipped", "2")


def _conflict(repo: Path) -> None:
    make(repo, a="base\n", gone="g\n")
    git(repo, "checkout", "-q", "-b", "side")
    write(repo, "a", "side\n")
    git(repo, "rm", "-q", "gone")
    git(repo, "commit", "-qam", "side")
    git(repo, "checkout", "-q", "trunk")
    write(repo, "a", "trunk\n")
    write(repo, "gone", "changed\n")
    git(repo, "commit", "-qam", "trunk")


def rebase_in_progress(repo: Path) -> None:
    _conflict(repo)
    git(repo, "rebase", "side", good=(1,))
    assert (repo / ".git" / "rebase-merge").is_dir()
    write(repo, "new", "n")


def merge_in_progress(repo: Path) -> None:
    _conflict(repo)
    git(repo, "merge", "side", good=(1,))
    (repo / "a").unlink()


def held_locks(repo: Path) -> None:
    make(repo, a="a")
    write(repo, "a", "b")
    for lock in ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock"):
        write(repo / ".git", lock, "")


def detached_with_a_stash(repo: Path) -> None:
    make(repo, a="a")
    write(repo, "a", "stashed")
    git(repo, "stash")
    git(repo, "checkout", "-q", "--detach")
    write(repo, "a", "detached")


def split_index(repo: Path) -> None:
    make(repo, a="a", b="b")
    git(repo, "update-index", "--split-index")
    write(repo, "a", "changed")
    write(repo, "c", "c")


def corrupt_index(repo: Path) -> None:
    make(repo, a="a", b="b")
    write(repo, "a", "changed")
    write(repo / ".git", "index", b"DIRC\0\0 this is no index")


def sha256(repo: Path) -> None:
    repo.mkdir()
    git(repo, "init", "-q", "--object-format=sha256")
    write(repo, "a", "a")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    write(repo, "a", "b")
    write(repo, "c", "c")


def our_own_folder(repo: Path) -> tuple[bytes, ...]:
    make(repo, a="a")
    write(repo, ".allswell/allswell.db", "must not be opened")
    write(repo, "below/.allswell/allswell.db", "nor this")
    return ()


SITUATIONS: list[Situation] = [
    nothing_changed,
    no_commits,
    staged_unstaged_untracked_deleted,
    binary_and_line_endings,
    settings_changed_after_the_add,
    modes_and_links,
    folder_for_file_and_back,
    names,
    special_files,
    filter_that_is_missing,
    submodules,
    repositories_inside,
    sparse,
    sparse_index,
    hidden_by_flags,
    rebase_in_progress,
    merge_in_progress,
    held_locks,
    detached_with_a_stash,
    split_index,
    corrupt_index,
    sha256,
    our_own_folder,
]


@pytest.mark.row("F9", "F11")
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
