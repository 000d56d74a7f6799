"""Where a working tree is and which commit it stands on, read without git: asked before every attempt."""

from __future__ import annotations

import os
from pathlib import Path


def find_top(folder: Path) -> Path | None:
    """The top of the working tree that a folder lies in, found upward by its `.git`."""
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git"):
            return top
    return None


def head_of(top: Path) -> str | None:
    """The commit that a working tree stands on, read without git, which takes longer; None if that is not plain."""
    try:
        own = top / ".git"
        if own.is_file():
            own = top / own.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        said = (own / "HEAD").read_text(encoding="ascii").strip()
        ref = said.removeprefix("ref: ")
        if ref == said:
            return said if _is_commit(said) else None
        shared = own / (own / "commondir").read_text().strip() if (own / "commondir").exists() else own
        for place in (own, shared):
            if (place / ref).is_file():
                said = (place / ref).read_text(encoding="ascii").strip()
                return said if _is_commit(said) else None
        packed = shared / "packed-refs"
        lines = packed.read_text(encoding="utf-8", errors="replace").splitlines() if packed.is_file() else []
        return next((line.split(" ")[0] for line in lines if line.endswith(f" {ref}")), None)
    except (OSError, ValueError):
        return None


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and all(digit in "0123456789abcdef" for digit in text)
