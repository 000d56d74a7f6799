"""Where a working tree is and which commit it stands on, read without git: asked before every attempt."""

from __future__ import annotations

import os
import re
from pathlib import Path

from allswell.runtime.git.own_folder import common_dir_of, git_dir_of, head_text, read_small

_OURS = ".allswell"
_REF = b"ref: "
_COMMIT = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_PACKED = 64 << 20
"""Bytes; a file of packed refs that has more is git's to read."""


def find_top(folder: Path) -> Path | None:
    """The top of the working tree that a folder lies in, found upward by its `.git`.

    Not beyond a folder of ours: what lies in one is no part of the working tree around it. A task's worktree there may
    have lost its own `.git`.
    """
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git"):
            return top
        if top.name == _OURS:
            return None
    return None


def head_of(top: Path) -> str | None:
    """The commit that a working tree stands on, read without git, which takes longer; None if that is not plain."""
    own = git_dir_of(os.fsencode(top))
    said = head_text(own)
    if said is None or not said.startswith(_REF):
        return None if said is None else said.decode()
    ref, shared = said.removeprefix(_REF), common_dir_of(own)
    for place in (own, shared):
        found = (read_small(place + b"/" + ref) or b"").strip()
        if found:
            return found.decode("ascii", "replace") if _COMMIT.fullmatch(found) else None
    for line in _packed(shared + b"/packed-refs"):
        commit, _, name = line.partition(b" ")
        if name == ref:
            return commit.decode() if _COMMIT.fullmatch(commit) else None
    return None


def _packed(path: bytes) -> list[bytes]:
    return (read_small(path, _PACKED) or b"").splitlines()
