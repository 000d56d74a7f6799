"""Loose fields, such as those of an event: what is stored or found under a name, as the outside is told it.

Which fields there are depends on the kind of event, and the journal is append-only. So names are mended here, on the
way out, and moments get the form that they have everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from allswell.doors.shapes.moment import moment

_NAMES = {
    "question": "question_id",
    "request": "request_id",
    "receipt": "receipt_id",
    "new_task": "new_task_id",
    "oldest": "question_id",
    "until": "until_at",
    "since": "since_at",
}


def name_outside(field: str) -> str:
    """What a field is called outside."""
    return _NAMES.get(field, field)


def outside(data: Mapping[str, object]) -> dict[str, object]:
    """The fields under their names outside."""
    return {(name := name_outside(key)): _value(name, value) for key, value in data.items()}


def _value(name: str, value: object) -> object:
    if isinstance(value, int) and (name == "deadline" or name.endswith("_at")):
        return moment(value)
    if isinstance(value, list):
        return [outside(one) if isinstance(one, dict) else one for one in value]
    return value
