"""A flow file as a JSON Schema, for editors that complete and check it; `flow.schema.json` is written from it.

It says what has which shape. What only the whole file can tell (needs that name no step, cycles, a `{{ }}` without a
value, a limit above its hard limit) is `allswell check`'s to say. A test holds it and the loader to the same corpus.
"""

from __future__ import annotations

from typing import Any

from allswell.domain.deadline import ScopeKind
from allswell.flows.reading import TOP_KEYS
from allswell.flows.spec import FLOW_NAME, NAME, STEP_ID
from allswell.flows.steps import AUDIT_KEYS, STEP_KEYS
from allswell.settings.arithmetic import RETRY_FIGURES
from allswell.settings.catalogue import SETTINGS
from allswell.settings.schema import DURATION_PATTERN
from allswell.settings.schema import schema as of_settings

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
