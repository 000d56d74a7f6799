"""Holds what `--json` printed to its schema, and to the rules that a schema cannot say."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from allswell.timing.moment import PATTERN

SCHEMA = Path(__file__).parents[3] / "docs/reference/output.schema.json"
MOMENT = re.compile(PATTERN)
THEIRS = {"payload", "result", "late", "inputs", "numbers"}
"""What callers have put there: their names are theirs."""
BARE = {"id", "task", "run", "agent", "question", "receipt", "request", "step", "at", "now"}
"""Names that say too little about a text or a number; an object of the kind may be called so."""
SEEDS = "pending_divine_questions"
"""Kept in the words of the document that it comes from, where the text is called `question`."""
EPOCH = 1_000_000_000_000
"""A number so large is a moment in milliseconds."""


@cache
def document() -> Any:  # noqa: ANN401 - JSON
    """The published schema, which is a valid one, closed: a field that it does not name is refused."""
    found = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(found)
    for shape in found["$defs"].values():
        if "properties" in shape:
            shape["additionalProperties"] = False
    return found


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({**document(), "$ref": f"#/$defs/{name}", "properties": {}, "type": "object"})


def shapes_of(command: str) -> list[str]:
    """What a command may answer with."""
    return [one["$ref"].rpartition("/")[2] for one in document()["properties"][command]["anyOf"]]


def check(command: str, line: str) -> str:
    """Which shape an answer is; it must be one of its command's, and of no other."""
    answer = json.loads(line)
    wrong = {name: [error.message for error in validator(name).iter_errors(answer)] for name in shapes_of(command)}
    fits = [name for name, errors in wrong.items() if not errors]
    assert len(fits) == 1, f"{command}: {line[:2000]}\n{wrong}"
    assert list(misnamed(answer)) == [], line
    return fits[0]


def misnamed(value: object, way: str = "") -> list[str]:
    """The places in an answer that break a rule about names or moments."""
    if isinstance(value, list):
        return [one for part in value for one in misnamed(part, way)]
    if not isinstance(value, dict):
        return [way] if isinstance(value, int) and abs(value) >= EPOCH else []
    found = []
    for name, inner in value.items():
        here = f"{way}.{name}"
        if name in THEIRS:
            continue
        if name in BARE and isinstance(inner, str | int) and SEEDS not in way:
            found.append(here)
        if (name.endswith("_at") or name == "deadline") and not (inner is None or MOMENT.fullmatch(str(inner))):
            found.append(here)
        if isinstance(inner, str) and MOMENT.fullmatch(inner) and not name.endswith(("_at", "deadline", "timestamp")):
            found.append(here)
        if name.endswith("_ms") and not isinstance(inner, int | None):
            found.append(here)
        found += misnamed(inner, here)
    return found
