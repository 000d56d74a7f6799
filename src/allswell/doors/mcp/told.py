"""Answers and errors as a model is told them: an error says what happened, and what to do now."""

from __future__ import annotations

from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable


def in_words(error: BaseException) -> str:
    """What went wrong, for somebody who can do something about it."""
    if isinstance(error, LeaseLost):
        return (
            f"Lease lost: {error}. Stop working on {error.task} now, and do not report it as done: it is not yours any "
            "more. What you have said was kept for whoever has it next. Call claim for your next task."
        )
    if isinstance(error, Refused):
        hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
        where = f" (argument: {error.where})" if error.where and error.code.startswith("bad_") else ""
        return f"Refused: {_ended(error.message + where)}{hint} Nothing was changed."
    if isinstance(error, Unavailable):
        hint = f" {error.hint[0].upper()}{error.hint[1:]}." if error.hint else ""
        return (
            f"The watch cannot answer now: {_ended(error.message)}{hint} Nothing is lost. Go on with your work, and "
            "make this call again in a minute."
        )
    if isinstance(error, AllswellError):
        return _ended(str(error))
    return (
        f"This is a bug of Allswell's: {type(error).__name__}. It is not your fault. Make the call again once; if that "
        "does not help, go on without it."
    )


def out_of_time(tool: str) -> str:
    """The time that the caller has was up."""
    return (
        f"The time that you gave this call is up; what {tool} was asked for may have been done. Look with status or "
        "answers before you repeat it, and give it more time."
    )


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
