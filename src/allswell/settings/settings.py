"""The settings as loaded: what the parts of the watch are made with, and a row for each to explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from allswell.domain.argv import command_of
from allswell.domain.arithmetic.figure import Figure
from allswell.domain.breaker import BreakerPolicy
from allswell.domain.deadline import HardLimits, Limits, Timeouts
from allswell.domain.expense import from_usd
from allswell.domain.policy import Policy
from allswell.domain.quota import Quota
from allswell.domain.request import KINDS, Escalation, MeshFigures, RequestKind
from allswell.domain.retry import RetryPolicy
from allswell.domain.store_url import hide
from allswell.engine.budgeting import Budgets
from allswell.engine.pace import Pace
from allswell.engine.tolerance import Tolerance
from allswell.errors import Refused
from allswell.settings.catalogue import PER_ROLE, ROLES, SETTINGS
from allswell.settings.setting import Kind, Value
from allswell.settings.sources import Part, Problem, Source
from allswell.settings.values import show

if TYPE_CHECKING:
    from allswell.domain.fleet import AgentSpec, Fleet
    from allswell.domain.hook_spec import HookSpec
    from allswell.domain.question import Pause
    from allswell.domain.sink_spec import SinkSpec

BY_DEFAULT = Source("default")
_RETRY, _PACE, _DOCTOR, _DAY_COST = "retry.", "pace.", "doctor.", "max_cost_usd_per_day"
_BREAKER, _QUOTA, _REQUESTS = "breaker.", "quota.", "requests."
_TIMEOUTS, _HARD_LIMITS = "timeouts.", "hard_limits."


class Given(msgspec.Struct, frozen=True):
    """A value and its source."""

    value: Value
    source: Source


class Row(msgspec.Struct, frozen=True):
    """One setting, explained."""

    name: str
    role: str
    """Whose it is, where it is a role's own."""
    value: Value
    default: Value
    source: str
    where: str
    kind: str
    env: str
    description: str
    shown: str
    """The value as people read it."""
    shown_default: str


