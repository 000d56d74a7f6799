"""SQL lives in `.sql` files, each statement under a name: `-- name: lock_tasks` and a sentence that says what for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from allswell.errors import Bug

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(package: str, file: str) -> dict[str, str]:
    """Every named statement of a `.sql` file, without its comments."""
    text = (_folder(package) / file).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    statements: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in statements:
            raise Bug(f"{package}/{file} names {name} twice")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        statements[name] = "\n".join(lines).strip().rstrip(";")
    return statements


def migrations(package: str) -> list[tuple[int, str]]:
    """The numbered files of a `migrations` folder (`0001_first.sql`), in order, without gaps."""
    found = sorted(
        (int(entry.name[:4]), entry.read_text(encoding="utf-8"))
        for entry in (_folder(package) / "migrations").iterdir()
        if entry.name.endswith(".sql")
    )
    if [number for number, _ in found] != list(range(1, len(found) + 1)):
        raise Bug(f"{package}: migrations must be numbered from 0001 without gaps")
    return found


def _folder(package: str) -> Path:
    """Where an imported package lies; `importlib.resources` would say it too, and takes longer than all the reading."""
    return Path(str(sys.modules[package].__file__)).parent
