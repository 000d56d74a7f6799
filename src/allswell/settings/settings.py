"""The settings as loaded: what the parts of the watch are made with, and a row for each to explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from allswell.domain.agents.cost import from_usd
from allswell.domain.agents.quota import Quota
from allswell.domain.build.limits import BuildLimits
from allswell.domain.check.model import CheckFigure
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.mesh.request import KINDS, Escalation, MeshFigures, RequestKind
from allswell.domain.scopes import HardLimits, ScopeLimits, Timeouts
from allswell.domain.service.breaker import BreakerPolicy
from allswell.domain.service.retry import RetryPolicy
from allswell.domain.task.model import Policy
from allswell.domain.values import command_of, hide, scheme_of
from allswell.engine.budget import Budgets
from allswell.engine.timings import HealthThresholds, Timings
from allswell.errors import Refused
from allswell.settings.schema import PER_ROLE, ROLES, SETTINGS
from allswell.settings.sources import USER, Part, SettingsProblem, Source, user_file
from allswell.settings.values import SettingKind, Value

if TYPE_CHECKING:
    from allswell.domain.agents.cost import Price
    from allswell.domain.agents.fleet import AgentSpec, Fleet
    from allswell.domain.notify.spec import HookSpec, SinkSpec
    from allswell.domain.question import Pause

BY_DEFAULT = Source("default")
TRUST_IT = "read it, then type `allswell trust`"
_RETRY, _PACE, _DOCTOR, _DAY_COST = "retry.", "pace.", "doctor.", "max_cost_usd_per_day"
_BREAKER, _BUILD, _QUOTA, _REQUESTS = "breaker.", "build.", "quota.", "requests."
_TIMEOUTS, _HARD_LIMITS = "timeouts.", "hard_limits."


class SourcedValue(msgspec.Struct, frozen=True):
    """A value and its source."""

    value: Value
    source: Source


class SettingRow(msgspec.Struct, frozen=True):
    """One setting; `kind` tells what the value is: a `duration` is whole milliseconds. `shown` is it for people."""

    name: str
    role: str
    """Whose it is, where it is a role's own."""
    kind: str
    value: Value
    default: Value
    shown: str
    shown_default: str
    source: str
    where: str
    env: str
    description: str


