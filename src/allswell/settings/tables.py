"""Reading tables that are not settings by name: agents, prices, sinks, hooks, `[usage]`, `[webhook_secrets]` and such.

Reading is strict: every mistake has its line, and all of them are told at once. What a file says in such a table is
merged, field by field, over what a weaker file says. Rules about the whole of a table stand in the domain, beside the
spec that is made of it; here it is about names, kinds of values, and places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any, TypeVar

import msgspec

from allswell.domain.agents.cost import Price
from allswell.domain.agents.fleet import AgentSpec, CompactionSpec, Fleet, UsageSpec, wrong_with_agent
from allswell.domain.notify.spec import TABLE, HookSpec, SinkSpec, wrong_with_hook, wrong_with_secrets, wrong_with_sink
from allswell.domain.task.submit import check_name
from allswell.domain.values import nearest
from allswell.errors import Refused
from allswell.settings.sources import USER, Part, Path_, SettingsFile, SettingsProblem, Source
from allswell.settings.values import FieldKind, InvalidValue, SettingKind, read_value

S = TypeVar("S")
Fields = Mapping[str, FieldKind]
AGENT: Fields = {
    "command": SettingKind.WORDS,
    "acp": SettingKind.WORDS,
    "resume": SettingKind.WORDS,
    "function": SettingKind.PROSE,
    "remote": SettingKind.FLAG,
    "role": SettingKind.PROSE,
    "concurrency": SettingKind.COUNT,
    "prompt": SettingKind.PROSE,
    "hears": ("socket", "stdin", "file"),
    "cwd": SettingKind.PROSE,
    "env": SettingKind.VARIABLES,
    "pass_env": SettingKind.NAMES,
    "account": SettingKind.PROSE,
    "context_window": SettingKind.COUNT,
    "defer": SettingKind.NAMES,
    "repeat_limit": SettingKind.COUNT,
    "worktree": SettingKind.FLAG,
    "ends_with_question": ("ask", "done"),
    "idle": SettingKind.DURATION,
    "grace": SettingKind.DURATION,
}
USAGE: Fields = {
    "command": SettingKind.WORDS,
    "function": SettingKind.PROSE,
    "every": SettingKind.DURATION,
    "timeout": SettingKind.DURATION,
    "account": SettingKind.PROSE,
}
COMPACTION: Fields = {
    "command": SettingKind.WORDS,
    "function": SettingKind.PROSE,
    "timeout": SettingKind.DURATION,
}
HOOK: Fields = {
    "secret_env": SettingKind.ONE_OR_MORE,
    "secret_file": SettingKind.ONE_OR_MORE,
    "types": SettingKind.ONE_OR_MORE,
    "tolerance": SettingKind.DURATION,
    "max_body": SettingKind.COUNT,
    "task": SettingKind.PROSE,
    "role": SettingKind.PROSE,
    "run": SettingKind.PROSE,
    "priority": SettingKind.INTEGER,
    "payload": SettingKind.PROSE,
    "question": SettingKind.PROSE,
    "option": SettingKind.PROSE,
    "text": SettingKind.PROSE,
}
SINK: Fields = {
    "kind": SettingKind.PROSE,
    "hears": SettingKind.ONE_OR_MORE,
    "begins": ("now", "start"),
    "timeout": SettingKind.DURATION,
    "retries": SettingKind.COUNT,
    "apart": SettingKind.DURATION,
    "give_up": SettingKind.DURATION,
    "url": SettingKind.PROSE,
    "secret_env": SettingKind.ONE_OR_MORE,
    "allow_private": SettingKind.FLAG,
    "max_body": SettingKind.COUNT,
    "routes": SettingKind.ROUTES,
    "quiet": SettingKind.PROSE,
    "humans": SettingKind.ONE_OR_MORE,
    "channel": SettingKind.PROSE,
    "speaks_as": SettingKind.PROSE,
    "key": SettingKind.PROSE,
    "token_env": SettingKind.PROSE,
    "database": SettingKind.PROSE,
    "page": SettingKind.PROSE,
}


PRICE: Fields = dict.fromkeys(("input", "output", "cached", "cache_write"), SettingKind.PRICE)
"""What a million tokens of a model cost, in dollars; those of the cache cost as much as `input` if not set."""


class TableKind(msgspec.Struct, frozen=True):
    """One of these tables."""

    name: str
    part: Part
    fields: Fields | None
    """None: any name, each with one or more names."""
    example: str = ""
    """A name that people could give one of them; empty: there is one table, without a name."""
    place: str = ""
    """The field that names one file or several, from the folder of the file that says so."""


KINDS = (
    TableKind("agents", "agents", AGENT, "claude", "cwd"),
    TableKind("usage", "agents", USAGE),
    TableKind("compaction", "agents", COMPACTION),
    TableKind("prices", "figures", PRICE, "claude-sonnet-5"),
    TableKind("sinks", "sinks", SINK, "oncall", "key"),
    TableKind("hooks", "hooks", HOOK, "deploys", "secret_file"),
    TableKind(TABLE, "sinks", None),
)


class TableReading:
    """What the files have said so far in such tables."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        self._problems = problems
        self._values: dict[Path_, dict[str, Any]] = {}
        self._sources: dict[Path_, Source] = {}
        self._unread: set[Path_] = set()
        """What could not be read as it was meant: rules about the whole of it would only repeat that."""

    def take(self, found: SettingsFile) -> None:
        """The tables of one file; they are taken out of it."""
        for kind in KINDS:
            table = found.table.pop(kind.name, {})
            if isinstance(table, dict):
                for name, inner in table.items() if kind.example else ():
                    self._take_named(found, kind, name, inner)
                if not kind.example:
                    self._fields(found, kind, (kind.name,), table)
            else:
                such = f"tables such as [{kind.name}.{kind.example}]" if kind.example else f"a table: [{kind.name}]"
                self._wrong(f"{kind.name} must be {such}", found.source((kind.name,)), kind.part)

    def _take_named(self, found: SettingsFile, kind: TableKind, name: str, table: object) -> None:
        path = (kind.name, name)
        source = found.source(path)
        if not isinstance(table, dict):
            return self._wrong(f"{kind.name}.{name} must be a table: [{kind.name}.{name}]", source, kind.part)
        if kind.fields is AGENT:
            try:
                check_name(name, "an agent's name")
            except Refused as error:
                return self._wrong(error.message, source, kind.part)
            if "/" in name:
                return self._wrong(f"an agent's name has no slash: {name!r}", source, kind.part)
        self._sources.setdefault(path, source)
        return self._fields(found, kind, path, table)

    def _fields(self, found: SettingsFile, kind: TableKind, path: Path_, table: Mapping[str, Any]) -> None:
        values = self._values.setdefault(path, {})
        for key, raw in table.items():
            source = found.source((*path, key))
            field = SettingKind.ONE_OR_MORE if kind.fields is None else kind.fields.get(key)
            if field is None:
                near = nearest(key, kind.fields or ())
                hint = f"did you mean {near!r}?" if near else "there are " + ", ".join(kind.fields or ())
                self._wrong(f"{'.'.join(path)} has no {key!r}; {hint}", source, kind.part)
                self._unread.add(path)
                continue
            try:
                value = read_value(field, raw, ".".join((*path, key)))
            except InvalidValue as error:
                self._wrong(str(error), source, kind.part)
                self._unread.add(path)
                continue
            values[key] = _placed(value, source) if key == kind.place else value
            if key == "function" and kind.fields is AGENT:
                values["installed"] = found.kind == USER
            self._sources[(*path, key)] = source

    def _wrong(self, says: str, source: Source, part: Part) -> None:
        self._problems.append(SettingsProblem(says, source.where, source.place, part))

    def _specs(
        self, part: Part, make: Callable[..., S], wrong_with: Callable[[S, Iterable[str]], list[tuple[str, str]]]
    ) -> dict[str, S]:
        """Those of one kind, as far as they could be read; what is wrong with the whole of one is a problem too."""
        specs = {}
        for path, values in self._values.items():
            if path[0] != part:
                continue
            spec = specs[path[1]] = make(name=path[1], **values)
            for field, says in () if path in self._unread else wrong_with(spec, values):
                label = ".".join((*path, field) if field else path)
                self._wrong(f"{label}: {says}", self._sources.get((*path, field)) or self._sources[path], part)
        return specs

    def sinks(self) -> dict[str, SinkSpec]:
        """Who is told."""
        return self._specs("sinks", SinkSpec, wrong_with_sink)

    def hooks(self) -> dict[str, HookSpec]:
        """What becomes of webhooks from elsewhere."""
        return self._specs("hooks", HookSpec, wrong_with_hook)

    def prices(self) -> dict[str, Price]:
        """By how the names of models begin, what they cost."""
        prices = {}
        for path, values in self._values.items():
            if path[0] != "prices" or path in self._unread:
                continue
            missing = " and ".join(name for name in ("input", "output") if name not in values)
            if missing:
                self._wrong(f"{'.'.join(path)} needs {missing}", self._sources[path], "figures")
            else:
                cached, stored = values.get("cached", values["input"]), values.get("cache_write", values["input"])
                own = Price(input=values["input"], output=values["output"], cached=cached, cache_write=stored)
                prices[path[1]] = own
        return prices

    def secrets(self) -> dict[str, tuple[str, ...]]:
        """By host, the variables that hold what signs webhook requests to it."""
        secrets = {}
        for host, names in self._values.get((TABLE,), {}).items():
            if says := wrong_with_secrets(host, names):
                self._wrong(f"{TABLE}.{host}: {says}", self._sources[TABLE, host], "sinks")
            else:
                secrets[host] = names
        return secrets

    def fleet(self, known_roles: Iterable[str]) -> Fleet:
        """All agents, and where their usage is read."""
        roles = list(known_roles)
        agents = self._specs("agents", AgentSpec, lambda spec, _: wrong_with_agent(spec))
        for name, spec in agents.items():
            if spec.acp and not _is_installed(_ACP_LIBRARY):
                says = f"agents.{name}.acp: this takes the extra acp: pip install 'allswell[acp]'"
                self._wrong(says, self._sources["agents", name, "acp"], "agents")
            # A role is whatever tasks are given; but one that is nearly one of those set up here is a slip.
            near = nearest(spec.role, roles, ratio=0.8) if spec.role and spec.role not in roles else None
            if near is not None:
                path = ("agents", name, "role")
                says = f"{'.'.join(path)}: there is no role {spec.role!r}; did you mean {near!r}?"
                self._wrong(says, self._sources[path], "agents")
        usage, compaction = self._values.get(("usage",), {}), self._values.get(("compaction",), {})
        for key, values in (("usage", usage), ("compaction", compaction)):
            if values.get("command") and values.get("function"):
                says = f"{key} has a command and a function; which of them?"
                self._wrong(says, self._sources[key, "function"], "agents")
        places = {name: place for name in agents if (place := self._sources["agents", name].place) is not None}
        written = [self._sources["usage", key].place for key in USAGE if key in usage]
        usage_place = next((place for place in written if place is not None), None)
        return Fleet(agents, UsageSpec(**usage), CompactionSpec(**compaction), places, usage_place)


_ACP_LIBRARY = "agent-client-protocol"


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _placed(names: str | tuple[str, ...], source: Source) -> str | tuple[str, ...]:
    """Files as they are found from the folder of the file that names them; `~` is somebody's home."""
    if isinstance(names, tuple):
        return tuple(str(_placed(name, source)) for name in names)
    return names if source.folder is None or names.startswith("~") else str(source.folder / names)
