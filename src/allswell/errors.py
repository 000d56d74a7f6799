"""The four ways a call can end other than well, told apart by whose move it is next.

`Refused`      the caller is wrong: nothing was changed, and repeating the call will not help.
`LeaseLost`    someone else owns the work now: stop, and claim again if you still want it.
`Unavailable`  the store cannot answer now: nothing is known to be wrong, try later.
`Bug`          Allswell is wrong: a rule of ours was broken. Please report it.
"""

from __future__ import annotations


class AllswellError(Exception):
    """The root of every error that Allswell raises on purpose."""


class Refused(AllswellError):
    """The caller asked for something that cannot be; nothing was changed.

    `code` is stable and meant for programs, the message for people, `where` names the field or id at fault.
    """

    def __init__(self, code: str, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        return (_refused, (self.code, self.message, self.where))


def _refused(code: str, message: str, where: str | None) -> Refused:
    return Refused(code, message, where=where)


class LeaseLost(AllswellError):
    """A write carried a token that is not the current one; the work belongs to someone else, or to nobody.

    It is not a failure of the task: what was brought is kept as a late result where it had content.
    """

    def __init__(self, task: str, token: int, reason: str) -> None:
        super().__init__(f"lease {token} on task {task} is over: {reason}")
        self.task = task
        self.token = token
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return (LeaseLost, (self.task, self.token, self.reason))


class Unavailable(AllswellError):
    """The store cannot be reached or cannot write; what was acknowledged before is safe."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_unavailable, (self.message, self.hint))


def _unavailable(message: str, hint: str | None) -> Unavailable:
    return Unavailable(message, hint=hint)


class Bug(AllswellError):
    """A rule that Allswell itself must keep was broken; never the caller's fault."""
