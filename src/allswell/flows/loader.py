"""YAML, read strictly: a small, safe part of the language, and a line and a column for everything.

YAML can do much that a flow never needs and that has hurt others: aliases that unfold a kilobyte into gigabytes, tags
that build objects, keys that silently win over their doubles, `no` that is a boolean and `1:30` that is ninety. None
of it is taken here. The text is read as a stream of events, so what is refused is refused where it stands, before
anything is built from it. Numbers, `true`, `false` and `null` are read as in JSON; every other word is text.

What comes out is a tree of nodes that know their places, for whoever has to say what is wrong with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NoReturn

import msgspec

from allswell.domain.check.model import CheckRule, Finding, Location, Severity
from allswell.domain.values import nearest
from allswell.errors import Refused

if TYPE_CHECKING:
    import yaml


LARGEST = 1 << 20
"""The most bytes of a file."""
DEEPEST = 32
"""The most levels of lists and mappings within each other."""

Scalar = str | int | float | bool | None

_INTEGER = re.compile(r"[-+]?[0-9](_?[0-9])*")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "true": True, "false": False}
_LONGEST_NUMBER = 40
_HALF = re.compile("[\ud800-\udfff]")
_HIDDEN = re.compile("[\ufeff\x85\u2028\u2029]|\r(?!\n)")
"""A byte order mark that is not at the start, and line breaks that only YAML takes for some."""


class YamlPosition(msgspec.Struct, frozen=True):
    """A place in the file; both count from 1."""

    line: int
    column: int


class MappingEntry(msgspec.Struct, frozen=True):
    """A value of a mapping, and where its key begins."""

    mark: YamlPosition
    node: YamlNode


class YamlNode(msgspec.Struct, frozen=True):
    """A value and where it begins."""

    value: Scalar | list[YamlNode] | dict[str, MappingEntry]
    mark: YamlPosition

    def plain(self) -> object:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: entry.node.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class BadYaml(Refused):
    """The text is not the YAML that is taken here; `mark` says where."""

    def __init__(self, name: str, says: str, mark: YamlPosition | None) -> None:
        where = name if mark is None else f"{name}:{mark.line}:{mark.column}"
        super().__init__("bad_yaml", f"{where} cannot be read: {says}", where=where)
        self.name = name
        self.says = says
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (BadYaml, (self.name, self.says, self.mark))


def load(content: bytes | str, name: str) -> YamlNode:
    """The tree of a file's content; `BadYaml` with the place of what is wrong."""
    text = _text(content, name)
    return _YamlReading(text, name).document()


def _text(content: bytes | str, name: str) -> str:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    if len(raw) > LARGEST:
        says = f"the file is too large: {len(raw):,} bytes, and at most {LARGEST:,} are read"
        raise BadYaml(name, says, None)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        says = "this is not UTF-8 text; save the file as UTF-8"
        raise BadYaml(name, says, YamlPosition(line, column)) from None


