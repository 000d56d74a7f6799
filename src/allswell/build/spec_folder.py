"""A spec as a folder: one Markdown file for each component, called after it.

    # The HTTP interface

    depends on:
    - name: database

    What is to be built stands around it, in any words.

`README.md` and files whose names begin with a dot or an underscore are no components. The list of needs begins with a
line that says `depends on:` (as a heading or in bold, if you like) and ends with the first line that is neither an
entry nor blank nor indented. Only one list is taken, and none inside a code block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from allswell.build.written_spec import WrittenSpec, build_name
from allswell.domain.arithmetic.figure import Place
from allswell.domain.build.component import SpecMistake, WrittenComponent, WrittenNeed

LARGEST = 1 << 20
"""The most bytes of a component's file."""
_BEGINS = re.compile(r"#*\s*(?:\*\*|__)?depends on\s*(?:(?:\*\*|__)\s*:|:\s*(?:\*\*|__)?)\s*(.*?)\s*", re.IGNORECASE)
_ENTRY = re.compile(r"\s*[-*+]\s+(?:name\s*:\s*)?(.*?)\s*", re.IGNORECASE)
_MARKED = re.compile(r"\[([^\]]+)\]\([^)]*\)|(\*\*|`|\"|')(.+)\2")
_NOTHING = {"none", "nothing", "[]", "-"}


def read_folder(path: Path) -> WrittenSpec:
    """The spec in this folder, with all that is wrong with it."""
    components: list[WrittenComponent] = []
    mistakes: list[SpecMistake] = []
    for file in sorted(path.iterdir()):
        if file.suffix.lower() == ".md" and file.stem.lower() != "readme" and file.name[0] not in "._":
            component = read_component(file.stem, _content(file, mistakes), str(file), mistakes)
            components.append(component)
    if not components:
        says = "There is no component: no file here ends in .md."
        mistakes.append(SpecMistake(Place(str(path)), "components", says, "Write one file for each component."))
    return WrittenSpec(build_name(path.resolve().name), tuple(components), tuple(mistakes))


def _content(file: Path, mistakes: list[SpecMistake]) -> str:
    raw = file.read_bytes()
    if len(raw) > LARGEST:
        says = f"The file has {len(raw):,} bytes; at most {LARGEST:,} are read."
        mistakes.append(SpecMistake(Place(str(file)), "file", says, "Put what is long elsewhere, and name it here."))
        return ""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        mistakes.append(SpecMistake(Place(str(file), line), "file", "This is not UTF-8 text.", "Save it as UTF-8."))
        return ""


def read_component(name: str, text: str, file: str, mistakes: list[SpecMistake]) -> WrittenComponent:
    """A component from the text of its file; what is wrong with it is added to `mistakes`."""
    needs: list[WrittenNeed] = []
    lists = 0
    lines = _outside_code(text)
    number, line = next(lines, (0, None))
    while line is not None:
        begin = _BEGINS.fullmatch(line)
        if begin is None:
            number, line = next(lines, (0, None))
            continue
        place = Place(file, number)
        lists += 1
        if lists == 2:
            mistakes.append(SpecMistake(place, "depends on", "This is a second list of needs.", "Join the two."))
        found: list[WrittenNeed] = []
        number, line = next(lines, (0, None))
        while line is not None and (entry := _entry(line)) is not None:
            if entry:
                found.append(WrittenNeed(_name(entry), Place(file, number)))
            number, line = next(lines, (0, None))
        if begin[1] and begin[1].lower() not in _NOTHING:
            says = f"`depends on:` is followed by {begin[1][:80]!r}."
            mistakes.append(SpecMistake(place, "depends on", says, "Write a line `- name: NAME` for each, below it."))
        elif not begin[1] and not found:
            says = "`depends on:` names nothing."
            mistakes.append(
                SpecMistake(place, "depends on", says, "Write lines `- name: NAME`, or `depends on: none`.")
            )
        needs += found
    return WrittenComponent(name, Place(file, 1), tuple(needs), text)


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


def _name(entry: str) -> str:
    """The name in an entry: `database`, or `[database](database.md)`, in bold, in quotes or as code."""
    while found := _MARKED.fullmatch(entry):
        entry = found[1] or found[3]
    return entry
