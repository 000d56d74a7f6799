"""Reading tables that people name, such as `[sinks.NAME]`: strict, every mistake with its line, all of them at once.

What a file says under a name is merged, field by field, over what a weaker file says. Rules about the whole of such a
table stand in the domain, beside the spec that is made of it; here it is about kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

from allswell.domain.meant import nearest
from allswell.settings.fleet import Fields, Unfit, names
from allswell.settings.sources import Found, Problem, Source

S = TypeVar("S")


def one_or_more(raw: object) -> object:
    """One name, or a list of them."""
    return (raw,) if isinstance(raw, str) else names(raw)


class NamedTables(Generic[S]):
    """What the files have said so far in the tables of one kind."""

    def __init__(
        self,
        problems: list[Problem],
        *,
        kind: Literal["sinks", "hooks"],
        example: str,
        fields: Fields,
        place: str,
        spec: Callable[..., S],
        wrong_with: Callable[[S, Iterable[str]], list[tuple[str, str]]],
    ) -> None:
        self._kind = kind
        """The table that the others stand in."""
        self._example = example
        self._fields = fields
        self._place = place
        """The field that names one file or several, from the folder of the file that says so."""
        self._spec = spec
        self._wrong_with = wrong_with
        self._problems = problems
        self._given: dict[str, dict[str, Any]] = {}
        self._sources: dict[tuple[str, ...], Source] = {}
        self._unread: set[str] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: Found) -> None:
        """The tables of one file; they are taken out of it."""
        kind = self._kind
        tables = found.table.pop(kind, {})
        if not isinstance(tables, dict):
            self._wrong(f"{kind} must be tables such as [{kind}.{self._example}]", found.source((kind,)))
            return
        for name, table in tables.items():
            self._sources.setdefault((name,), found.source((kind, name)))
            if isinstance(table, dict):
                self._read(found, name, table)
            else:
                self._wrong(f"{kind}.{name} must be a table: [{kind}.{name}]", found.source((kind, name)))

    def _read(self, found: Found, name: str, table: Mapping[str, Any]) -> None:
        kept = self._given.setdefault(name, {})
        for key, raw in table.items():
            source = found.source((self._kind, name, key))
            read = self._fields.get(key)
            if read is None:
                near = nearest(key, self._fields)
                hint = f"did you mean {near!r}?" if near else "there are " + ", ".join(self._fields)
                self._wrong(f"{self._kind}.{name} has no {key!r}; {hint}", source)
                self._unread.add(name)
                continue
            try:
                kept[key] = read(raw)
            except Unfit as error:
                self._wrong(f"{self._kind}.{name}.{key} {error}", source)
                self._unread.add(name)
                continue
            if key == self._place:
                kept[key] = _placed(kept[key], source)
            self._sources[name, key] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(Problem(says, source.where, source.place, self._kind))

    def specs(self) -> dict[str, S]:
        """All of them, as far as they could be read; what is wrong with the whole of one is a problem too."""
        found = {}
        for name, given in self._given.items():
            spec = found[name] = self._spec(name=name, **given)
            for field, says in () if name in self._unread else self._wrong_with(spec, given):
                label = f"{self._kind}.{name}.{field}" if field else f"{self._kind}.{name}"
                self._wrong(f"{label}: {says}", self._sources.get((name, field)) or self._sources[(name,)])
        return found


def _placed(given: str | tuple[str, ...], source: Source) -> str | tuple[str, ...]:
    """Files as they are found from the folder of the file that names them; `~` is somebody's home."""
    if isinstance(given, tuple):
        return tuple(str(_placed(one, source)) for one in given)
    return given if source.folder is None or given.startswith("~") else str(source.folder / given)
