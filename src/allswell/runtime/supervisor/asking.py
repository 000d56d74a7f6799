"""The words in which an agent is asked for a check-in; both forms of the original protocol are understood (O2, O3)."""

from __future__ import annotations

from allswell.domain.duration import show

_FORM = """CHECKPOINT: {task}
Status: ...
Completed: ...
Remaining: ...
Files Modified: ...
Estimated Progress: ...%"""


def asking(task: str, wait: int, left: int) -> str:
    """What an agent is told that owes a check-in."""
    return (
        f"The watch asks for a check-in on {task}: answer within {show(wait)}; {show(left)} of your time are left."
        f' Run `allswell checkin "what you have done" --progress 0.5`, or write:\n{_FORM.format(task=task)}'
    )


def nudging(task: str, evidence: str) -> str:
    """What an agent is told that has become quiet."""
    return (
        f"The watch has seen no progress on {task} ({evidence}). If you are at work, say so:"
        f' `allswell checkin "what you are doing"`, or write:\n{_FORM.format(task=task)}'
    )


def collecting(task: str, why: str, wait: int) -> str:
    """What every agent at work is told when the context or the session runs out."""
    return f"The watch collects check-ins ({why}): answer within {show(wait)} with\n{_FORM.format(task=task)}"
