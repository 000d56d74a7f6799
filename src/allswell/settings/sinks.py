"""Reading `[sinks.NAME]`: strict, every mistake with its line, all of them at once.

What a file says about a sink is merged, field by field, over what a weaker file says. Rules about the whole of a sink
stand in `domain.sink_spec`; here it is about kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allswell.domain.meant import nearest
from allswell.domain.sink_spec import SinkSpec, wrong_with
from allswell.settings.fleet import Fields, Unfit, count, flag, length, names, text
from allswell.settings.sources import Found, Problem, Source

TABLE = "sinks"


def one_or_more(raw: object) -> object:
    """One name, or a list of them."""
    return (raw,) if isinstance(raw, str) else names(raw)


def beginning(raw: object) -> object:
    """Where in the journal a new sink begins."""
    if raw in ("now", "start"):
        return raw
    raise Unfit('must be "now" or "start"')


def routes(raw: object) -> object:
    """Whom to tell, by severity."""
    if isinstance(raw, dict):
        return {severity: one_or_more(told) for severity, told in raw.items()}
    raise Unfit('must be a table, such as { warning = ["env:SLACK_URL"], critical = ["env:PAGER_URL"] }')


SINK: Fields = {
    "kind": text,
    "hears": one_or_more,
    "begins": beginning,
    "timeout": length,
    "retries": count,
    "apart": length,
    "give_up": length,
    "url": text,
    "secret_env": one_or_more,
    "allow_private": flag,
    "max_body": count,
    "routes": routes,
    "quiet": text,
    "humans": one_or_more,
    "channel": text,
    "speaks_as": text,
    "key": text,
    "token_env": text,
    "database": text,
    "page": text,
}


class SinkReading:
    """What the files have said so far about sinks."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._sinks: dict[str, dict[str, Any]] = {}
        self._sources: dict[tuple[str, ...], Source] = {}
        self._unread: set[str] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: Found) -> None:
        """The tables of one file; they are taken out of it."""
        tables = found.table.pop(TABLE, {})
        if not isinstance(tables, dict):
            self._wrong("sinks must be tables such as [sinks.oncall]", found.source((TABLE,)))
            return
        for name, table in tables.items():
            self._sources.setdefault((name,), found.source((TABLE, name)))
            if isinstance(table, dict):
                self._fields(found, name, table)
            else:
                self._wrong(f"sinks.{name} must be a table: [sinks.{name}]", found.source((TABLE, name)))

    def _fields(self, found: Found, name: str, table: Mapping[str, Any]) -> None:
        kept = self._sinks.setdefault(name, {})
        for key, raw in table.items():
            source = found.source((TABLE, name, key))
            read = SINK.get(key)
            if read is None:
                near = nearest(key, SINK)
                hint = f"did you mean {near!r}?" if near else "there are " + ", ".join(SINK)
                self._wrong(f"sinks.{name} has no {key!r}; {hint}", source)
                self._unread.add(name)
                continue
            try:
                kept[key] = read(raw)
            except Unfit as error:
                self._wrong(f"sinks.{name}.{key} {error}", source)
                self._unread.add(name)
                continue
            if key == "key" and source.folder is not None and not str(kept[key]).startswith("~"):
                kept[key] = str(source.folder / str(kept[key]))
            self._sources[name, key] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(Problem(says, source.where, source.place, "sinks"))

    def sinks(self) -> dict[str, SinkSpec]:
        """All sinks, as far as they could be read; what is wrong with the whole of one is a problem too."""
        found = {}
        for name, given in self._sinks.items():
            spec = found[name] = SinkSpec(name=name, **given)
            for field, says in () if name in self._unread else wrong_with(spec, given):
                label = f"sinks.{name}.{field}" if field else f"sinks.{name}"
                self._wrong(f"{label}: {says}", self._sources.get((name, field)) or self._sources[(name,)])
        return found
