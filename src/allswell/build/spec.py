"""Reading the spec of a build: a YAML file, or a folder with one Markdown file for each component.

Nothing is guessed: an unknown key, a name that cannot be one and a need that does not exist are mistakes, each told
with its file, line and field. A spec is read to its end, so that one look shows them all.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from allswell.domain.build.component import (
    BuildSpec,
    Component,
    ParsedComponent,
    ParsedNeed,
    SpecMistake,
    mistakes_in,
)
from allswell.domain.build.line import is_component_name, is_url
from allswell.domain.check.model import Location
from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.flows.loader import BadYaml, MappingEntry, YamlNode, YamlPosition, load

# A spec as it stands in its files, with what is wrong with the way it is written.


class ParsedSpec(msgspec.Struct, frozen=True):
    """What was read. Whether the names in it mean anything is looked at afterwards."""

    name: str
    components: tuple[ParsedComponent, ...] = ()
    mistakes: tuple[SpecMistake, ...] = ()
    url: str = ""


def build_name(stem: str) -> str:
    """The name of a build whose spec gives none, after its file or folder."""
    return _safe(stem) or "build"


def _safe(letters: Iterable[str]) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in letters)[
        :64
    ].strip("-")


# A spec in one YAML file.
#
# `name: shop`                     # the file's name, unless given
# url: https://example.org/spec    # where builders can read it
# components:
#   - name: database
#   - name: api
#     depends on: [database]       # or a list of `- name: database`
#     description: The HTTP interface.

_TOP_KEYS = ("name", "url", "components")
_COMPONENT_KEYS = ("name", "depends on", "description")
_DESCRIPTION_MAX = 100_000


def read_file(path: Path) -> ParsedSpec:
    """The spec in this file, with all that is wrong with it."""
    return read_yaml(path.read_bytes(), str(path), build_name(path.stem))


def read_yaml(content: bytes | str, file: str, name: str) -> ParsedSpec:
    """The spec in a file's content; `name` is for one that gives none."""
    try:
        root = load(content, file)
    except BadYaml as error:
        mark = error.mark or YamlPosition(1, 1)
        mistake = SpecMistake(Location(file, mark.line, mark.column), "YAML", f"{error.says}.", "Correct it.")
        return ParsedSpec(name, mistakes=(mistake,))
    return _SpecReader(file).read(root, name)


