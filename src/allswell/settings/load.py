"""Loading: the sources in their order, every mistake collected, and what cannot work together refused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from allswell.domain.check.model import Location
from allswell.domain.scopes import limit_rules
from allswell.domain.service.breaker import breaker_rules
from allswell.domain.task.model import broken_rules
from allswell.domain.values import Requirement, nearest, require
from allswell.engine.timings import pace_rules
from allswell.errors import Refused
from allswell.settings.nearby import FOLDER, distrusted, find_store
from allswell.settings.schema import NAMED_TABLES, NOT_SETTINGS, PER_ROLE, PREFIX, SETTINGS, TABLES
from allswell.settings.settings import TRUST_IT, Settings, SourcedValue
from allswell.settings.sources import USER, Part, Path_, SettingsProblem, Source, files, leaves
from allswell.settings.values import InvalidValue
from allswell.store.files import DATABASE
from allswell.store.trusted import settings_digest, state_home, trusts_settings

_ROLES = "ROLES_"
_MOST_WRONG = 50


def load(
    start: Path | None = None, *, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Settings:
    """The settings that hold here; `Refused` with what is wrong with them. Agents and sinks are not checked yet."""
    return look(start, environ=environ, flags=flags).without("all", "figures")


def look(
    start: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    instead: Path | None = None,
    untrusted: Literal["refuse", "skip", "read"] = "refuse",
) -> Settings:
    """The settings as far as they can be read, with what is wrong in `problems`: for those who look after them.

    `instead` is a file that is read as if it were the `allswell.toml`. What came with the folder and is `untrusted` is
    refused; or it is skipped, and the user's own store takes the place of a store that is skipped; or it is read, for
    callers that run nothing and open nothing.
    """
    here = _here(start)
    reading = _SettingsReading()
    read_files = []
    not_trusted = []
    tables = None
    for found in files(here, reading.problems, instead):
        named = found.kind == USER or found.path == instead or untrusted == "read"
        if not named and not trusts_settings(found.path, settings_digest(found.table)):
            not_trusted.append(str(found.path))
            continue
        read_files.append(str(found.path))
        if not found.table.keys().isdisjoint(NAMED_TABLES):
            from allswell.settings.tables import TableReading  # only those who have agents or sinks pay for it

            tables = tables or TableReading(reading.problems)
            tables.take(found)
        for path, raw in leaves(found.table, TABLES):
            reading.take(path, raw, found.source(path))
            if len(reading.problems) >= _MOST_WRONG:
                break  # whoever has so many will not read more, and each takes a search for what was meant
    strangers = reading.take_environment(os.environ if environ is None else environ)
    for name, raw in (flags or {}).items():
        reading.take(tuple(name.split(".")), raw, Source("flag", f"--{name}", place=Location(f"--{name}")))
    where, doubted = _nearest(here)
    if doubted is not None and untrusted == "skip":
        not_trusted.append(doubted.where)
        where, doubted = state_home() / FOLDER, None
    settings = Settings(
        reading.given,
        reading.roles,
        f"sqlite:///{(where or here / FOLDER) / DATABASE}",
        tuple(read_files),
        strangers=tuple(strangers),
        found=None if where is None else str(where),
        untrusted=doubted,
        untrusted_files=() if untrusted == "skip" else tuple(not_trusted),
        skipped=tuple(not_trusted) if untrusted == "skip" else (),
    )
    if tables is not None:
        settings = msgspec.structs.replace(
            settings,
            agents=tables.fleet(settings.known_roles()),
            own_prices=tables.prices(),
            told=tables.sinks(),
            hooked=tables.hooks(),
            secrets=tables.secrets(),
        )
    return msgspec.structs.replace(settings, problems=(*reading.problems, *_impossible(settings)))


def _here(start: Path | None) -> Path:
    try:
        return (start or Path.cwd()).resolve()
    except OSError as error:
        text = f"the current folder cannot be found ({error.strerror}); go to another one"
        raise Refused("no_folder", text, where="folder") from None


def _nearest(here: Path) -> tuple[Path | None, SettingsProblem | None]:
    """The folder of the nearest store, if there is one; or why it is not used, which stops only who needs it."""
    try:
        found = find_store(here)
        reason = None if found is None else distrusted(found)
    except Refused as error:
        return None, SettingsProblem(error.message, error.where or "")
    if found is None:
        return None, None
    if reason is not None:
        where = str(found.link or found.folder)
        return None, SettingsProblem(f"{reason}; {TRUST_IT}, or name another with --store", where, part="trust")
    return found.folder, None


class _SettingsReading:
    """What has been read so far; later sources replace what earlier ones said."""

    def __init__(self) -> None:
        self.given: dict[str, SourcedValue] = {}
        self.roles: dict[str, dict[str, SourcedValue]] = {}
        self.problems: list[SettingsProblem] = []

    def take(self, path: Path_, raw: object, source: Source) -> None:
        """One value."""
        role, name = _split(path)
        if role is not None and not name:
            if isinstance(raw, dict) and role:
                return  # an empty table of a role sets nothing
            self._wrong(f"{'.'.join(path)} must be a table such as [roles.critic]", source, "figures")
        elif role == "":
            said = "a role needs a name; settings for every task belong outside [roles]"
            self._wrong(said, source, "figures")
        elif name not in (SETTINGS if role is None else PER_ROLE):
            # What is no setting at all may have been meant to name the store.
            self._wrong(_unknown(name, role), source, "all" if len(path) == 1 else "figures")
        else:
            try:
                value = SETTINGS[name].read(raw)
            except InvalidValue as error:
                self._wrong(str(error), source, "all" if name == "store" else "figures")
                return
            if name == "store" and source.folder is not None:
                value = _anchored(str(value), source.folder)
            (self.given if role is None else self.roles.setdefault(role, {}))[name] = SourcedValue(value, source)

    def take_environment(self, environ: Mapping[str, str]) -> list[str]:
        """Every variable of ours that is not empty; those that are no settings, nor nearly, are returned."""
        strangers = []
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not environ[variable]:
                continue
            path = _VARIABLES.get(variable) or _role_variable(variable.removeprefix(PREFIX))
            source = Source("environment", variable, place=Location(variable))
            if path is not None:
                self.take(path, environ[variable], source)
            elif near := _near(_bare(variable), map(_bare, _VARIABLES), ratio=0.8):
                # A near miss is a mistake; anything else may be another program's.
                self._wrong(f"no such setting; did you mean {PREFIX}{near}?", source)
            else:
                strangers.append(variable)
        return strangers

    def _wrong(self, says: str, source: Source, part: Part = "all") -> None:
        self.problems.append(SettingsProblem(says, source.where, source.place, part))


_VARIABLES: Mapping[str, Path_] = {setting.env(): (setting.name,) for setting in SETTINGS.values()}


def _role_variable(name: str) -> Path_ | None:
    """`ROLES_CRITIC_AGENT_TIMEOUT`: the role is what stands before the name of a setting that roles can have."""
    if name.startswith(_ROLES):
        for setting in PER_ROLE:
            ending = "_" + setting.upper().replace(".", "_")
            role = name.removeprefix(_ROLES).removesuffix(ending).lower()
            if name.endswith(ending) and role:
                return ("roles", role, setting)
    return None


def _split(path: Path_) -> tuple[str | None, str]:
    """The role (None: for all) and the name of the setting that a path means."""
    if path[0] == "roles":
        return (path[1] if len(path) > 1 else "roles", ".".join(path[2:]))
    return None, ".".join(path)


def _unknown(name: str, role: str | None) -> str:
    """What to say about a name that is no setting."""
    if role is not None and name in SETTINGS:
        return f"{name} cannot be set for a role; it holds for all roles"
    where = "" if role is None else " that a role can have"
    known = (*SETTINGS, *NAMED_TABLES) if role is None else PER_ROLE
    return f"no such setting: {name!r}{where}; {hint(name, known)}"


def hint(name: str, names: Iterable[str] = SETTINGS) -> str:
    """What may have been meant by a name that is none of these."""
    near = _near(name, names)
    return f"did you mean {near}?" if near else "`allswell config` lists them all"


def _bare(variable: str) -> str:
    return variable.removeprefix(PREFIX)


def _near(name: str, names: Iterable[str], *, ratio: float = 0.7) -> str | None:
    among = list(names)
    last = name.casefold().rpartition(".")[2]
    same_end = (one for one in among if one.casefold().rpartition(".")[2] == last)  # `backoff` for `retry.backoff`
    return nearest(name, among, ratio=ratio) or next(same_end, None)


def _anchored(url: str, folder: Path) -> str:
    """A relative path in a file counts from that file's folder, wherever the command is run."""
    path = url.removeprefix("sqlite:///")
    if path == url or path.startswith(("/", "~")) or not path:
        return url
    return f"sqlite:///{folder / path}"


