"""The arithmetic of a flow file: its figures put before the rules, in the order in which a reader meets them."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from allswell.domain.arithmetic.figure import Place
from allswell.domain.arithmetic.finding import Finding, Severity, worth_telling
from allswell.domain.arithmetic.retries import retries_above_total, retries_fit, retry_after_fits
from allswell.domain.arithmetic.scopes import ABOVE_HARD_LIMIT, above_hard_limit, never_fires, override_announced
from allswell.domain.arithmetic.steps import (
    CYCLE,
    UNKNOWN_NEED,
    critical_path,
    escalation_in_reach,
    needs_are_met,
)
from allswell.domain.deadline import ScopeKind
from allswell.errors import Refused
from allswell.flows.complaints import BAD_FLOW, INCOMPLETE
from allswell.flows.loading import BadYaml, load
from allswell.flows.reading import FlowReading, read_flow
from allswell.flows.spec import Flow
from allswell.flows.timing import FlowStep
from allswell.settings.arithmetic import calls
from allswell.settings.settings import Settings

_REFUSED = frozenset(rule.id for rule in (BAD_FLOW, INCOMPLETE, ABOVE_HARD_LIMIT, UNKNOWN_NEED, CYCLE))
"""What cannot be run at all. Other errors are limits that can never fire, and capped all the same."""


def findings(content: bytes | str, file: str, settings: Settings) -> list[Finding]:
    """What is wrong with a flow file, given the settings that fill in what it does not say."""
    return _checked(content, file, settings)[1]


def load_flow(content: bytes | str, file: str, settings: Settings) -> tuple[Flow, list[Finding]]:
    """A flow that can be run, with what is to be announced about it (F12); `Refused` with the first mistake."""
    flow, found = _checked(content, file, settings)
    refused = [one for one in found if one.rule in _REFUSED and one.severity is Severity.ERROR]
    if refused or flow is None:
        first = refused[0]
        more = f" ({len(refused) - 1} more: `allswell check {quote(file)}`)" if len(refused) > 1 else ""
        where = str(first.place or file)
        raise Refused("bad_flow", f"{where}: {first.says} {first.fix}{more}", where=where)
    return flow, found


def _checked(content: bytes | str, file: str, settings: Settings) -> tuple[Flow | None, list[Finding]]:
    try:
        root = load(content, file)
    except BadYaml as error:
        place = Place(file) if error.mark is None else Place(file, error.mark.line, error.mark.column)
        fix = "Nothing else was looked at; mend this and check again."
        return None, [BAD_FLOW.broken(f"{error.says[0].upper()}{error.says[1:]}.", (), fix=fix, place=place)]
    read = read_flow(root, file, settings)
    told = [
        *read.findings,
        *_flow(read, settings),
        *(one for step in read.steps for one in _step(step, read, settings)),
    ]
    return read.flow, list(dict.fromkeys(one for one in told if worth_telling(one)))


def _flow(read: FlowReading, settings: Settings) -> Iterator[Finding]:
    """What holds for the flow as a whole."""
    limits = read.timeouts
    for kind in ScopeKind:
        yield from above_hard_limit(limits[kind], settings.figure(f"hard_limits.{kind}"))
    flow, step = limits[ScopeKind.FLOW], limits[ScopeKind.STEP]
    yield from never_fires(step, flow)
    for kind in (ScopeKind.LLM_CALL, ScopeKind.TOOL):
        if limits[kind].written:  # a default that a shorter step cuts off does no harm, and nobody can mend it
            yield from never_fires(limits[kind], step)
    if not read.steps or any(one.calls_models for one in read.steps):
        retrying = calls(settings, limits[ScopeKind.LLM_CALL])
        yield from retries_fit(retrying, step, most=settings.limits().hard_limit(ScopeKind.STEP))
        yield from retry_after_fits(settings.figure("retry.retry_after_cap"), step)
    if step.value < flow.value:
        yield from escalation_in_reach(step, flow, settings.figure("timeout_escalation"))
    steps = [one.step for one in read.steps]
    yield from needs_are_met(steps)
    yield from critical_path(steps, flow, most=settings.limits().hard_limit(ScopeKind.FLOW))


def _step(one: FlowStep, read: FlowReading, settings: Settings) -> Iterator[Finding]:
    """What holds for one step."""
    flow = read.timeouts[ScopeKind.FLOW]
    if one.override is not None:
        yield from override_announced(one.override, settings.figure("hard_limits.step"))
        yield from never_fires(one.override, flow)
        if one.calls_models and one.override.value < read.timeouts[ScopeKind.STEP].value:
            # It may never call one, or only once: nothing is certain here.
            retrying = calls(settings, read.timeouts[ScopeKind.LLM_CALL])
            yield from retries_fit(retrying, one.override, severity=Severity.WARNING)
    if one.retries is not None:
        yield from retries_above_total(*one.retries)
    if one.step.retrying is not None and one.step.limit.value < flow.value:
        yield from retries_fit(one.step.retrying, flow, most=settings.limits().hard_limit(ScopeKind.FLOW))