class Settings(msgspec.Struct, frozen=True):
    """Every setting with its source."""

    given: Mapping[str, SourcedValue]
    """What was set, by name."""
    roles: Mapping[str, Mapping[str, SourcedValue]]
    """What was set for a role, by role and name."""
    default_store: str
    """Where the watch lives if nobody says so."""
    files: tuple[str, ...] = ()
    """The files that were read, the weaker first."""
    problems: tuple[SettingsProblem, ...] = ()
    """What is wrong; of settings that `load` returned, at most with agents and sinks."""
    strangers: tuple[str, ...] = ()
    """Variables of the environment that look like settings and are none."""
    agents: Fleet | None = None
    """What the files say about agents, if they say anything."""
    told: Mapping[str, SinkSpec] | None = None
    """What the files say about sinks, if they say anything."""
    secrets: Mapping[str, tuple[str, ...]] = {}
    """By host, the variables that hold what signs webhook requests to it."""
    own_prices: Mapping[str, Price] = {}
    """What the files say about prices of models."""
    hooked: Mapping[str, HookSpec] = {}
    """What the files say about hooks."""
    found: str | None = None
    """The folder of the store that was found upward; None: there is none yet."""
    untrusted: SettingsProblem | None = None
    """Why the store that was found is not used; it concerns only those who name no other one."""
    untrusted_files: tuple[str, ...] = ()
    """Files with settings that came with the folder, and that their user has not trusted: they were not read."""
    skipped: tuple[str, ...] = ()
    """Files and stores that were left out because they were not trusted, where that was asked for."""

    @property
    def fleet(self) -> Fleet:
        """The agents that are set up here; `Refused` if anything is wrong with them."""
        from allswell.domain.agents.fleet import Fleet

        fleet = self.without("agents").agents or Fleet()
        limit = self.repeat_limit or 0
        specs = {
            name: spec if spec.repeat_limit is not None else msgspec.structs.replace(spec, repeat_limit=limit)
            for name, spec in fleet.agents.items()
        }
        return msgspec.structs.replace(fleet, agents=specs)

    @property
    def repeat_limit(self) -> int | None:
        """After so many rounds what an agent repeats is no progress any more; None: it is not looked for."""
        limit = self.value("repeat_limit")
        return int(limit) or None if isinstance(limit, int) else None

    @property
    def prices(self) -> Mapping[str, Price]:
        """What models cost, where their client has not told it yet: the rows of the files, and our own table."""
        from allswell.domain.agents.cost import with_own

        return with_own(self.own_prices)

    @property
    def sinks(self) -> Mapping[str, SinkSpec]:
        """Who is told; `Refused` if anything is wrong with them."""
        return self.without("sinks").told or {}

    @property
    def hooks(self) -> Mapping[str, HookSpec]:
        """What becomes of webhooks from elsewhere; `Refused` if anything is wrong with them."""
        return self.without("hooks").hooked

    @property
    def public_origin(self) -> str | None:
        """What the answer links in alerts begin with; None: `public_url` is not set, or is no host over TLS."""
        from allswell.domain.access.answer_link import https_origin  # it loads OpenSSL, which takes its time

        return https_origin(str(self.value("public_url") or ""))

    @property
    def known_agents(self) -> Mapping[str, AgentSpec]:
        """The agents as far as they can be read: for those who only look."""
        return {} if self.agents is None else self.agents.agents

    def check_trusted(self) -> None:
        """Refuse to go on without settings that came with the folder and that their user has not trusted."""
        if self.untrusted_files:
            path = self.untrusted_files[0]
            reason = f"{path} may have come with this folder: you have not trusted it"
            raise Refused("untrusted", f"{reason}: it could name commands to run; {TRUST_IT}", where=path)

    def without(self, *parts: Part) -> Settings:
        """The same settings, if there is nothing wrong with these parts of them; else `Refused` with all of it."""
        if "all" in parts:
            self.check_trusted()
        wrong = [problem for problem in self.problems if problem.part in parts]
        if wrong:
            listed = "; ".join(map(str, wrong))
            raise Refused("bad_setting", f"the settings are wrong: {listed}", where=wrong[0].where or None)
        return self

    def value(self, name: str, role: str = "") -> Value:
        """A setting's value, for a role: its own, or what everybody has."""
        return self._given(name, role).value

    def _given(self, name: str, role: str = "") -> SourcedValue:
        own = self._own(name, role)
        if own is not None:
            return own
        if role and name == "idle" and not self._idle_fits(role):
            return SourcedValue(None, BY_DEFAULT)
        return self.given.get(name) or SourcedValue(SETTINGS[name].default, BY_DEFAULT)

    def _own(self, name: str, role: str) -> SourcedValue | None:
        own = self.roles.get(role, {}).get(name)
        if own is None and name in ROLES.get(role, {}):
            own = SourcedValue(ROLES[role][name], BY_DEFAULT)
        return own

    def _idle_fits(self, role: str) -> bool:
        """Whether everybody's idle limit could bite before this role's run limit does; else it is not inherited."""
        idle, limit = self.value("idle"), self.value("agent_timeout", role)
        return not (isinstance(idle, int) and isinstance(limit, int)) or idle <= limit

    def figure(self, name: str, role: str = "") -> CheckFigure:
        """A setting as a figure with its place, for the rules of the arithmetic; what is inherited keeps its name."""
        given = self._given(name, role)
        path = name if self._own(name, role) is None else f"roles.{role}.{name}"
        value = given.value if isinstance(given.value, int | float) else 0
        if SETTINGS[name].kind is SettingKind.SECONDS:
            value = round(value * 1_000)
        return CheckFigure(path, value, given.source.place)

    # --- what the parts are made with ---------------------------------------------------------------------------------

    @property
    def store(self) -> str:
        """The URL of the store; `Refused` if the one that was found is not to be trusted and nobody names another."""
        given = self.given.get("store")
        if given is None or not given.value:
            return self.found_store
        url = str(given.value)
        if given.source.folder is not None and given.source.kind != USER and _wants_key(url):
            text = (
                f"{given.source.where} names the server {hide(url)}, and a key is sent only to servers that you name "
                f"yourself: set ALLSWELL_STORE, use --store, or write it into {user_file()}"
            )
            raise Refused("key_withheld", text, where=given.source.where)
        return url

    @property
    def found_store(self) -> str:
        """The URL of the store that the search upward comes to; `Refused` if that is not to be trusted."""
        if self.untrusted is not None:
            says = f"the store that was found is not used: {self.untrusted.says}"
            raise Refused("untrusted", says, where=self.untrusted.where)
        return self.default_store

    @property
    def pause_on_question(self) -> Pause:
        """What an open question about a task holds back."""
        return cast("Pause", self.value("pause_on_question"))

    def policy_for(self, role: str) -> Policy:
        """The policy of tasks of a role; "" is that of all others."""
        fields: dict[str, Any] = {}
        retry: dict[str, Any] = {}
        for name in PER_ROLE:
            table, key = (retry, name.removeprefix(_RETRY)) if name.startswith(_RETRY) else (fields, name)
            table["timeout" if key == "agent_timeout" else key] = self.value(name, role)
        cost = fields.pop("max_cost_usd")
        fields["max_cost"] = None if cost is None else from_usd(cost)
        del fields["max_cost_usd_per_day"]  # of all tasks together
        fields["verify"] = () if fields["verify"] is None else command_of(fields["verify"], "verify")
        return Policy(**fields, retry=RetryPolicy(**retry))

    def run_limit(self, name: Literal["timeout", "idle"]) -> int | None:
        """The limit of a command under `allswell run`, if one was asked for: for `run`, or for tasks of that role."""
        value = self.value(f"run_{name}")
        if value is None and f"run_{name}" not in self.given:
            of_role = self._own("agent_timeout" if name == "timeout" else name, RUN_ROLE)
            value = None if of_role is None else of_role.value
        return value if isinstance(value, int) else None

    def budgets(self) -> Budgets:
        """What may be spent in a day, by all and by each role that has a limit of its own."""
        day = self.value(_DAY_COST)
        own = {role: given.value for role in self.known_roles() if (given := self._own(_DAY_COST, role)) is not None}
        roles = {role: from_usd(float(cost)) for role, cost in own.items() if isinstance(cost, int | float)}
        known = {role: cost for role, cost in roles.items() if cost is not None}
        return Budgets(from_usd(float(day)) if isinstance(day, int | float) else None, known)

    def policies(self) -> dict[str, Policy]:
        """The policy of every role that has one of its own, and under "" that of all others: for `make_watch`."""
        return {role: self.policy_for(role) for role in ("", *self.known_roles())}

    def known_roles(self) -> list[str]:
        """Roles with settings of their own."""
        return sorted({*ROLES, *self.roles})

    def limits(self) -> ScopeLimits:
        """How long scopes may take."""
        timeouts = {name: int(value or 0) for name, value in self._table(_TIMEOUTS)}
        hard_limits = {name: int(value or 0) for name, value in self._table(_HARD_LIMITS)}
        return ScopeLimits(Timeouts(**timeouts), HardLimits(**hard_limits), int(self.value("scope_grace") or 0))

    def breaker(self) -> BreakerPolicy:
        """When a service is left alone."""
        figures: dict[str, Any] = dict(self._table(_BREAKER))
        del figures["first_call"]  # of calls, not of the breaker
        return BreakerPolicy(**figures)

    @property
    def patient(self) -> bool:
        """Whether a first attempt, too, waits out an open breaker's pause."""
        return self.value("breaker.first_call") == "wait"

    def quota(self) -> Quota:
        """What one attempt may put into the store."""
        return Quota(**{name: int(value or 0) for name, value in self._table(_QUOTA)})

    def escalation(self) -> Escalation:
        """When it is told that a request still blocks its task."""
        after, remind = self.value("mesh.escalate"), self.value("mesh.remind")
        return Escalation(int(after or 0), None if remind is None else int(remind))

    @property
    def webhook_secrets(self) -> Mapping[str, tuple[str, ...]]:
        """By host, the variables that hold what signs webhook requests; `Refused` if anything is wrong with them."""
        return self.without("sinks").secrets

    @property
    def private_webhooks(self) -> bool:
        """Whether webhook requests may go to private addresses, and without TLS."""
        return self.value("webhook_hosts") == "private"

    def mesh(self) -> MeshFigures:
        """All that is set about requests between agents, with the agents that are set up."""
        figures = {name: int(value or 0) for name, value in self._table(_REQUESTS)}
        kinds = {kind: RequestKind(figures[f"{kind}_timeout"], figures[f"{kind}_retries"]) for kind in KINDS}
        return MeshFigures(kinds, self.escalation(), tuple(self.known_agents), self.private_webhooks, self.secrets)

    def build(self) -> BuildLimits:
        """What a build may take."""
        figures = {name: int(value or 0) for name, value in self._table(_BUILD)}
        return BuildLimits(build=figures.pop("limit"), **figures)

    def pace(self) -> Timings:
        """How patient the engine is."""
        return Timings(**{name: float(value or 0) / 1_000 for name, value in self._table(_PACE)})

    def tolerance(self) -> HealthThresholds:
        """How much may be amiss before the doctor says so."""
        return HealthThresholds(**{name: int(value or 0) for name, value in self._table(_DOCTOR)})

    def _table(self, prefix: str) -> Iterator[tuple[str, Value]]:
        for name in SETTINGS:
            if name.startswith(prefix):
                yield name.removeprefix(prefix), self.value(name)

    def _where_found(self) -> str:
        """What is to be said about the store that the search upward comes to."""
        if self.untrusted is not None:
            return self.untrusted.says
        return "to be made here" if self.found is None else f"found: {self.found}"

    # --- explaining ---------------------------------------------------------------------------------------------------

    def explain(self) -> list[SettingRow]:
        """A row for every setting, and for what roles have of their own."""
        rows = [self.explain_one(name) for name in SETTINGS]
        for role in self.known_roles():
            rows += [self.explain_one(name, role) for name in PER_ROLE if self._own(name, role) is not None]
        return rows

    def explain_one(self, name: str, role: str = "") -> SettingRow:
        """A row for one setting; for a role, what it has of its own or inherits."""
        setting = SETTINGS[name]
        given = self._given(name, role)
        value, default = given.value, ROLES.get(role, {}).get(name, setting.default)
        if name == "store":
            value, default = hide(str(value or self.default_store)), hide(self.default_store)
        return SettingRow(
            name=f"roles.{role}.{name}" if role else name,
            role=role,
            value=value,
            default=default,
            source=given.source.kind,
            where=given.source.where or (self._where_found() if name == "store" else ""),
            kind=setting.kind.value,
            env=setting.env(role or None),
            description=setting.description,
            shown=setting.show(value),
            shown_default=setting.show(default),
        )


def _wants_key(url: str) -> bool:
    """Whether a server is called under this URL, to which the key of the environment would be sent."""
    return scheme_of(url) in ("https", "http", "http+unix")
