"""Reading `[agents.NAME]`, `[usage]` and `[compaction]`: strict, every mistake with its line, all of them at once.

What a file says about an agent is merged, field by field, over what a weaker file says. Rules about the whole of an
agent stand in `domain.fleet`; here it is about names, kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from allswell.domain import duration
from allswell.domain.fleet import AgentSpec, CompactionSpec, Fleet, UsageSpec, wrong_with
from allswell.domain.meant import nearest
from allswell.domain.submit import check_name
from allswell.errors import Refused
from allswell.settings.sources import Found, Problem, Source

TABLES = ("agents", "usage", "compaction")
Wrong = Callable[[str, Source], None]


class Unfit(Exception):
    """A value of the wrong kind; the message says what is wanted."""


def text(raw: object) -> object:
    """Any text."""
    return raw if isinstance(raw, str) and "\0" not in raw else _unfit("text")


def words(raw: object) -> object:
    """The words of a command."""
    if isinstance(raw, list) and raw and all(isinstance(word, str) and "\0" not in word for word in raw):
        return tuple(raw)
    return _unfit('a list of words, such as ["claude", "-p", "{prompt}"]; nothing goes through a shell')


def names(raw: object) -> object:
    """A list of names."""
    good = isinstance(raw, list) and all(isinstance(word, str) for word in raw)
    return tuple(raw) if good and isinstance(raw, list) else _unfit('a list of names, such as ["ANTHROPIC_*"]')


def flag(raw: object) -> object:
    """True or false."""
    return raw if isinstance(raw, bool) else _unfit("true or false")


def count(raw: object) -> object:
    """A whole number."""
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else _unfit("a whole number")


def length(raw: object) -> object:
    """A length of time, in milliseconds."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return _unfit('milliseconds, or a duration such as "10s"')
    try:
        return duration.parse(raw)
    except Refused as error:
        raise Unfit(error.message) from None


def variables(raw: object) -> object:
    """Variables of an environment."""
    if isinstance(raw, dict) and all(isinstance(value, str) for value in raw.values()):
        return dict(raw)
    return _unfit('a table of text, such as { LOG = "info" }')


def hears(raw: object) -> object:
    """How an agent hears."""
    return raw if raw in ("socket", "stdin", "file") else _unfit('"socket", "stdin" or "file"')


def _unfit(wanted: str) -> object:
    raise Unfit(f"must be {wanted}")


Fields = Mapping[str, Callable[[object], object]]
AGENT: Fields = {
    "command": words,
    "function": text,
    "remote": flag,
    "role": text,
    "concurrency": count,
    "prompt": text,
    "hears": hears,
    "cwd": text,
    "env": variables,
    "pass_env": names,
    "account": text,
    "context_window": count,
    "worktree": flag,
    "idle": length,
    "grace": length,
}
USAGE: Fields = {"command": words, "function": text, "every": length, "timeout": length}
COMPACTION: Fields = {"command": words, "function": text, "timeout": length}


class FleetReading:
    """What the files have said so far about agents."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._agents: dict[str, dict[str, Any]] = {}
        self._sources: dict[tuple[str, ...], Source] = {}
        self._usage: dict[str, Any] = {}
        self._compaction: dict[str, Any] = {}
        self._unread: set[tuple[str, ...]] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: Found) -> None:
        """The tables of one file; they are taken out of it."""
        agents = found.table.pop("agents", {})
        if not isinstance(agents, dict):
            self._wrong("agents must be tables such as [agents.claude]", found.source(("agents",)))
            agents = {}
        for name, table in agents.items():
            self._take_agent(found, name, table)
        for key, fields, kept in (("usage", USAGE, self._usage), ("compaction", COMPACTION, self._compaction)):
            table = found.table.pop(key, {})
            if isinstance(table, dict):
                self._fields(found, (key,), table, fields, kept)
            else:
                self._wrong(f"{key} must be a table: [{key}]", found.source((key,)))

    def _take_agent(self, found: Found, name: str, table: object) -> None:
        path = ("agents", name)
        source = found.source(path)
        if not isinstance(table, dict):
            return self._wrong(f"agents.{name} must be a table: [agents.{name}]", source)
        try:
            check_name(name, "an agent's name")
        except Refused as error:
            return self._wrong(error.message, source)
        if "/" in name:
            return self._wrong(f"an agent's name has no slash: {name!r}", source)
        self._sources.setdefault(path, source)
        return self._fields(found, path, table, AGENT, self._agents.setdefault(name, {}))

    def _fields(
        self, found: Found, path: tuple[str, ...], table: Mapping[str, Any], fields: Fields, kept: dict[str, Any]
    ) -> None:
        for key, raw in table.items():
            source = found.source((*path, key))
            read = fields.get(key)
            if read is None:
                self._wrong(f"{'.'.join(path)} has no {key!r}; {_meant(key, fields)}", source)
                self._unread.add(path)
                continue
            try:
                value = read(raw)
            except Unfit as error:
                self._wrong(f"{'.'.join(path)}.{key} {error}", source)
                self._unread.add(path)
                continue
            if key == "cwd" and source.folder is not None:
                value = str(source.folder / str(value))
            kept[key] = value
            self._sources[(*path, key)] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(Problem(says, source.where, source.place, "agents"))

    def fleet(self, known_roles: Iterable[str]) -> Fleet:
        """All agents, as far as they could be read; what is wrong with the whole of one is a problem too."""
        roles = list(known_roles)
        agents = {}
        for name, given in self._agents.items():
            spec = AgentSpec(name=name, **given)
            agents[name] = spec
            for field, says in () if ("agents", name) in self._unread else wrong_with(spec):
                path = ("agents", name, field)
                label = ".".join(part for part in path if part)
                self._wrong(f"{label}: {says}", self._sources.get(path) or self._sources[path[:2]])
            if spec.role and spec.role not in roles:
                self._check_role(spec.role, ("agents", name, "role"), roles)
        for key, given in (("usage", self._usage), ("compaction", self._compaction)):
            if given.get("command") and given.get("function"):
                self._wrong(f"{key} has a command and a function; which of them?", self._sources[(key, "function")])
        places = {name: place for name in agents if (place := self._sources["agents", name].place) is not None}
        return Fleet(agents, UsageSpec(**self._usage), CompactionSpec(**self._compaction), places)

    def _check_role(self, role: str, path: tuple[str, ...], roles: list[str]) -> None:
        """A role is whatever tasks are given; but one that is nearly one of those set up here is a slip."""
        near = nearest(role, roles, ratio=0.8)
        if near is not None:
            self._wrong(f"{'.'.join(path)}: there is no role {role!r}; did you mean {near!r}?", self._sources[path])


def _meant(key: str, known: Iterable[str]) -> str:
    near = nearest(key, known)
    return f"did you mean {near!r}?" if near else "there are " + ", ".join(known)