class _SpecReader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[SpecMistake] = []

    def read(self, root: YamlNode, name: str) -> ParsedSpec:
        """The whole file."""
        top = root.value
        if not isinstance(top, dict) or "components" not in top:
            self._wrong(root, "components", "This is not a spec of a build.", "Begin with `components:` and a list.")
            return ParsedSpec(name, mistakes=tuple(self.mistakes))
        self._known(top, _TOP_KEYS, "A spec")
        if "name" in top:
            name = self._name(top["name"], name)
        url = self._text(top["url"], "url") if "url" in top else ""
        if url and not is_url(url):
            self._wrong(
                top["url"], "url", f"{url[:80]!r} is not an address.", "Write such as https://example.org/spec."
            )
        components = [one for node in self._components(top["components"]) if (one := self._component(node))]
        return ParsedSpec(name, tuple(components), tuple(self.mistakes), url)

    def _name(self, entry: MappingEntry, usual: str) -> str:
        name = self._text(entry, "name")
        if is_component_name(name):
            return name
        self._wrong(entry, "name", f"{name[:80]!r} cannot name a build.", "Use letters, digits, '_', '-' and '.'.")
        return usual

    def _components(self, entry: MappingEntry) -> list[YamlNode]:
        if isinstance(entry.node.value, list) and entry.node.value:
            return entry.node.value
        says = "`components:` must be a list with at least one entry."
        self._wrong(entry, "components", says, "Begin each with `- name: NAME`.")
        return []

    def _component(self, node: YamlNode) -> ParsedComponent | None:
        given = node.value
        if not isinstance(given, dict) or "name" not in given:
            self._wrong(node, "name", "A component has no name.", "Begin it with `- name: NAME`.")
            return None
        self._known(given, _COMPONENT_KEYS, "A component")
        name = self._text(given["name"], "name")
        text = self._text(given["description"], "description") if "description" in given else ""
        if len(text) > _DESCRIPTION_MAX:
            says = f"The description of {name} has {len(text):,} characters; at most {_DESCRIPTION_MAX:,} are taken."
            self._wrong(given["description"], "description", says, "Put it into a file and name the file.")
        needs = self._needs(given["depends on"]) if "depends on" in given else ()
        return ParsedComponent(name, self._place(given["name"].node), needs, text)

    def _needs(self, entry: MappingEntry) -> tuple[ParsedNeed, ...]:
        if entry.node.value is None:
            return ()
        if not isinstance(entry.node.value, list):
            self._wrong(entry, "depends on", "`depends on:` must be a list.", "Write such as `depends on: [database]`.")
            return ()
        return tuple(need for node in entry.node.value if (need := self._need(node)))

    def _need(self, node: YamlNode) -> ParsedNeed | None:
        inner = node.value
        if isinstance(inner, dict) and "name" in inner:
            self._known(inner, ("name",), "A need")
            node = inner["name"].node
        name = _word(node)
        if name is None:
            self._wrong(node, "depends on", "A need must be the name of a component.", "Write `- name: NAME`.")
            return None
        return ParsedNeed(name, self._place(node))

    def _text(self, entry: MappingEntry, field: str) -> str:
        text = _word(entry.node)
        if text is None:
            self._wrong(entry, field, f"`{field}:` must be a text.", "Write one.")
            return ""
        return text

    def _known(self, given: dict[str, MappingEntry], keys: Collection[str], what: str) -> None:
        """Complain of every key that is none: what is misspelt would otherwise silently not be there."""
        for key, entry in given.items():
            if key not in keys:
                meant = "depends on" if key in {"depends_on", "needs", "depends"} else nearest(key, keys)
                fix = f"Did you mean {meant!r}?" if meant in keys else f"It has {', '.join(keys)}."
                self._wrong(entry, key, f"{what} has no `{key}:`.", fix)

    def _place(self, at: YamlNode | MappingEntry) -> Location:
        return Location(self.file, at.mark.line, at.mark.column)

    def _wrong(self, at: YamlNode | MappingEntry, field: str, says: str, fix: str) -> None:
        self.mistakes.append(SpecMistake(self._place(at), field, says, fix))


def _word(node: YamlNode) -> str | None:
    """A text; a number stands for itself, as people name components 1 and 2."""
    value = node.value
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)


# A spec as a folder: one Markdown file for each component, called after it.
#
#     # The HTTP interface
#
#     depends on:
#     - name: database
#
#     What is to be built stands around it, in any words.
#
# An entry names a component by `- name: database`, by `- database`, or as in `- database component for all rows`. Any
# other entry is prose about the world around the build, such as `- git repository (read)` or `- builder: says CLAIM`.
# Where the folder has a folder `components`, the components are in that one.
#
# `README.md` and files whose names begin with a dot or an underscore are no components. The list of needs begins with a
# line that says `depends on:` (as a heading or in bold, if you like) and ends with the first line that is neither an
# entry nor blank nor indented. Only one list is taken, and none inside a code block.

LARGEST = 1 << 20
"""The most bytes of a component's file."""
_BEGINS = re.compile(r"#*\s*(?:\*\*|__)?depends on\s*(?:(?:\*\*|__)\s*:|:\s*(?:\*\*|__)?)\s*(.*?)\s*", re.IGNORECASE)
_ENTRY = re.compile(r"\s*[-*+]\s+(.*?)\s*", re.IGNORECASE)
_BY_NAME = re.compile(r"name\s*:\s*(.*)", re.IGNORECASE)
_COMPONENT = re.compile(r"(?:the\s+)?(\S+)\s+component\b.*", re.IGNORECASE)
_MARKED = re.compile(r"\[([^\]]+)\]\([^)]*\)|(\*\*|`|\"|')(.+)\2")
_NOTHING = {"none", "nothing", "[]", "-"}


def read_folder(path: Path) -> ParsedSpec:
    """The spec in this folder, with all that is wrong with it."""
    components: list[ParsedComponent] = []
    mistakes: list[SpecMistake] = []
    for file in sorted(components_folder(path).iterdir()):
        if file.suffix.lower() == ".md" and file.stem.lower() != "readme" and file.name[0] not in "._":
            component = read_component(file.stem, _content(file, mistakes), str(file), mistakes)
            components.append(component)
    if not components:
        says = "There is no component: no file here ends in .md."
        mistakes.append(SpecMistake(Location(str(path)), "components", says, "Write one file for each component."))
    return ParsedSpec(build_name(path.resolve().name), tuple(components), tuple(mistakes))


