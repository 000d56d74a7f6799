"""SQL lives in `.sql` files: statements under a name, and migrations, each in a file of its own.

A statement is preceded by `-- name: lock_tasks` and a sentence that says what for.

A store names the oldest schema whose code may write to it (docs/adr/0077). A migration that code of an earlier schema
can live with says so in its first line: `-- oldest writer: 9`. One that says nothing shuts all earlier code out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from allswell.errors import Bug, Refused

_OLDEST = re.compile(r"-- oldest writer: ([0-9]+)\n")
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


def oldest_writer(migrations: list[tuple[int, str]]) -> int:
    """The oldest schema whose code may write to a store in which all of these were run."""
    declared = ((number, _OLDEST.match(text)) for number, text in migrations)
    return max(number if oldest is None else int(oldest[1]) for number, oldest in declared)


def newer_schema(place: str, version: int, oldest: int, known: int) -> Refused:
    """What is said where the code of this version may not write to a store."""
    return Refused(
        "newer_schema",
        f"{place} has schema {version} and takes only versions of Allswell that know schema {oldest} or later; this "
        f"one knows schemas up to {known}: upgrade Allswell here, or open the store with the version that made it",
        where="store",
    )


def _folder(package: str) -> Path:
    """Where an imported package lies; `importlib.resources` would say it too, and takes longer than all the reading."""
    return Path(str(sys.modules[package].__file__)).parent
