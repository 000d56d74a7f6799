"""A flow file as a JSON Schema, for editors that complete and check it; `flow.schema.json` is written from it.

It says what has which shape. What only the whole file can tell (needs that name no step, cycles, a `{{ }}` without a
value, a limit above its hard limit) is `allswell check`'s to say. A test holds it and the loader to the same corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

import msgspec

from allswell.domain.check.model import CheckFigure, Finding, Location, Severity, worth_telling
from allswell.domain.check.retries import retries_above_total, retries_fit, retry_after_fits
from allswell.domain.check.scopes import (
    ABOVE_HARD_LIMIT,
    CYCLE,
    UNKNOWN_NEED,
    above_hard_limit,
    critical_path,
    escalation_in_reach,
    needs_are_met,
    never_fires,
    override_announced,
)
from allswell.domain.lease.claim import STEP_ROLE
from allswell.domain.scopes import ScopeKind
from allswell.errors import Refused
from allswell.flows.loader import BAD_FLOW, INCOMPLETE, BadYaml, load
from allswell.flows.reader import AUDIT_KEYS, STEP_KEYS, TOP_KEYS, FlowReading, FlowStep, read_flow
from allswell.flows.spec import FLOW_NAME, NAME, STEP_ID, Flow
from allswell.settings.check import RETRY_FIGURES, calls
from allswell.settings.schema import SETTINGS
from allswell.settings.schema import schema as of_settings
from allswell.settings.settings import Settings
from allswell.settings.values import DURATION_PATTERN

Shape = dict[str, Any]

_SCALAR: Shape = {"type": ["string", "number", "boolean"]}
_TEXT: Shape = {"type": ["string", "number"]}
_DURATION: Shape = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": DURATION_PATTERN}]}
_COMMAND: Shape = {
    "anyOf": [
        {"type": "string", "minLength": 1, "pattern": r"\S"},
        {"type": "array", "items": _SCALAR, "minItems": 1},
    ],
    "description": "A program with its arguments: a list of words, or a text that is split into words without a shell.",
}
_PATH: Shape = {"type": "string", "minLength": 1, "pattern": r"^(?![/~])(?!(.*/)?(\.\.|\.git|\.allswell)(/|$))"}
_AGENT: Shape = {"type": ["string", "number"], "description": "An agent that the settings know by name."}
_PROMPT: Shape = {"type": ["string", "number"], "pattern": r"\S", "description": "What the agent shall do."}


def _anchored(pattern: str) -> str:
    return f"^{pattern}$"


def _named(value: Shape, **more: object) -> Shape:
    """A mapping from names to values of one shape; nothing at all is an empty one."""
    names = {"pattern": _anchored(NAME.pattern)}
    return {"type": ["object", "null"], "propertyNames": names, "additionalProperties": value, **more}


def _work(*kinds: str) -> Shape:
    """Exactly one kind of work."""
    choices = [
        {"required": [kind, *(["prompt"] if kind == "agent" else [])], "not": {"anyOf": _without(kind, kinds)}}
        for kind in kinds
    ]
    return {"oneOf": choices}


def _without(kind: str, kinds: tuple[str, ...]) -> list[Shape]:
    others = [other for other in kinds if other != kind] + (["prompt"] if kind != "agent" else [])
    return [{"required": [other]} for other in others]


def _step() -> Shape:
    retry = of_settings()["properties"]["retry"]["properties"]
    figures = {name: retry[name] for name in RETRY_FIGURES}
    parts: Shape = {
        "id": {
            "anyOf": [{"type": "string", "pattern": _anchored(STEP_ID.pattern)}, {"type": "integer", "minimum": 0}],
            "description": "What it is called; it names files and values.",
        },
        "needs": {
            "anyOf": [
                {"type": ["string", "integer", "null"]},
                {"type": "array", "items": {"type": ["string", "integer"]}},
            ],
            "description": "The steps that must have ended well before this one begins.",
        },
        "run": _COMMAND,
        "agent": _AGENT,
        "prompt": _PROMPT,
        "python": {
            "type": "string",
            "pattern": r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$",
            "description": "A function, as `module:function`; `inputs` are its keyword arguments.",
        },
        "inputs": _named({}, description="The arguments of a python step."),
        "env": _named(
            {"type": ["string", "number", "null"]},
            propertyNames={"pattern": r"^(?!ALLSWELL_)" + NAME.pattern + "$"},
            description="Variables of the environment, beside those that every command gets.",
        ),
        "outputs": {
            "anyOf": [_PATH, {"type": "array", "items": _PATH, "uniqueItems": True}, _named(_PATH, type="object")],
            "description": "Files that it leaves, below the flow's folder.",
        },
        "timeout_override": {
            **_DURATION,
            "description": "The limit of this one step; it may be above the hard limit, and is announced (F12).",
        },
        "retry": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "object", "properties": figures, "additionalProperties": False},
            ],
            "description": "How often a failed attempt is repeated: a number, or figures as in [retry] of settings.",
        },
        "matrix": {
            **_named({"type": "array", "items": _SCALAR, "minItems": 1, "uniqueItems": True}),
            "type": "object",
            "minProperties": 1,
            "description": "One member of the step for each combination of these values.",
        },
    }
    parts["verify"] = {
        **_COMMAND,
        "description": "A command that must pass before the step is done; after verify_attempts failures (3) a human.",
    }
    parts["audit"] = {
        "anyOf": [
            *_COMMAND["anyOf"],
            {
                "type": "object",
                "properties": {key: parts[key] for key in AUDIT_KEYS},
                "additionalProperties": False,
                **_work("run", "agent"),
            },
        ],
        "description": "What passes or fails the work: exit code 0 passes it; after 3 failures a human is asked.",
    }
    inputs_want_python = {"if": {"required": ["inputs"]}, "then": {"required": ["python"]}}
    return {
        "type": "object",
        "properties": {key: parts[key] for key in STEP_KEYS},
        "required": ["id"],
        "additionalProperties": False,
        "allOf": [_work("run", "agent", "python"), inputs_want_python],
    }


def schema() -> Shape:
    """What a flow file may hold."""
    kinds = {kind.value: {**_DURATION, "description": SETTINGS[f"timeouts.{kind}"].description} for kind in ScopeKind}
    described = {
        "type": "object",
        "properties": {"default": {"type": ["string", "number", "boolean", "null"]}, "description": _TEXT},
        "additionalProperties": False,
    }
    parts: Shape = {
        "name": {"type": "string", "pattern": _anchored(FLOW_NAME.pattern), "description": "By default the file's."},
        "description": _TEXT,
        "inputs": _named(
            {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, described]},
            description="What the flow is started with: a name with its default, or with nothing if it must be given.",
        ),
        "timeouts": {"type": ["object", "null"], "properties": kinds, "additionalProperties": False},
        "steps": {"type": "array", "items": _step(), "minItems": 1},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A flow of Allswell",
        "type": "object",
        "properties": {key: parts[key] for key in TOP_KEYS},
        "required": ["steps"],
        "additionalProperties": False,
    }


# The arithmetic of a flow file: its figures put before the rules, in the order in which a reader meets them.

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
        place = Location(file) if error.mark is None else Location(file, error.mark.line, error.mark.column)
        fix = "Nothing else was looked at; fix this and check again."
        return None, [BAD_FLOW.broken(f"{error.says[0].upper()}{error.says[1:]}.", (), fix=fix, place=place)]
    read = read_flow(root, file, settings)
    told = [
        *read.findings,
        *_flow(read, settings),
        *(one for step in read.steps for one in _step_figures(step, read, settings)),
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


def _not_here(inner: CheckFigure, outer: CheckFigure) -> Iterator[Finding]:
    """A limit that cannot be reached in one step: in others it can be, so that it is a warning."""
    for found in never_fires(inner, outer):
        yield msgspec.structs.replace(found, severity=Severity.WARNING)


def _step_figures(one: FlowStep, read: FlowReading, settings: Settings) -> Iterator[Finding]:
    """What holds for one step."""
    flow = read.timeouts[ScopeKind.FLOW]
    if one.override is not None:
        yield from override_announced(one.override, settings.figure("hard_limits.step"))
        yield from never_fires(one.override, flow)
        if one.calls_models and one.override.value < read.timeouts[ScopeKind.STEP].value:
            # It may never call one, or only once: nothing is certain here.
            retrying = calls(settings, read.timeouts[ScopeKind.LLM_CALL])
            yield from retries_fit(retrying, one.override, severity=Severity.WARNING)
        for kind in (ScopeKind.LLM_CALL, ScopeKind.TOOL):
            if one.calls_models and read.timeouts[kind].written:
                yield from _not_here(read.timeouts[kind], one.override)
    verify = settings.figure("verify_timeout", STEP_ROLE)
    if one.verifies and verify.written:
        yield from _not_here(verify, one.step.limit)
    if one.retries is not None:
        yield from retries_above_total(*one.retries)
    if one.step.retrying is not None and one.step.limit.value < flow.value:
        yield from retries_fit(one.step.retrying, flow, most=settings.limits().hard_limit(ScopeKind.FLOW))
