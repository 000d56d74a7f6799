"""An error as data: one shape, whatever went wrong.

`kind` says whose move it is next (the classes of `allswell.errors`), `code` what exactly was wrong, `where` which
field, option or id it is about, `hint` what to do. Over HTTP the same fields are a problem of RFC 9457: `code` its
type, `message` its detail, the others extensions.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from allswell.errors import BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable

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
        """What an exception tells; one that is none of ours is a bug of ours."""
        return cls(_problem(error))


def _problem(error: BaseException) -> ProblemShape:
    match error:
        case Refused():
            return ProblemShape("refused", error.code, error.message, error.where, error.hint)
        case LeaseLost():
            hint = f"stop working on it; `allswell why {error.task}` tells what became of it"
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
