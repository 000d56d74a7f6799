"""JSON shapes as lines of text: a line for each field, by its path, with its type, bounds and default.

Names of classes do not appear, so a class that is renamed, moved or merged leaves an outline as it is, and a field that
is renamed, lost or retyped does not. A shape that was outlined before is said to be `as` that one, and `|1`, `|2` are
the shapes of which something has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]
_REFS = "#/$defs/{name}"
_SHORT = 3
"""Lines that are sooner read again than looked up."""
_NOT_BOUNDS = (
    *("$ref", "title", "description", "type", "properties", "required", "default", "enum", "const", "items"),
    *("prefixItems", "anyOf", "discriminator", "additionalProperties"),
)


def _of_object(_: type) -> dict[str, Any]:
    return {"type": "anything"}


class Outline:
    """Outlines of several shapes, one below the other."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], str] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        self._defs: Json = {}

    def of_types(self, name: str, *kinds: object) -> list[str]:
        """What is sent or stored as one of these types."""
        schemas, self._defs = msgspec.json.schema_components(kinds, schema_hook=_of_object, ref_template=_REFS)
        return self._outlined(name, schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)})

    def of_schema(self, name: str, schema: Json, defs: Json) -> list[str]:
        """What a JSON Schema says; `defs` are what its references mean."""
        self._defs = defs
        return self._outlined(name, schema)

    def _outlined(self, name: str, schema: Json) -> list[str]:
        self._known = {}
        return list(self._lines(name, schema))

    def _lines(self, path: str, schema: Json, more: str = "") -> Iterator[str]:
        """The lines of a shape; of one that has been seen, where."""
        first, *inside = self._whole(schema)
        known = self._seen.setdefault(tuple(inside), path)
        if known != path and len(inside) > _SHORT:
            yield f"{path}: {first}{more}, as {known}"
            return
        yield f"{path}: {first}{more}"
        for step, part, wanted in self._parts(schema):
            yield from self._lines(path + step, part, wanted)

    def _whole(self, schema: Json) -> tuple[str, ...]:
        """A shape written out in full: what two are compared by. A shape inside itself is `...`."""
        name = str(schema.get("$ref", ""))
        if name in self._known:
            return self._known[name]
        if name:
            self._known[name] = ("...",)
        found = [self._kind(schema)]
        for step, part, more in self._parts(schema):
            first, *inside = self._whole(part)
            found += [f"{step}: {first}{more}", *(step + line for line in inside)]
        if name:
            self._known[name] = tuple(found)
        return tuple(found)

    def _meant(self, schema: Json) -> Json:
        return self._defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def _parts(self, schema: Json) -> Iterator[tuple[str, Json, str]]:
        """What is inside: how its path goes on, what it is, and whether it may be left out."""
        meant = self._meant(schema)
        for field, part in meant.get("properties", {}).items():
            needed = field in meant.get("required", ())
            default = f" = {json.dumps(part['default'], ensure_ascii=False)}" if "default" in part else ""
            yield f".{field}", part, f" (required{default})" if needed else default
        for name in ("items", "additionalProperties"):
            if isinstance(meant.get(name), Mapping) and meant[name]:
                yield "[]" if name == "items" else ".*", meant[name], ""
        for number, part in enumerate(meant.get("prefixItems", ())):
            yield f"[{number}]", part, ""
        variants = [part for part in meant.get("anyOf", ()) if next(self._parts(part), None)]
        if len(variants) == 1:
            yield from self._parts(variants[0])
        elif variants:  # in an order that does not follow from the names of classes
            for number, part in enumerate(sorted(variants, key=self._whole), 1):
                yield f"|{number}", part, ""

    def _kind(self, schema: Json) -> str:
        meant = self._meant(schema)
        if "anyOf" in meant:
            return " | ".join(sorted({self._kind(part) for part in meant["anyOf"]}))
        if "enum" in meant or "const" in meant:
            return " | ".join(json.dumps(one) for one in meant.get("enum", [meant.get("const")]))
        bounds = "".join(f" {name}={value}" for name, value in sorted(meant.items()) if name not in _NOT_BOUNDS)
        closed = " closed" if meant.get("additionalProperties") is False else ""
        return f"{meant.get('type', 'anything')}{closed}{bounds}"
