"""Reading tables that people name, such as `[sinks.NAME]`: strict, every mistake with its line, all of them at once.

What a file says under a name is merged, field by field, over what a weaker file says. Rules about the whole of such a
table stand in the domain, beside the spec that is made of it; here it is about kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

from allswell.domain import duration
from allswell.domain.agents.fleet import AgentSpec, CompactionSpec, Fleet, UsageSpec, wrong_with_agent
from allswell.domain.notify.spec import TABLE, HookSpec, SinkSpec, wrong_with_hook, wrong_with_secrets, wrong_with_sink
from allswell.domain.task.submit import check_name
from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.settings.sources import USER, SettingsFile, SettingsProblem, Source

# Reading `[agents.NAME]`, `[usage]` and `[compaction]`: strict, every mistake with its line, all of them at once.
#
# What a file says about an agent is merged, field by field, over what a weaker file says. Rules about the whole of an
# agent stand in `domain.agents.fleet`; here it is about names, kinds of values, and places.

TABLES = ("agents", "usage", "compaction")


class UnfitTable(Exception):
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
        raise UnfitTable(error.message) from None


def variables(raw: object) -> object:
    """Variables of an environment."""
    if isinstance(raw, dict) and all(isinstance(value, str) for value in raw.values()):
        return dict(raw)
    return _unfit('a table of text, such as { LOG = "info" }')


def hears(raw: object) -> object:
    """How an agent hears."""
    return raw if raw in ("socket", "stdin", "file") else _unfit('"socket", "stdin" or "file"')


def _unfit(wanted: str) -> object:
    raise UnfitTable(f"must be {wanted}")


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
USAGE: Fields = {"command": words, "function": text, "every": length, "timeout": length, "account": text}
COMPACTION: Fields = {"command": words, "function": text, "timeout": length}


class FleetReading:
    """What the files have said so far about agents."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        self._problems = problems
        self._agents: dict[str, dict[str, Any]] = {}
        self._sources: dict[tuple[str, ...], Source] = {}
        self._usage: dict[str, Any] = {}
        self._compaction: dict[str, Any] = {}
        self._unread: set[tuple[str, ...]] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: SettingsFile) -> None:
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

    def _take_agent(self, found: SettingsFile, name: str, table: object) -> None:
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
        self, found: SettingsFile, path: tuple[str, ...], table: Mapping[str, Any], fields: Fields, kept: dict[str, Any]
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
            except UnfitTable as error:
                self._wrong(f"{'.'.join(path)}.{key} {error}", source)
                self._unread.add(path)
                continue
            if key == "cwd" and source.folder is not None:
                value = str(source.folder / str(value))
            if key == "function" and fields is AGENT:
                kept["installed"] = found.kind == USER
            kept[key] = value
            self._sources[(*path, key)] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(SettingsProblem(says, source.where, source.place, "agents"))

    def fleet(self, known_roles: Iterable[str]) -> Fleet:
        """All agents, as far as they could be read; what is wrong with the whole of one is a problem too."""
        roles = list(known_roles)
        agents = {}
        for name, given in self._agents.items():
            spec = AgentSpec(name=name, **given)
            agents[name] = spec
            for field, says in () if ("agents", name) in self._unread else wrong_with_agent(spec):
                path = ("agents", name, field)
                label = ".".join(part for part in path if part)
                self._wrong(f"{label}: {says}", self._sources.get(path) or self._sources[path[:2]])
            if spec.role and spec.role not in roles:
                self._check_role(spec.role, ("agents", name, "role"), roles)
        for key, given in (("usage", self._usage), ("compaction", self._compaction)):
            if given.get("command") and given.get("function"):
                self._wrong(f"{key} has a command and a function; which of them?", self._sources[(key, "function")])
        places = {name: place for name in agents if (place := self._sources["agents", name].place) is not None}
        written = [self._sources["usage", key].place for key in USAGE if ("usage", key) in self._sources]
        usage_place = next((place for place in written if place is not None), None)
        return Fleet(agents, UsageSpec(**self._usage), CompactionSpec(**self._compaction), places, usage_place)

    def _check_role(self, role: str, path: tuple[str, ...], roles: list[str]) -> None:
        """A role is whatever tasks are given; but one that is nearly one of those set up here is a slip."""
        near = nearest(role, roles, ratio=0.8)
        if near is not None:
            self._wrong(f"{'.'.join(path)}: there is no role {role!r}; did you mean {near!r}?", self._sources[path])


