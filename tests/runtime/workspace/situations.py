"""Repositories in every state that an agent may leave one in; each says what of it git ignores."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.runtime.workspace.repository import git, make, write

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
    write(repo, "odd", "s", 0o711)
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
