"""OpenAPI 3.1 of the routes, made from what they are declared with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from allswell.doors.http.problem import MEDIA_TYPE
from allswell.doors.http.route import Nothing, Route
from allswell.remote.wire import Problem

_PLACE = re.compile(r"\{(\w+)\}")
_SUFFIX = re.compile(r"(?<=[A-Za-z])Shape(?=\")")
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "An id of the caller's own for what it asks: sent twice, it counts once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
}
_REMAINING = {
    "name": "Allswell-Remaining-Ms",
    "in": "header",
    "description": "How many milliseconds the caller still has; nothing is waited for longer.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,11}$"},
}


def document(routes: Iterable[Route[Any]], prefix: str) -> dict[str, Any]:
    """The whole description."""
    routes = list(routes)
    shapes = list(dict.fromkeys([Problem, *(shape for one in routes for shape in (one.takes, *one.answers))]))
    refs, found = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    of = dict(zip(shapes, refs, strict=True))
    paths: dict[str, Any] = {}
    for one in routes:
        paths.setdefault(prefix + one.path, {})[one.method.lower()] = _operation(one, of, found)
    made = {
        "openapi": "3.1.0",
        "info": {"title": "Allswell", "version": version("allswell"), "description": "The night watch for agents."},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "awk_NAME_SECRET"}},
            "schemas": dict(sorted(found.items())),
        },
    }
    text = _SUFFIX.sub("", msgspec.json.encode(made).decode())
    told: dict[str, Any] = msgspec.json.decode(text)
    return told


def _operation(one: Route[Any], of: dict[Any, Any], found: dict[str, Any]) -> dict[str, Any]:
    said = one.says.partition(". ")[0].rstrip(".")
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PLACE.findall(one.path)
    ]
    told: dict[str, Any] = {"operationId": one.name, "summary": f"{said}.", "description": one.says}
    if one.method == "GET":
        parameters += _query(found[one.takes.__name__])
    else:
        parameters.append(_IDEMPOTENCY)
        if one.takes is not Nothing:
            told["requestBody"] = {"required": True, "content": {"application/json": {"schema": of[one.takes]}}}
    told["parameters"] = [*parameters, _REMAINING]
    content = {"application/json": {"schema": of[one.answers[0]] if one.answers else {}}}
    content |= {kind: {"schema": {"type": "string"}} for kind in one.also}
    problem = {"description": "What went wrong", "content": {MEDIA_TYPE: {"schema": of[Problem]}}}
    told["responses"] = {str(one.status): {"description": f"{said}.", "content": content}, "default": problem}
    return told


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    needed = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": {key: value for key, value in about.items() if key != "description"},
            **({"description": about["description"]} if "description" in about else {}),
        }
        for name, about in schema.get("properties", {}).items()
    ]
