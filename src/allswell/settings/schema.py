"""The settings as a JSON Schema, for editors that complete and check `allswell.toml`."""

from __future__ import annotations

from typing import Any

from allswell.settings import fleet, hooks, named_tables, sinks
from allswell.settings.catalogue import PER_ROLE, ROLES, SETTINGS
from allswell.settings.setting import Kind, Setting

DURATION_PATTERN = r"^\s*((\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+|\d+\s*)$"
_SECONDS = DURATION_PATTERN.replace(r"|\d+\s*)", r"|\d+(\.\d+)?\s*)")
_SIZE = r"^\s*\d+(\.\d+)?\s*([kKmMgGtT]?[bB])\s*$"
_SHAPES: dict[Kind, list[dict[str, Any]]] = {
    Kind.TEXT: [{"type": "string", "minLength": 1}],
    Kind.DURATION: [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}],
    Kind.SECONDS: [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _SECONDS}],
    Kind.COUNT: [{"type": "integer"}],
    Kind.SHARE: [{"type": "number", "minimum": 0, "maximum": 1}],
    Kind.PERCENT: [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100}],
    Kind.CHOICE: [{"type": "string"}],
    Kind.COMMAND: [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    Kind.MONEY: [{"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000}],
    Kind.SIZE: [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _SIZE}],
}


_WORDS = {"type": "array", "items": {"type": "string"}}
_READ_BY: dict[object, dict[str, Any]] = {
    fleet.text: {"type": "string"},
    fleet.words: _WORDS | {"minItems": 1},
    fleet.names: _WORDS,
    fleet.flag: {"type": "boolean"},
    fleet.count: {"type": "integer"},
    fleet.length: {"anyOf": _SHAPES[Kind.DURATION]},
    fleet.variables: {"type": "object", "additionalProperties": {"type": "string"}},
    named_tables.one_or_more: {"anyOf": [{"type": "string"}, _WORDS]},
    sinks.beginning: {"enum": ["now", "start"]},
    sinks.routes: {
        "type": "object",
        "propertyNames": {"enum": ["info", "warning", "critical"]},
        "additionalProperties": {"anyOf": [{"type": "string"}, _WORDS]},
    },
    fleet.hears: {"enum": ["socket", "stdin", "file"]},
}


def schema() -> dict[str, Any]:
    """What `allswell.toml` may hold."""
    top: dict[str, Any] = {}
    for setting in SETTINGS.values():
        _place(top, setting)
    role: dict[str, Any] = {}
    for name in PER_ROLE:
        _place(role, SETTINGS[name], default=False)
    top["roles"] = {
        "type": "object",
        "description": "What tasks of a role have of their own.",
        "additionalProperties": _table(role),
        "default": {name: dict(own) for name, own in ROLES.items()},
    }
    top["agents"] = {
        "type": "object",
        "description": "The agents of the fleet: each a command, a function of Python, or remote.",
        "additionalProperties": _table(_fields(fleet.AGENT)),
    }
    top["sinks"] = {
        "type": "object",
        "description": "Who is told of what happens: webhooks, alerts, a log in Notion.",
        "additionalProperties": _table(_fields(sinks.SINK)),
    }
    top["hooks"] = {
        "type": "object",
        "description": "Signed webhooks that the server takes at /hooks/NAME, and what becomes of them.",
        "additionalProperties": _table(_fields(hooks.HOOK)),
    }
    top["webhook_secrets"] = {
        "type": "object",
        "description": "By host, the variables that hold what signs webhook requests to it; `*` is every other host.",
        "additionalProperties": {"anyOf": [{"type": "string"}, _WORDS]},
    }
    top["usage"] = _table(_fields(fleet.USAGE))
    top["compaction"] = _table(_fields(fleet.COMPACTION))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Allswell",
        **_table(top),
    }


def _fields(fields: fleet.Fields) -> dict[str, Any]:
    """The fields of one of the fleet's tables."""
    return {name: dict(_READ_BY[read]) for name, read in fields.items()}


def _place(tables: dict[str, Any], setting: Setting, *, default: bool = True) -> None:
    table, _, key = setting.name.rpartition(".")
    properties = tables.setdefault(table, _table({}))["properties"] if table else tables
    properties[key] = _shape(setting, default=default)


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _shape(setting: Setting, *, default: bool) -> dict[str, Any]:
    shapes = [dict(shape) for shape in _SHAPES[setting.kind]]
    if setting.choices:
        shapes = [{"enum": list(setting.choices)}]
    if setting.none is not None:
        shapes.append({"const": setting.none})
    shape: dict[str, Any] = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    shape["description"] = setting.description
    if default and (setting.default is not None or setting.none is not None):
        shape["default"] = setting.none if setting.default is None else setting.default
    return shape
