"""What a handler raises to say how it failed.

`Transient`        try again later: the message comes back after a pause.
`Permanent`        trying again will not help: the message is quarantined, and an operator is asked.
`BusinessFailure`  the answer is no: the message ends as failed, and nobody is asked.

What else a handler raises is judged by its class, as everywhere in Allswell: what is plainly a bug is permanent, what
nobody knows is transient.
"""

from __future__ import annotations

import msgspec
import psycopg
from psycopg_pool import PoolTimeout

from allswell.domain.duration import LONGEST
from allswell.domain.ids import Millis
from allswell.domain.service.classify import failure_of, shortened
from allswell.domain.service.retry import ErrorClass
from allswell.domain.worker.message import BROKEN, CANCELLED, EXHAUSTED, LOCK, TIMEOUT, TOO_LATE, MessageFailure
from allswell.errors import AllswellError

TIMED_OUT = "Statement timeout exceeded"


class HandlerFailure(AllswellError):
    """The root of what handlers raise; `code` is for programs, the text for people."""

    code: str = "FAILED"

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.code, self.message))


class Transient(HandlerFailure):
    """Try again later; with `retry_after` (seconds), not before then."""

    def __init__(self, code: str, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(code, message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return (_transient, (self.code, self.message, self.retry_after))


def _transient(code: str, message: str, retry_after: float | None) -> Transient:
    return Transient(code, message, retry_after=retry_after)


class Permanent(HandlerFailure):
    """Trying again will not help."""


class BusinessFailure(HandlerFailure):
    """The answer is no; nothing is wrong with the worker."""


class OutOfTime(Transient):
    """Nothing is left of the message's visibility: no statement is begun any more."""

    def __init__(self, message: str = "nothing is left of the message's visibility") -> None:
        super().__init__(TOO_LATE, message)

    def __reduce__(self) -> tuple[object, ...]:
        return (OutOfTime, (self.message,))


def told(error: BaseException) -> MessageFailure:
    """What was raised, as the rules have it; for a cancelled statement there is `cancelled_by`.

    Whatever a handler put into it (a number for a code, half a character, megabytes), it can be written down.
    """
    failure = _judged(error)
    return msgspec.structs.replace(failure, code=shortened(str(failure.code)), message=shortened(str(failure.message)))


def _judged(error: BaseException) -> MessageFailure:
    match error:
        case Transient():
            after = _asked_pause(error.retry_after)
            kind = ErrorClass.TRANSIENT if after is None else ErrorClass.RATE_LIMIT
            return MessageFailure(kind, error.code, error.message, after)
        case BusinessFailure():
            return MessageFailure(ErrorClass.VALIDATION, error.code, error.message, business=True)
        case HandlerFailure():
            return MessageFailure(ErrorClass.PERMANENT, error.code, error.message)
        case PoolTimeout():
            return MessageFailure(ErrorClass.TRANSIENT, EXHAUSTED, str(error))
        case psycopg.errors.LockNotAvailable():
            return MessageFailure(ErrorClass.TRANSIENT, LOCK, sentence(error))
        case psycopg.OperationalError() | psycopg.InterfaceError() if error.sqlstate is None:
            return MessageFailure(ErrorClass.NETWORK, BROKEN, sentence(error))
        case psycopg.Error() if error.sqlstate is not None:
            kind = ErrorClass.BUG if error.sqlstate[:2] in _BUGS else ErrorClass.TRANSIENT
            return MessageFailure(kind, error.sqlstate, sentence(error))
        case _:
            failure = failure_of(error)
            return MessageFailure(failure.error, type(error).__name__, failure.message, failure.retry_after)


def _asked_pause(seconds: object) -> Millis | None:
    """The pause that a handler asked for; None where it is no pause at all."""
    if not isinstance(seconds, int | float) or seconds != seconds:  # noqa: PLR0124 - only "not a number" is not itself
        return None
    return Millis(round(min(max(seconds, 0.0), LONGEST / 1_000) * 1_000))


_BUGS = frozenset({"22", "42", "0A"})
"""Data that does not fit its column, SQL that is wrong: the same statement will do the same again."""


def cancelled_by(error: psycopg.errors.QueryCanceled, *, by_timeout: bool) -> MessageFailure:
    """A statement that was cancelled: by the limit on it, or by somebody."""
    if by_timeout:
        return MessageFailure(ErrorClass.TRANSIENT, TIMEOUT, TIMED_OUT)
    return MessageFailure(ErrorClass.TRANSIENT, CANCELLED, f"Statement cancelled by another session: {sentence(error)}")


def sentence(error: psycopg.Error) -> str:
    """What an error says first, on one line."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    return text.splitlines()[0]
