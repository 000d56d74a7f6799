"""A git folder of ours that stands in for a repository's: its objects and refs, and not its configuration.

A repository's configuration names programs (filters, hooks, fsmonitor, external diffs, signers, helpers), an agent may
write it at any moment, and what is looked up and switched off before a call can be written again during it. So git
never reads it: it is given a folder made by us, with a configuration of three lines, in which objects, refs and rules
of what is ignored are links to the repository's. `.gitattributes` may name a filter as it likes: none is defined.

Linked are only things that git reads as data. What is not linked does not exist for it: config, config.worktree, hooks,
modules, logs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

_SHARED = (b"objects", b"refs", b"packed-refs", b"reftable", b"shallow")
_HEAD = re.compile(rb"(ref: refs/[^\0-\x20\x7f]+|[0-9a-f]{40}|[0-9a-f]{64})")
_SMALL = 64 * 1024
"""Bytes; no file that says where something is has more."""

KEPT = ("extensions.objectformat", "extensions.refstorage", "core.excludesfile")
"""What is taken over of a repository's configuration: how it is stored, and where more rules of what is ignored are."""


def read_small(path: bytes, most: int = _SMALL) -> bytes | None:
    """What a small file says; None if it is missing, too big, or no file: nothing here waits for a FIFO."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        said = os.read(opened, most + 1)
        return said if len(said) <= most else None
    except OSError:
        return None
    finally:
        os.close(opened)


def git_dir_of(top: bytes) -> bytes:
    """The git folder of a working tree: `.git`, or where the file of that name points to."""
    own = os.path.join(top, b".git")
    said = read_small(own)
    if said is None or not said.startswith(b"gitdir:"):
        return own
    return os.path.join(top, said.removeprefix(b"gitdir:").strip())


def common_dir_of(git_dir: bytes) -> bytes:
    """What a linked worktree's git folder shares with its main one."""
    said = read_small(os.path.join(git_dir, b"commondir"))
    return git_dir if said is None else os.path.normpath(os.path.join(git_dir, said.strip()))


def head_text(git_dir: bytes) -> bytes | None:
    """What HEAD says, if it is what git would write there."""
    path = os.path.join(git_dir, b"HEAD")
    try:
        said = b"ref: " + os.readlink(path)
    except OSError:
        said = (read_small(path) or b"").rstrip()
    return said if _HEAD.fullmatch(said) else None


def make_own_folder(place: Path, git_dir: bytes, common_dir: bytes, kept: Mapping[str, str], head: bytes) -> None:
    """Make the folder that git is given, at `place`, which is not there yet."""
    place.mkdir(mode=0o755)
    (place / "HEAD").write_bytes(head + b"\n")
    (place / "config").write_text(_config(kept), encoding="utf-8", errors="surrogateescape")
    there = os.fsencode(place)
    for name in _SHARED:
        _link(common_dir, there, name)
    (place / "info").mkdir(mode=0o755)
    for name in (b"exclude", b"attributes"):
        _link(os.path.join(common_dir, b"info"), os.path.join(there, b"info"), name)
    _link(os.path.join(git_dir, b"info"), os.path.join(there, b"info"), b"sparse-checkout")
    for name in _parts_of_the_index(git_dir):
        _link(git_dir, there, name)


def _link(source: bytes, place: bytes, name: bytes) -> None:
    if name in (b"objects", b"refs", b"packed-refs") or os.path.lexists(os.path.join(source, name)):
        os.symlink(os.path.join(source, name), os.path.join(place, name))


def _parts_of_the_index(git_dir: bytes) -> list[bytes]:
    """The shared part of a split index is looked for beside HEAD."""
    try:
        return [name for name in os.listdir(git_dir) if name.startswith(b"sharedindex.")]
    except OSError:
        return []


def _config(kept: Mapping[str, str]) -> str:
    """Format 1, so that git obeys the extensions; of those only what says how things are stored."""
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    if "core.excludesfile" in kept:
        lines.append(f"\texcludesFile = {_quoted(kept['core.excludesfile'])}")
    extensions = [(key.partition(".")[2], kept[key]) for key in KEPT[:2] if key in kept]
    if extensions:
        lines += ["[extensions]", *(f"\t{name} = {_quoted(value)}" for name, value in extensions)]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'
