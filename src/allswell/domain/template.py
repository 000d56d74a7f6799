"""Text with places for fields of a JSON body: `deploy {data.service}`. No code, no format, nothing but paths.

A path is names and numbers with dots between them. What stands there must be a text, a number or a truth; anything else
cannot be a part of a text. Two braces stand for one.
"""

from __future__ import annotations

import re
from typing import Any

from allswell.errors import Refused

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,9}")
_MOST = 2_000
"""Letters that one field may fill in."""


def wrong_with_template(template: str) -> str:
    """What is wrong with a template; empty if nothing is."""
    for found in _PIECE.finditer(template):
        if found[0] in ("{", "}"):
            return "a brace that stands alone: write {{ or }} for one, {data.name} for a field"
        if found[1] is not None and not _PATH.fullmatch(found[1]):
            return f"{found[0]!r} is no place of a field: write names with dots between them, such as {{data.name}}"
    return ""


def filled(template: str, body: object, *, where: str) -> str:
    """The text with the fields of a body in their places; `Refused` says which field is missing or does not fit."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][:1]
        return _as_text(field_at(found[1], body, where=where), found[1], where)

    return _PIECE.sub(one, template)


def field_at(path: str, body: object, *, where: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """What stands at a path of a body; `Refused` if there is nothing."""
    value = body
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            raise Refused("missing_field", f"the body has no {path!r}, which {where} needs", where=path)
    return value


def _as_text(value: object, path: str, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        text = str(value)
        if len(text) <= _MOST:
            return text
        raise Refused("bad_field", f"{path!r} has {len(text):,} letters, which is too much for {where}", where=path)
    raise Refused("bad_field", f"{path!r} is no text and no number, so it cannot stand in {where}", where=path)
