"""Fields that many views share: ids by their kind, the loose fields of an event, and errors; and how a shape is made.

Which fields there are depends on the kind of event, and the journal is append-only. So names are mended here, on the
way out, and moments get the form that they have everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, TypeVar

from msgspec import UNSET, Struct, UnsetType, convert

from allswell.errors import BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable
from allswell.timing.moment import moment, read

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


S = TypeVar("S", bound=Struct)


def as_shape(source: object, kind: type[S], **differing: object) -> S:
    """A shape of a source: fields of the same name are copied, at every depth; `differing` gives the others by name."""
    fields = {
        public: differing[name] if name in differing else getattr(source, name)
        for name, public in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    }
    return convert(fields, kind, from_attributes=True, dec_hook=read)


# Which thing is meant, where it can be a task, a run or a question: its id under its name, the others null.


class NamedIds(TypedDict):
    """The ids of a shape that can be about any of them."""

    task_id: str | None
    run_id: str | None
    question_id: str | None


def named(id_: str) -> NamedIds:
    """An id under its name; what kind of id it is, its beginning tells."""
    return {
        "task_id": id_ if id_.startswith("t_") else None,
        "run_id": id_ if id_.startswith("r_") else None,
        "question_id": id_ if id_.startswith("q_") else None,
    }


# An error as data: one shape, whatever went wrong.
#
# `kind` says whose move it is next (the classes of `allswell.errors`), `code` what exactly was wrong, `where` which
# field, option or id it is about, `hint` what to do. Over HTTP the same fields are a problem of RFC 9457: `code` its
# type, `message` its detail, the others extensions.

Kind = Literal["refused", "lease_lost", "unavailable", "service_parked", "breaker_open", "bug"]


class ProblemShape(Struct, frozen=True, omit_defaults=True):
    """What went wrong; the fields from `task_id` on are there only where they apply."""

    kind: Kind
    code: str
    message: str
    where: str | None
    hint: str | None
    task_id: str | UnsetType = UNSET
    token: int | UnsetType = UNSET
    service: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class ErrorShape(Struct, frozen=True):
    """The answer to a call that could not be carried out."""

    error: ProblemShape

    @classmethod
    def of(cls, error: BaseException) -> ErrorShape:
        """The fields of an exception; one that is not ours is a bug of ours."""
        return cls(_problem(error))


def _problem(error: BaseException) -> ProblemShape:
    match error:
        case Refused():
            return ProblemShape("refused", error.code, error.message, error.where, error.hint)
        case LeaseLost():
            hint = f"stop working on it; `allswell why {error.task}` says what became of it"
            return ProblemShape(
                "lease_lost", "lease_lost", str(error), "token", hint, task_id=error.task, token=error.token
            )
        case Unavailable():
            return ProblemShape("unavailable", "unavailable", error.message, None, error.hint)
        case ServiceParked() | BreakerOpen():
            kind: Kind = "service_parked" if isinstance(error, ServiceParked) else "breaker_open"
            after = UNSET if error.retry_after is None else error.retry_after
            return ProblemShape(kind, kind, str(error), None, None, service=error.service, retry_after_ms=after)
        case _:
            what = str(error) if isinstance(error, Bug) else f"{type(error).__name__}: {error}"
            text = f"this is a bug of Allswell's: {what}"
            return ProblemShape("bug", "bug", text, None, "please report it; ALLSWELL_DEBUG=1 shows the whole story")
