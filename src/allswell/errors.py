"""The errors of Allswell, one class for each answer to “who has to act next?”.

`Refused`        the caller is wrong: nothing was changed, and repeating the call will not help.
`LeaseLost`      someone else owns the work now: stop, and claim again if you still want it.
`Unavailable`    the store cannot answer now: nothing is known to be wrong, try later.
`ServiceParked`  a service asked all callers to wait: give the work back, no attempt is spent.
`BreakerOpen`    a service keeps failing and is left alone for a while: nothing was called.
`Bug`            Allswell is wrong: a rule of ours was broken. Please report it.
"""

from __future__ import annotations


class AllswellError(Exception):
    """The root of every error that Allswell raises on purpose."""


class Refused(AllswellError):
    """The caller asked for something that cannot be; nothing was changed.

    `code` is stable and meant for programs, the message for people, `where` names the field or id at fault; `hint` says
    what to do, where the message does not. Of several tasks that were given together, `place` is the one at fault,
    counted from 0.
    """

    def __init__(self, code: str, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.place: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (_refused, (self.code, self.message, self.where, self.hint, self.place))


def _refused(code: str, message: str, where: str | None, hint: str | None, place: int | None) -> Refused:
    made = Refused(code, message, where=where, hint=hint)
    made.place = place
    return made


class LeaseLost(AllswellError):
    """A write carried a token that is not the current one: another holder has the task, or it is not held.

    It is not a failure of the task: what was said is kept with the attempt that has ended.
    """

    def __init__(self, task: str, token: int, reason: str) -> None:
        super().__init__(f"lease {token} on task {task} is over: {reason}")
        self.task = task
        self.token = token
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (LeaseLost, (self.task, self.token, self.reason))


class TimeUp(LeaseLost):
    """As far as the lease itself tells, its time is up; its run, if it has one, may have given it more since."""

    def __reduce__(self) -> tuple[object, ...]:
        return (TimeUp, (self.task, self.token, self.reason))


class Unavailable(AllswellError):
    """The store cannot be reached or cannot write; what was acknowledged before is safe."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.message = message
        self.hint = hint
        self.outward = ""
        """The message for callers from elsewhere, where that can be more than `AWAY` (`without_place`)."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_unavailable, (self.message, self.hint))


def _unavailable(message: str, hint: str | None) -> Unavailable:
    return Unavailable(message, hint=hint)


AWAY = "the store cannot be reached, or cannot write"
_AWAY_HINT = "call again in a minute; `allswell doctor`, where the store is, says why"


def unavailable_outward(message: str, *, hint: str | None = None, outward: str = "") -> Unavailable:
    """An error whose message callers from elsewhere may read as well, or else the one that they read."""
    error = Unavailable(message, hint=hint)
    error.outward = outward or message
    return error


def without_place(error: BaseException) -> BaseException:
    """An error as callers over the network and agents read it: not on which host, or in which file, a store lies.

    The words of a database's driver have that in them, and they are answered before a key is known.
    """
    if isinstance(error, Unavailable):
        return Unavailable(error.outward or AWAY, hint=error.hint if error.outward else _AWAY_HINT)
    if isinstance(error, Refused) and error.where == "store" and error.code != "not_allowed":
        return Unavailable(AWAY, hint=_AWAY_HINT)
    return error


class ServiceParked(AllswellError):
    """A service has a limit that lasts too long to sleep for; tasks that need it wait until then.

    It is no failure: `Lease.fail(error)` with it gives the task back and spends no attempt. `until` is a moment of this
    machine's wall clock in milliseconds since 1970, `retry_after` how long that was when it was raised.
    """

    def __init__(self, service: str, until: int, retry_after: int) -> None:
        super().__init__(f"{service} is parked for {retry_after / 1_000:,.0f} s more: it asked to wait")
        self.service = service
        self.until = until
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        return (ServiceParked, (self.service, self.until, self.retry_after))


class BreakerOpen(AllswellError):
    """A service has failed too often in a row; nothing was called, so nothing can have happened.

    `retry_after` says in milliseconds when a probe may go; it is None while a human has to decide.
    """

    def __init__(self, service: str, retry_after: int | None, reason: str) -> None:
        super().__init__(f"{service} was not called: {reason}")
        self.service = service
        self.retry_after = retry_after
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (BreakerOpen, (self.service, self.retry_after, self.reason))


class Bug(AllswellError):
    """A rule that Allswell itself must keep was broken; never the caller's fault."""
