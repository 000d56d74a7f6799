"""The arithmetic of a flow file: its figures put before the rules, in the order in which a reader meets them."""

from __future__ import annotations

from collections.abc import Iterator

from allswell.domain.arithmetic.figure import Place
from allswell.domain.arithmetic.finding import Finding, Severity, worth_telling
from allswell.domain.arithmetic.retries import retries_above_total, retries_fit, retry_after_fits
from allswell.domain.arithmetic.scopes import above_hard_limit, never_fires, override_announced
from allswell.domain.arithmetic.steps import critical_path, escalation_in_reach, needs_are_met
from allswell.domain.deadline import ScopeKind
from allswell.flows.loading import BadYaml, load
from allswell.flows.timing import BAD_FLOW, FlowStep, FlowTiming, read_timing
from allswell.settings.arithmetic import calls
from allswell.settings.settings import Settings


def findings(content: bytes | str, file: str, settings: Settings) -> list[Finding]:
    """What is wrong with a flow file, given the settings that fill in what it does not say."""
    try:
        root = load(content, file)
    except BadYaml as error:
        place = Place(file) if error.mark is None else Place(file, error.mark.line, error.mark.column)
        fix = "Nothing else was looked at; mend this and check again."
        return [BAD_FLOW.broken(f"{error.says[0].upper()}{error.says[1:]}.", (), fix=fix, place=place)]
    timing = read_timing(root, file, settings)
    told = [
        *timing.findings,
        *_flow(timing, settings),
        *(one for step in timing.steps for one in _step(step, timing, settings)),
    ]
    return list(dict.fromkeys(one for one in told if worth_telling(one)))


def _flow(timing: FlowTiming, settings: Settings) -> Iterator[Finding]:
    """What holds for the flow as a whole."""
    limits = timing.timeouts
    for kind in ScopeKind:
        yield from above_hard_limit(limits[kind], settings.figure(f"hard_limits.{kind}"))
    flow, step = limits[ScopeKind.FLOW], limits[ScopeKind.STEP]
    yield from never_fires(step, flow)
    yield from never_fires(limits[ScopeKind.LLM_CALL], step)
    yield from never_fires(limits[ScopeKind.TOOL], step)
    retrying = calls(settings, limits[ScopeKind.LLM_CALL])
    yield from retries_fit(retrying, step, most=settings.limits().hard_limit(ScopeKind.STEP))
    yield from retry_after_fits(settings.figure("retry.retry_after_cap"), step)
    if step.value < flow.value:
        yield from escalation_in_reach(step, flow, settings.figure("timeout_escalation"))
    steps = [one.step for one in timing.steps]
    yield from needs_are_met(steps)
    yield from critical_path(steps, flow, most=settings.limits().hard_limit(ScopeKind.FLOW))


def _step(one: FlowStep, timing: FlowTiming, settings: Settings) -> Iterator[Finding]:
    """What holds for one step."""
    flow = timing.timeouts[ScopeKind.FLOW]
    if one.override is not None:
        yield from override_announced(one.override, settings.figure("hard_limits.step"))
        yield from never_fires(one.override, flow)
        if one.calls_models and one.override.value < timing.timeouts[ScopeKind.STEP].value:
            # It may never call one, or only once: nothing is certain here.
            retrying = calls(settings, timing.timeouts[ScopeKind.LLM_CALL])
            yield from retries_fit(retrying, one.override, severity=Severity.WARNING)
    if one.retries is not None:
        yield from retries_above_total(*one.retries)
    if one.step.retrying is not None and one.step.limit.value < flow.value:
        yield from retries_fit(one.step.retrying, flow, most=settings.limits().hard_limit(ScopeKind.FLOW))