def _meant(key: str, known: Iterable[str]) -> str:
    near = nearest(key, known)
    return f"did you mean {near!r}?" if near else "there are " + ", ".join(known)


S = TypeVar("S")


def one_or_more(raw: object) -> object:
    """One name, or a list of them."""
    return (raw,) if isinstance(raw, str) else names(raw)


class NamedTables(Generic[S]):
    """What the files have said so far in the tables of one kind."""

    def __init__(
        self,
        problems: list[SettingsProblem],
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

    def take(self, found: SettingsFile) -> None:
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

    def _read(self, found: SettingsFile, name: str, table: Mapping[str, Any]) -> None:
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
            except UnfitTable as error:
                self._wrong(f"{self._kind}.{name}.{key} {error}", source)
                self._unread.add(name)
                continue
            if key == self._place:
                kept[key] = _placed(kept[key], source)
            self._sources[name, key] = source

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(SettingsProblem(says, source.where, source.place, self._kind))

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


# `[hooks.NAME]` in a file of settings: which fields a hook has.

HOOK: Fields = {
    "secret_env": one_or_more,
    "secret_file": one_or_more,
    "types": one_or_more,
    "tolerance": length,
    "max_body": count,
    "task": text,
    "role": text,
    "run": text,
    "priority": count,
    "payload": text,
    "question": text,
    "option": text,
    "text": text,
}


def hook_tables(problems: list[SettingsProblem]) -> NamedTables[HookSpec]:
    """A reader of such tables, which tells `problems` what is wrong."""
    return NamedTables(
        problems,
        kind="hooks",
        example="deploys",
        fields=HOOK,
        place="secret_file",
        spec=HookSpec,
        wrong_with=wrong_with_hook,
    )


# `[sinks.NAME]` in a file of settings: which fields a sink has.


def beginning(raw: object) -> object:
    """Where in the journal a new sink begins."""
    if raw in ("now", "start"):
        return raw
    raise UnfitTable('must be "now" or "start"')


def routes(raw: object) -> object:
    """Whom to tell, by severity."""
    if isinstance(raw, dict):
        return {severity: one_or_more(told) for severity, told in raw.items()}
    raise UnfitTable('must be a table, such as { warning = ["env:SLACK_URL"], critical = ["env:PAGER_URL"] }')


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


def sink_tables(problems: list[SettingsProblem]) -> NamedTables[SinkSpec]:
    """A reader of such tables, which tells `problems` what is wrong."""
    return NamedTables(
        problems, kind="sinks", example="oncall", fields=SINK, place="key", spec=SinkSpec, wrong_with=wrong_with_sink
    )


# Reading `[webhook_secrets]`: by host, the names of the variables that hold what signs requests to it.


class SecretsReading:
    """What the files have said so far about the secrets of webhook requests."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        self._problems = problems
        self.secrets: dict[str, tuple[str, ...]] = {}

    def take(self, found: SettingsFile) -> None:
        """The table of one file; it is taken out of it. A host's entry replaces that of a weaker file."""
        table = found.table.pop(TABLE, {})
        if not isinstance(table, dict):
            self._wrong(f'{TABLE} must be a table: [{TABLE}], "oracle.example" = "NAME"', found.source((TABLE,)))
            return
        for host, raw in table.items():
            names = [raw] if isinstance(raw, str) else raw
            source = found.source((TABLE, host))
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                self._wrong(f"{TABLE}.{host} must be the name of a variable, or a list of them", source)
            elif says := wrong_with_secrets(host, names):
                self._wrong(f"{TABLE}.{host}: {says}", source)
            else:
                self.secrets[host] = tuple(names)

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(SettingsProblem(says, source.where, source.place, "sinks"))
