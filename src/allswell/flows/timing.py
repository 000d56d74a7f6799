"""The figures of a flow file: `timeouts:`, and of each step `timeout_override` and `retry` (F12).

Every mistake is a finding with its place. What the file does not say comes from the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.retries import Retrying
from allswell.domain.arithmetic.steps import Need, StepFigures
from allswell.domain.deadline import ScopeKind, positive
from allswell.domain.policy import Policy, broken_rules
from allswell.domain.retry import RetryPolicy
from allswell.errors import Refused
from allswell.flows.complaints import Complaints, offer
from allswell.flows.loading import MappingEntry, Node
from allswell.settings.arithmetic import RETRY_FIGURES
from allswell.settings.catalogue import SETTINGS
from allswell.settings.settings import Settings
from allswell.settings.values import Unfit, read

_CALLS_MODELS = ("agent", "python")


class FlowStep(msgspec.Struct, frozen=True):
    """A step as far as time is concerned."""

    step: StepFigures
    override: Figure | None
    retry: RetryPolicy | None
    """Its own, where it says something of retries."""
    retries: tuple[Figure, Figure] | None
    """Its own number of retries and the total it must keep to, where it has such a number."""
    calls_models: bool


class Figures:
    """Reads what a file says about time."""

    def __init__(self, complaints: Complaints, settings: Settings) -> None:
        self._said = complaints
        self._settings = settings

    def timeouts(self, entry: MappingEntry | None) -> dict[ScopeKind, Figure]:
        """The limits of the flow's scopes: the file's, and the settings' for the rest."""
        usual = {kind: self._settings.figure(f"timeouts.{kind}") for kind in ScopeKind}
        return usual if entry is None else usual | dict(self._given(entry))

    def _given(self, entry: MappingEntry) -> Iterator[tuple[ScopeKind, Figure]]:
        kinds = tuple(kind.value for kind in ScopeKind)
        for name, given in self._said.mapping(entry, "timeouts", "such as `step: 10m`").items():
            if name not in kinds:
                self._said.wrong(given, f"There is no scope {name!r}.", offer(name, kinds))
            elif figure := self._duration(f"timeouts.{name}", given):
                yield ScopeKind(name), figure

    def step(self, id_: str, node: Node, given: dict[str, MappingEntry], usual: Figure) -> FlowStep:
        """One step's figures and needs."""
        override = None
        if entry := given.get("timeout_override"):
            override = self._duration(f"steps.{id_}.timeout_override", entry)
        limit = override or usual
        needs = tuple(self._needs(given["needs"], f"steps.{id_}")) if "needs" in given else ()
        policy, retrying, retries = None, None, None
        if "retry" in given:
            policy, retrying, retries = self._retry(given["retry"], id_, limit)
        made = StepFigures(id_, limit, needs, self._said.place(node), retrying)
        return FlowStep(made, override, policy, retries, any(key in given for key in _CALLS_MODELS))

    def _needs(self, entry: MappingEntry, path: str) -> Iterator[Need]:
        node = entry.node
        for one in node.value if isinstance(node.value, list) else [node]:
            if isinstance(one.value, str | int) and not isinstance(one.value, bool):
                yield Need(str(one.value), self._said.place(one))
            elif one.value is not None or one is not node:
                self._said.wrong(one, f"{path}.needs must be ids of steps.", "Write them as `needs: [a, b]`.")

    def _retry(
        self, entry: MappingEntry, id_: str, limit: Figure
    ) -> tuple[RetryPolicy | None, Retrying | None, tuple[Figure, Figure] | None]:
        """`retry: 2`, or a mapping with the names that `[retry]` has in the settings."""
        path = f"steps.{id_}.retry"
        given = {"retries": entry} if not isinstance(entry.node.value, dict) else entry.node.value
        policy = self._settings.policy_for("").retry
        figures: dict[str, Figure] = {}
        for key, one in given.items():
            if key not in RETRY_FIGURES:
                self._said.wrong(one, f"{path} has no figure {key!r}.", offer(key, RETRY_FIGURES))
                continue
            try:
                value = read(SETTINGS[f"retry.{key}"], one.node.plain())
            except Unfit as error:
                self._said.wrong(one, f"{path}: {error}.", "Give it such a value.")
                continue
            policy = msgspec.structs.replace(policy, **{key: value})
            name = path if one is entry else f"{path}.{key}"
            if isinstance(value, int | float):
                figures[key] = Figure(name, value, self._said.place(one))
        if broken := broken_rules(Policy(retry=policy)):
            self._said.wrong(entry, f"{path} cannot be: {'; '.join(broken)}.", "Mend these figures.")
            return None, None, None
        place = self._said.place(entry)
        retrying = Retrying(f"step {id_!r}", limit, policy, tuple(figures.values()), place=place)
        total = figures.get("max_attempts") or self._total(policy)
        return policy, retrying, (figures["retries"], total) if "retries" in figures else None

    def _total(self, policy: RetryPolicy) -> Figure:
        return msgspec.structs.replace(self._settings.figure("retry.max_attempts"), value=policy.max_attempts)

    def _duration(self, name: str, entry: MappingEntry) -> Figure | None:
        value = entry.node.value
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                said = f"{name} must be milliseconds, or a duration such as 15m"
                raise Refused("bad_duration", said, where=name)  # noqa: TRY301 - said as the parser says the rest
            return Figure(name, positive(value, where=name), self._said.place(entry))
        except Refused as error:
            self._said.wrong(entry, f"{error.message}.", "Write milliseconds, or a number with ms, s, m, h or d.")
            return None
