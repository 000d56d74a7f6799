"""Reading the spec of a build: a YAML file, or a folder with one Markdown file for each component.

Nothing is guessed: an unknown key, a name that cannot be one and a need that does not exist are mistakes, each told
with its file, line and field. A spec is read to its end, so that one look shows them all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from allswell.build.spec_file import read_file
from allswell.build.spec_folder import read_folder
from allswell.build.written_spec import WrittenSpec
from allswell.domain.build.component import BuildSpec, Component, SpecMistake, mistakes_in
from allswell.errors import Refused

_SETTLED = 1_000_000_000
"""Nanoseconds: two changes within one tick of a file system's clock look like one."""
_MOST_TOLD = 20
"""So many mistakes are told; a spec with more is another kind of file."""


class BadSpec(Refused):
    """A spec that cannot be built from; `mistakes` are in the order of their places."""

    def __init__(self, name: str, mistakes: Sequence[SpecMistake]) -> None:
        told = "\n".join(f"  {mistake}" for mistake in mistakes)
        super().__init__("bad_spec", f"{name} cannot be built from:\n{told}", where=name)
        self.name = name
        self.mistakes = tuple(mistakes)

    def __reduce__(self) -> tuple[object, ...]:
        return (BadSpec, (self.name, self.mistakes))


class SpecReader:
    """`reader()`: the spec at a path, read again when a file has changed since; the same value as long as none has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._spec: BuildSpec | None = None

    def __call__(self) -> BuildSpec:
        """The spec as it is now; raises what `read_spec` does."""
        seen = _files(self._path)
        if self._spec is None or seen is None or seen != self._seen:
            self._spec = read_spec(self._path)
            self._seen = seen
        return self._spec


def _files(path: Path) -> object:
    """What changes with the files of a spec; None where one is so new that it could change without our seeing it."""
    try:
        files = [entry.stat() for entry in sorted(os.scandir(path), key=str)] if path.is_dir() else []
        seen = [(one.st_ino, one.st_mtime_ns, one.st_size) for one in (path.stat(), *files)]
    except OSError:
        return None
    return None if max(at for _, at, _ in seen) > time.time_ns() - _SETTLED else seen


def read_spec(path: Path) -> BuildSpec:
    """The spec at this path; `BadSpec` with every mistake in it, `Refused` where there is none."""
    if path.is_dir():
        written = read_folder(path)
    elif path.is_file():
        written = read_file(path)
    else:
        raise Refused("no_spec", f"there is no file or folder {path}; name the spec of the build", where=str(path))
    return checked(written, str(path))


def checked(written: WrittenSpec, name: str) -> BuildSpec:
    """What was read, if nothing is wrong with it."""
    found = [*written.mistakes, *islice(mistakes_in(written.components), _MOST_TOLD)]
    if found:
        found.sort(key=lambda one: (one.place.source, one.place.line or 0, one.place.column or 0))
        raise BadSpec(name, found[:_MOST_TOLD])
    components = tuple(
        Component(one.name, tuple(need.name for need in one.needs), one.text) for one in written.components
    )
    return BuildSpec(written.name, components, written.url)