def components_folder(path: Path) -> Path:
    """Where the components of a spec's folder are."""
    inner = path / "components"
    return inner if inner.is_dir() else path


def _content(file: Path, mistakes: list[SpecMistake]) -> str:
    raw = file.read_bytes()
    if len(raw) > LARGEST:
        says = f"The file has {len(raw):,} bytes; at most {LARGEST:,} are read."
        mistakes.append(SpecMistake(Location(str(file)), "file", says, "Put what is long elsewhere, and name it here."))
        return ""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        mistakes.append(SpecMistake(Location(str(file), line), "file", "This is not UTF-8 text.", "Save it as UTF-8."))
        return ""


def read_component(name: str, text: str, file: str, mistakes: list[SpecMistake]) -> ParsedComponent:
    """A component from the text of its file; what is wrong with it is added to `mistakes`."""
    needs: list[ParsedNeed] = []
    lists = 0
    lines = _outside_code(text)
    number, line = next(lines, (0, None))
    while line is not None:
        begin = _BEGINS.fullmatch(line)
        if begin is None:
            number, line = next(lines, (0, None))
            continue
        place = Location(file, number)
        lists += 1
        if lists == 2:
            mistakes.append(SpecMistake(place, "depends on", "This is a second list of needs.", "Join the two."))
        found: list[ParsedNeed] = []
        prose = False
        number, line = next(lines, (0, None))
        while line is not None and (entry := _entry(line)) is not None:
            need = _need(entry)
            if need:
                found.append(ParsedNeed(need, Location(file, number)))
            prose = prose or need is None
            number, line = next(lines, (0, None))
        if begin[1] and begin[1].lower() not in _NOTHING:
            says = f"`depends on:` is followed by {begin[1][:80]!r}."
            mistakes.append(SpecMistake(place, "depends on", says, "Write a line `- name: NAME` for each, below it."))
        elif not begin[1] and not found and not prose:
            says = "`depends on:` names nothing."
            mistakes.append(
                SpecMistake(place, "depends on", says, "Write lines `- name: NAME`, or `depends on: none`.")
            )
        needs += found
    return ParsedComponent(name, Location(file, 1), tuple(needs), text)


def _outside_code(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; those inside a code block are blank."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = line.strip()[:3]
        if mark in {"```", "~~~"} and fence in {"", mark}:
            fence = "" if fence else mark
            yield number, "."
        else:
            yield number, "." if fence else line


def _entry(line: str) -> str | None:
    """What an entry of the list says; nothing for a line that belongs to one; None where the list is over."""
    if found := _ENTRY.fullmatch(line):
        return found[1]
    return "" if not line.strip() or line[0] in " \t" else None


def _need(entry: str) -> str | None:
    """The component that an entry names; None where it is prose, nothing where it is empty."""
    if named := _BY_NAME.fullmatch(entry):
        return _name(named[1])
    name = _name(entry)
    if named := _COMPONENT.fullmatch(name):
        return _name(named[1])
    return None if " " in name or ":" in name else name


def _name(entry: str) -> str:
    """The name in an entry: `database`, or `[database](database.md)`, in bold, in quotes or as code."""
    while found := _MARKED.fullmatch(entry):
        entry = found[1] or found[3]
    return entry


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
        inside = os.scandir(components_folder(path)) if path.is_dir() else ()
        files = [entry.stat() for entry in sorted(inside, key=str)]
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


def checked(written: ParsedSpec, name: str) -> BuildSpec:
    """What was read, if nothing is wrong with it."""
    found = [*written.mistakes, *islice(mistakes_in(written.components), _MOST_TOLD)]
    if found:
        found.sort(key=lambda one: (one.place.source, one.place.line or 0, one.place.column or 0))
        raise BadSpec(name, found[:_MOST_TOLD])
    components = tuple(
        Component(one.name, tuple(need.name for need in one.needs), one.text) for one in written.components
    )
    return BuildSpec(written.name, components, written.url)