class Settings(msgspec.Struct, frozen=True):
    """Every setting with its source."""

    given: Mapping[str, Given]
    """What was set, by name."""
    roles: Mapping[str, Mapping[str, Given]]
    """What was set for a role, by role and name."""
    default_store: str
    """Where the watch lives if nobody says so."""
    files: tuple[str, ...] = ()
    """The files that were read, the weaker first."""
    problems: tuple[Problem, ...] = ()
    """What is wrong; of settings that `load` returned, at most with agents and sinks."""
    strangers: tuple[str, ...] = ()
    """Variables of the environment that look like settings and are none."""
    agents: Fleet | None = None
    """What the files say about agents, if they say anything."""
    told: Mapping[str, SinkSpec] | None = None
    """What the files say about sinks, if they say anything."""
    secrets: Mapping[str, tuple[str, ...]] = {}
    """By host, the variables that hold what signs webhook requests to it."""
    hooked: Mapping[str, HookSpec] = {}
    """What the files say about hooks."""
    found: str | None = None
    """The folder of the store that was found upward; None: there is none yet."""
    untrusted: Problem | None = None
    """Why the store that was found is not used; it concerns only those who name no other one."""

    @property
    def fleet(self) -> Fleet:
        """The agents that are set up here; `Refused` if anything is wrong with them."""
        from allswell.domain.fleet import Fleet

        return self.without("agents").agents or Fleet()

    @property
    def sinks(self) -> Mapping[str, SinkSpec]:
        """Who is told; `Refused` if anything is wrong with them."""
        return self.without("sinks").told or {}

    @property
    def hooks(self) -> Mapping[str, HookSpec]:
        """What becomes of webhooks from elsewhere; `Refused` if anything is wrong with them."""
        return self.without("hooks").hooked

    @property
    def known_agents(self) -> Mapping[str, AgentSpec]:
        """The agents as far as they can be read: for those who only look."""
        return {} if self.agents is None else self.agents.agents

    def without(self, *parts: Part) -> Settings:
        """The same settings, if there is nothing wrong with these parts of them; else `Refused` with all of it."""
        wrong = [problem for problem in self.problems if problem.part in parts]
        if wrong:
            listed = "; ".join(map(str, wrong))
            raise Refused("bad_setting", f"the settings are wrong: {listed}", where=wrong[0].where or None)
        return self

    def value(self, name: str, role: str = "") -> Value:
        """A setting's value, for a role: its own, or what everybody has."""
        return self._given(name, role).value

    def _given(self, name: str, role: str = "") -> Given:
        own = self._own(name, role)
        if own is not None:
            return own
        if role and name == "idle" and not self._idle_fits(role):
            return Given(None, BY_DEFAULT)
        return self.given.get(name) or Given(SETTINGS[name].default, BY_DEFAULT)

    def _own(self, name: str, role: str) -> Given | None:
        own = self.roles.get(role, {}).get(name)
        if own is None and name in ROLES.get(role, {}):
            own = Given(ROLES[role][name], BY_DEFAULT)
        return own

    def _idle_fits(self, role: str) -> bool:
        """Whether everybody's idle limit could bite before this role's run limit does; else it is not inherited."""
        idle, limit = self.value("idle"), self.value("agent_timeout", role)
        return not (isinstance(idle, int) and isinstance(limit, int)) or idle <= limit

    def figure(self, name: str, role: str = "") -> Figure:
        """A setting as a figure with its place, for the rules of the arithmetic; what is inherited keeps its name."""
        given = self._given(name, role)
        path = name if self._own(name, role) is None else f"roles.{role}.{name}"
        value = given.value if isinstance(given.value, int | float) else 0
        if SETTINGS[name].kind is Kind.SECONDS:
            value = round(value * 1_000)
        return Figure(path, value, given.source.place)

    # --- what the parts are made with ---------------------------------------------------------------------------------

    @property
    def store(self) -> str:
        """The URL of the store; `Refused` if the one that was found is not to be trusted and nobody names another."""
        return str(self.value("store") or self.found_store)

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

    def limits(self) -> Limits:
        """How long scopes may take."""
        timeouts = {name: int(value or 0) for name, value in self._table(_TIMEOUTS)}
        hard_limits = {name: int(value or 0) for name, value in self._table(_HARD_LIMITS)}
        return Limits(Timeouts(**timeouts), HardLimits(**hard_limits), int(self.value("scope_grace") or 0))

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

    def pace(self) -> Pace:
        """How patient the engine is."""
        return Pace(**{name: float(value or 0) / 1_000 for name, value in self._table(_PACE)})

    def tolerance(self) -> Tolerance:
        """How much may be amiss before the doctor says so."""
        return Tolerance(**{name: int(value or 0) for name, value in self._table(_DOCTOR)})

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

    def explain(self) -> list[Row]:
        """A row for every setting, and for what roles have of their own."""
        rows = [self.explain_one(name) for name in SETTINGS]
        for role in self.known_roles():
            rows += [self.explain_one(name, role) for name in PER_ROLE if self._own(name, role) is not None]
        return rows

    def explain_one(self, name: str, role: str = "") -> Row:
        """A row for one setting; for a role, what it has of its own or inherits."""
        setting = SETTINGS[name]
        given = self._given(name, role)
        value, default = given.value, ROLES.get(role, {}).get(name, setting.default)
        if name == "store":
            value, default = hide(str(value or self.default_store)), hide(self.default_store)
        return Row(
            name=f"roles.{role}.{name}" if role else name,
            role=role,
            value=value,
            default=default,
            source=given.source.kind,
            where=given.source.where or (self._where_found() if name == "store" else ""),
            kind=setting.kind.value,
            env=setting.env(role or None),
            description=setting.description,
            shown=show(setting, value),
            shown_default=show(setting, default),
        )
