"""Where settings come from: finding the files, reading them and the environment, and telling lines apart."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from allswell.domain.arithmetic.figure import Place
from allswell.settings.bounds import LARGEST, too_much
from allswell.settings.locate import Spot, locate
from allswell.settings.nearby import folders
from allswell.store.ownership import doubt

FILE = "allswell.toml"
PROJECT = "pyproject.toml"
_SECTION = ("tool", "allswell")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

Path_ = tuple[str, ...]


class Source(msgspec.Struct, frozen=True):
    """Which source a value comes from, and where exactly."""

    kind: str
    """`default`, `pyproject.toml`, `allswell.toml`, `environment` or `flag`."""
    where: str = ""
    """The file with the line, the variable, or the flag."""
    folder: Path | None = None
    """What a relative path in it counts from."""
    place: Place | None = None
    """The same as data, with the column too; None for a default."""


Part = Literal["all", "figures", "agents", "sinks", "hooks"]
"""What a mistake spoils: everything (which store is meant cannot be known), figures, agents, sinks or hooks."""


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with the settings, and where."""

    says: str
    where: str = ""
    place: Place | None = None
    """The first of the places that `where` names."""
    part: Part = "all"
    """Who needs another part is not stopped by it."""

    def __str__(self) -> str:
        return f"{self.where}: {self.says}" if self.where else self.says


class Found(msgspec.Struct, frozen=True):
    """A file with settings: its tables, and where each name stands."""

    kind: str
    path: Path
    table: dict[str, Any]
    spots: dict[Path_, Spot]

    def source(self, name: Path_) -> Source:
        """Where this name was given: its own place, or that of the table it stands in."""
        path = name
        while path and path not in self.spots:
            path = path[:-1]
        if not path:  # of `[a.b]` only the whole has a place, and `a` is there too
            path = next((spot for spot in self.spots if name and spot[: len(name)] == name), ())
        file = str(self.path)
        if not path:
            return Source(self.kind, file, self.path.parent, Place(file))
        spot = self.spots[path]
        return Source(self.kind, f"{file}:{spot.line}", self.path.parent, Place(file, spot.line, spot.column))


def files(start: Path, problems: list[Problem], instead: Path | None = None) -> Iterator[Found]:
    """The nearest files upward that hold settings, the weaker one first; what cannot be read is a problem.

    `instead` is read as if it were the `allswell.toml`.
    """
    above = list(folders(start))
    for kind, section in ((PROJECT, _SECTION), (FILE, ())):
        named = [instead] if instead is not None and kind == FILE else None
        for path in named or [folder / kind for folder in above]:
            text, doubts = _text(path, problems)
            if text is None or (section and section[-1] not in text):
                continue  # most projects have a pyproject.toml that is not about us: not even parsed
            untrusted = doubts if named is None else None
            table = _table(path, text, section, problems if untrusted is None else [])
            if untrusted is not None and (table is not None or not section):
                says = f"{untrusted}; take it over (chown), remove it, or work in a folder of your own"
                problems.append(Problem(says, str(path), Place(str(path))))
                break
            if table is not None:
                yield Found(kind, path, table, _spots(text, section))
                break


def _text(path: Path, problems: list[Problem]) -> tuple[str | None, str | None]:
    """What stands in a file, and what speaks against trusting it; neither, if there is none that can be read."""
    try:
        link = path.lstat()
        with open(path, encoding="utf-8", opener=_without_waiting) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                return None, None
            doubts = doubt(found) or (doubt(link) if link.st_uid != found.st_uid else None)
            text = opened.read(LARGEST + 1)
        if len(text) <= LARGEST:
            return text, doubts
        problems.append(
            Problem("the file is larger than 256 KiB, which settings never are", str(path), Place(str(path)))
        )
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except UnicodeDecodeError:
        problems.append(Problem("the file is not UTF-8 text", str(path), Place(str(path))))
    except OSError as error:
        # A folder on the way up that may not be entered is nobody's mistake.
        if os.access(path.parent, os.X_OK):
            problems.append(Problem(f"the file cannot be read: {error.strerror}", str(path), Place(str(path))))
    return None, None


def _without_waiting(path: str, flags: int) -> int:
    # A pipe that somebody has put there would never open otherwise.
    return os.open(path, flags | os.O_NONBLOCK)


def _table(path: Path, text: str, section: Path_, problems: list[Problem]) -> dict[str, Any] | None:
    """The table with the settings; None if the file has none."""
    import tomllib  # only those who have a file pay for it

    if (found := too_much(text)) is not None:
        line, what = found
        place = Place(str(path), line)
        problems.append(Problem(f"the file holds {what}, which settings never do", str(place), place))
        return None
    try:
        table: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        says = str(error)
        at = _AT_LINE.search(says)
        place = Place(str(path), int(at[1]), int(at[2])) if at else Place(str(path))
        problems.append(Problem(f"this is not TOML: {_AT_LINE.sub('', says)}", str(place), place))
        return None
    for part in section:
        table = table.get(part)
        if not isinstance(table, dict):
            return None
    return dict(table)


def _spots(text: str, section: Path_) -> dict[Path_, Spot]:
    """The place of each name below a section."""
    depth = len(section)
    return {path[depth:]: spot for path, spot in locate(text).items() if path[:depth] == section and path[depth:]}


def leaves(table: Mapping[str, Any], tables: frozenset[str], path: Path_ = ()) -> Iterator[tuple[Path_, object]]:
    """Every value with its path. Tables that settings live in are opened, and those below them."""
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, dict) and (path or key in tables) and (value or len(here) < 2):
            yield from leaves(value, tables, here)
        else:
            yield here, value
