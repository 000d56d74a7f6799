"""A spec in one YAML file.

name: shop                       # the file's name, unless given
url: https://example.org/spec    # where builders can read it
components:
  - name: database
  - name: api
    depends on: [database]       # or a list of `- name: database`
    description: The HTTP interface.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from allswell.build.written_spec import WrittenSpec, build_name
from allswell.domain.arithmetic.figure import Place
from allswell.domain.build.component import SpecMistake, WrittenComponent, WrittenNeed
from allswell.domain.build.wording import is_component_name, is_url
from allswell.domain.meant import nearest
from allswell.flows.loading import BadYaml, MappingEntry, Mark, Node, load

_TOP_KEYS = ("name", "url", "components")
_COMPONENT_KEYS = ("name", "depends on", "description")
_DESCRIPTION_MAX = 100_000


def read_file(path: Path) -> WrittenSpec:
    """The spec in this file, with all that is wrong with it."""
    return read_yaml(path.read_bytes(), str(path), build_name(path.stem))


def read_yaml(content: bytes | str, file: str, name: str) -> WrittenSpec:
    """The spec in a file's content; `name` is for one that gives none."""
    try:
        root = load(content, file)
    except BadYaml as error:
        mark = error.mark or Mark(1, 1)
        mistake = SpecMistake(Place(file, mark.line, mark.column), "YAML", f"{error.says}.", "Correct it.")
        return WrittenSpec(name, mistakes=(mistake,))
    return _SpecReader(file).read(root, name)


class _SpecReader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[SpecMistake] = []

    def read(self, root: Node, name: str) -> WrittenSpec:
        """The whole file."""
        top = root.value
        if not isinstance(top, dict) or "components" not in top:
            self._wrong(root, "components", "This is no spec of a build.", "Begin with `components:` and a list.")
            return WrittenSpec(name, mistakes=tuple(self.mistakes))
        self._known(top, _TOP_KEYS, "A spec")
        if "name" in top:
            name = self._name(top["name"], name)
        url = self._text(top["url"], "url") if "url" in top else ""
        if url and not is_url(url):
            self._wrong(top["url"], "url", f"{url[:80]!r} is no address.", "Write such as https://example.org/spec.")
        components = [one for node in self._components(top["components"]) if (one := self._component(node))]
        return WrittenSpec(name, tuple(components), tuple(self.mistakes), url)

    def _name(self, entry: MappingEntry, usual: str) -> str:
        name = self._text(entry, "name")
        if is_component_name(name):
            return name
        self._wrong(entry, "name", f"{name[:80]!r} cannot name a build.", "Use letters, digits, '_', '-' and '.'.")
        return usual

    def _components(self, entry: MappingEntry) -> list[Node]:
        if isinstance(entry.node.value, list) and entry.node.value:
            return entry.node.value
        says = "`components:` must be a list with at least one entry."
        self._wrong(entry, "components", says, "Begin each with `- name: NAME`.")
        return []

    def _component(self, node: Node) -> WrittenComponent | None:
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
        return WrittenComponent(name, self._place(given["name"].node), needs, text)

    def _needs(self, entry: MappingEntry) -> tuple[WrittenNeed, ...]:
        if entry.node.value is None:
            return ()
        if not isinstance(entry.node.value, list):
            self._wrong(entry, "depends on", "`depends on:` must be a list.", "Write such as `depends on: [database]`.")
            return ()
        return tuple(need for node in entry.node.value if (need := self._need(node)))

    def _need(self, node: Node) -> WrittenNeed | None:
        inner = node.value
        if isinstance(inner, dict) and "name" in inner:
            self._known(inner, ("name",), "A need")
            node = inner["name"].node
        name = _word(node)
        if name is None:
            self._wrong(node, "depends on", "A need must be the name of a component.", "Write `- name: NAME`.")
            return None
        return WrittenNeed(name, self._place(node))

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

    def _place(self, at: Node | MappingEntry) -> Place:
        mark = at.key if isinstance(at, MappingEntry) else at.mark
        return Place(self.file, mark.line, mark.column)

    def _wrong(self, at: Node | MappingEntry, field: str, says: str, fix: str) -> None:
        self.mistakes.append(SpecMistake(self._place(at), field, says, fix))


def _word(node: Node) -> str | None:
    """A text; a number stands for itself, as people name components 1 and 2."""
    value = node.value
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)
