"""Where a repository stands, read without git, which takes longer and may run other people's programs."""

from __future__ import annotations

from pathlib import Path

from allswell.runtime.repository import find_top, head_of

_BRANCH = "ref: refs/heads/"


def git_place(folder: Path) -> tuple[str | None, str | None] | None:
    """The commit and the branch at HEAD; None where there is no repository."""
    top = find_top(folder)
    if top is None:
        return None
    own = top / ".git"
    try:
        if own.is_file():
            own = top / own.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        said = (own / "HEAD").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return head_of(top), None
    return head_of(top), said.removeprefix(_BRANCH) if said.startswith(_BRANCH) else None