def _impossible(settings: Settings) -> list[SettingsProblem]:
    """Combinations that cannot work, each with the rule it breaks and where its figures come from."""
    common = broken_rules(settings.policy_for(""), limit_name="agent_timeout")
    problems = [_problem(settings, rule) for rule in common]
    for role in settings.known_roles():
        own = broken_rules(settings.policy_for(role), limit_name="agent_timeout")
        problems += [_problem(settings, rule, role) for rule in own if rule not in common]
    limits = {name: settings.value(name) for name in ("run_timeout", "run_idle", "run_silence")}
    rules = [require(limit != 0, '{} must be positive, or "off"', (name, "0 ms")) for name, limit in limits.items()]
    limit, idle = limits["run_timeout"], limits["run_idle"]
    if isinstance(limit, int) and isinstance(idle, int):
        figures = (("run_idle", f"{idle} ms"), ("run_timeout", f"{limit} ms"))
        rules.append(require(idle <= limit, "{} must be at most {}", *figures))
    rules += [*limit_rules(settings.limits()), *breaker_rules(settings.breaker()), *pace_rules(settings.pace())]
    return problems + [_problem(settings, rule) for rule in rules if not rule.holds]


def _problem(settings: Settings, rule: Requirement, role: str = "") -> SettingsProblem:
    """A broken rule, with where the figures that it names were set."""
    named = [name for name in SETTINGS if name in rule.figures]
    given = [settings.roles.get(role, {}).get(name) or settings.given.get(name) for name in named]
    sources = [one.source for one in given if one is not None]
    where = ", ".join(dict.fromkeys(source.where for source in sources))
    says = f"for role {role!r}, {rule.says}" if role else rule.says
    return SettingsProblem(says, where, sources[0].place if sources else None, "figures")