def _library(name: str) -> type[yaml.SafeLoader | yaml.CSafeLoader]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise Refused(
            "missing_extra",
            "reading YAML needs the extra `flows`: in Allswell's clone, type `uv tool install '.[flows]'`",
            where=name,
        ) from None
    # The C library is some twenty times as fast; both are held to the same tests.
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _YamlReading:
    """One pass over the events of a text."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.text = text
        library = _library(name)
        import yaml

        self._yaml = yaml
        self._check_characters()
        self._events = self._all(library)

    def _all(self, library: type[yaml.SafeLoader | yaml.CSafeLoader]) -> Iterator[yaml.Event]:
        try:
            yield from self._yaml.parse(self.text, Loader=library)
        except self._yaml.YAMLError as error:
            self._explain(error)

    def document(self) -> YamlNode:
        """The one document of the text."""
        yaml = self._yaml
        root: YamlNode | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                self._refuse(event, "a second document begins; write one to a file")
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, 1)
        if root is None:
            raise BadYaml(self.name, "the file is empty", YamlPosition(1, 1))
        return root

    def _node(self, event: yaml.Event, depth: int) -> YamlNode:
        yaml = self._yaml
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"an alias (*{event.anchor}) is not taken; write the value out")
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._refuse(event, f"an anchor (&{event.anchor}) is not taken; nothing could refer to it")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            self._refuse(event, f"a tag ({event.tag}) is not taken; write the plain value")
        if depth > DEEPEST:
            self._refuse(event, f"this is nested too deeply; {DEEPEST} levels are taken")
        if isinstance(event, yaml.ScalarEvent):
            return YamlNode(self._scalar(event), self._mark(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlNode(self._sequence(depth), self._mark(event))
        return YamlNode(self._mapping(depth), self._mark(event))

    def _sequence(self, depth: int) -> list[YamlNode]:
        nodes = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            nodes.append(self._node(event, depth + 1))
        return nodes

    def _mapping(self, depth: int) -> dict[str, MappingEntry]:
        entries: dict[str, MappingEntry] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._key(event, depth)
            if key in entries:
                first = entries[key].mark
                self._refuse(event, f"the key {key!r} is given twice, first on line {first.line}; keep one")
            entries[key] = MappingEntry(self._mark(event), self._node(next(self._events), depth + 1))
        return entries

    def _key(self, event: yaml.Event, depth: int) -> str:
        """A key is its text, whatever else it could be read as."""
        if isinstance(event, self._yaml.CollectionStartEvent):
            self._refuse(event, "a list or a mapping cannot be a key; write a name")
        self._node(event, depth + 1)  # refuses what is refused of every value
        assert isinstance(event, self._yaml.ScalarEvent)  # noqa: S101 - what else there is has been refused
        if event.value == "<<" and event.implicit[0]:
            self._refuse(event, "a merge key (<<) is not taken; write the keys out")
        return str(event.value)

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        text = str(event.value)
        if not text.isascii() and _HALF.search(text):
            self._refuse(event, "half of a surrogate pair is no character")
        if "\0" in text:
            self._refuse(event, "a NUL (\\0) ends every word and variable that a command is given; take it out")
        if not event.implicit[0]:  # quoted, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if not _DECIMAL.fullmatch(text) and not _INTEGER.fullmatch(text):
            return text
        if len(text) > _LONGEST_NUMBER:
            self._refuse(event, "this number is too long; put it in quotes if it is meant as text")
        if _INTEGER.fullmatch(text):
            return int(text)
        number = float(text)
        if not math.isfinite(number):
            self._refuse(event, "this number is too large")
        return number

    # --- what is wrong ------------------------------------------------------------------------------------------------

    def _mark(self, event: yaml.Event) -> YamlPosition:
        mark = event.start_mark
        return YamlPosition(1, 1) if mark is None else YamlPosition(mark.line + 1, mark.column + 1)

    def _refuse(self, event: yaml.Event, says: str) -> NoReturn:
        raise BadYaml(self.name, says, self._mark(event))

    def _check_characters(self) -> None:
        """What YAML forbids, and what would make lines count differently here and in an editor."""
        for pattern in (self._yaml.reader.Reader.NON_PRINTABLE, _HIDDEN):
            if found := pattern.search(self.text):
                line = self.text.count("\n", 0, found.start()) + 1
                mark = YamlPosition(line, found.start() - self.text.rfind("\n", 0, found.start()))
                code = f"{ord(found.group()):04x}"
                says = (
                    f'the invisible character U+{code.upper()} is not taken; delete it, or write "\\u{code}" in quotes'
                )
                raise BadYaml(self.name, says, mark)

    def _explain(self, error: yaml.YAMLError) -> NoReturn:
        """The library's complaint with a place, and in words where a mistake is common."""
        if not isinstance(error, self._yaml.MarkedYAMLError):
            raise BadYaml(self.name, f"this is not YAML: {error}", YamlPosition(1, 1)) from None
        at = error.problem_mark or error.context_mark
        mark = YamlPosition(1, 1) if at is None else YamlPosition(at.line + 1, at.column + 1)
        lines = self.text.split("\n")
        line = lines[mark.line - 1] if mark.line <= len(lines) else ""
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            place = YamlPosition(mark.line, indent.index("\t") + 1)
            raise BadYaml(self.name, "a tab indents this line, and YAML takes only spaces; use spaces", place) from None
        told = " ".join(part for part in (error.context, error.problem) if part)
        raise BadYaml(self.name, f"this is not YAML: {told}", mark) from None


# What is wrong with a flow file, collected with places, so that one look at it shows every mistake.

BAD_FLOW = CheckRule("bad_flow", Severity.ERROR, "A flow file can be read, and its figures are figures.")
INCOMPLETE = CheckRule("incomplete", Severity.ERROR, "A flow has steps, and each of them something to do.")
LEADS_OUT = CheckRule("leads_out", Severity.ERROR, "What a step leaves lies in the flow's folder, through links too.")

_MOST_WRONG = 100
"""So many mistakes are told; a file with more is another kind of file."""


class YamlProblems:
    """The mistakes found in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    @property
    def mistakes(self) -> bool:
        """Whether something is wrong with the file itself; a link beside it may be gone when its step ends."""
        return any(finding.rule != LEADS_OUT.id for finding in self.findings)

    def place(self, at: YamlNode | MappingEntry) -> Location:
        """Where something stands: an entry at its key."""
        return Location(self.file, at.mark.line, at.mark.column)

    def wrong(self, at: YamlNode | MappingEntry, says: str, fix: str, *, rule: CheckRule = BAD_FLOW) -> None:
        """Note a mistake."""
        if len(self.findings) < _MOST_WRONG:
            self.findings.append(rule.broken(says, (), fix=fix, place=self.place(at)))

    def mapping(self, entry: MappingEntry, path: str, example: str) -> dict[str, MappingEntry]:
        """The entries of what must be a mapping; nothing at all is an empty one."""
        if isinstance(entry.node.value, dict):
            return entry.node.value
        if entry.node.value is not None:
            self.wrong(entry, f"`{path}:` must be a mapping.", f"Write names with values, {example}.")
        return {}

    def known(self, given: dict[str, MappingEntry], keys: Collection[str], what: str) -> None:
        """Complain of every key that is none: what is misspelt would otherwise silently not be there."""
        for key, entry in given.items():
            if key not in keys:
                meant = "timeout_override" if key == "timeout" and "timeout_override" in keys else None
                fix = f"Did you mean {meant!r}?" if meant else offer(key, keys)
                self.wrong(entry, f"{key!r} is nothing that {what} has.", fix)


def offer(name: str, known: Collection[str]) -> str:
    """What was probably meant, or all that there is."""
    near = nearest(name, known)
    if near is not None:
        return f"Did you mean {near!r}?"
    return f"There are {', '.join(known)}." if known else "There are none."
