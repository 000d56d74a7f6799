"""JSON Schemas (2020-12) of the shapes, made from the Structs themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from allswell.doors.shapes.error import ErrorShape

_SUFFIX = re.compile(r"(?<=[A-Za-z])Shape(?=\")")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def name_of(shape: type[msgspec.Struct]) -> str:
    """What a shape is called in the schema."""
    return shape.__name__.removesuffix("Shape")


def schema_of(answers: Mapping[str, tuple[type[msgspec.Struct], ...]]) -> dict[str, object]:
    """One document: every shape under `$defs`, and for each answer which of them it can be, under `properties`."""
    used: set[type[msgspec.Struct]] = {ErrorShape}
    used.update(*answers.values())
    every = sorted(used, key=name_of)
    refs, found = msgspec.json.schema_components(every, ref_template="#/$defs/{name}")
    of = dict(zip(every, refs, strict=True))
    named: dict[str, object] = {}
    for name, shapes in sorted(answers.items()):
        can_be: tuple[type[msgspec.Struct], ...] = (*shapes, ErrorShape)
        named[name] = {"anyOf": [of[shape] for shape in can_be]}
    document = {
        "$schema": DIALECT,
        "title": "What Allswell prints with --json",
        "description": "What a command answers stands under its name in `properties`; `$defs` has every shape.",
        "type": "object",
        "properties": named,
        "$defs": dict(sorted(found.items())),
    }
    made: dict[str, object] = msgspec.json.decode(_SUFFIX.sub("", msgspec.json.encode(document).decode()))
    return made
