"""What one attempt at a step changed in its folder, and whose a change is where steps work side by side.

Steps of one flow share a folder, so a file that changed between an attempt's beginning and its end may be another
attempt's work. What tells them apart is what is declared (a file that is an output of a step is that step's) and when
it was: the kernel's own time of a file's last change lies within the time of whoever made it. A change that lies within
the times of several is nobody's alone. It is shown with all of them, and put back only when all of them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allswell.domain.names import TaskId

LISTED = 1_000
"""So many changes of one attempt are kept; the snapshot has all of them."""
_RACY = 50
"""Milliseconds by which the kernel's time of a change may lie before ours."""


class LeftFile(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One path that an attempt changed, as it left it."""

    how: str
    """A added, M changed, D deleted."""
    path: str
    """Spelled, relative to the top of the working tree, or to the folder without git."""
    size: int = 0
    sha256: str = ""
    """Of its bytes, or of a link's target; empty where it was not read."""
    changed_at: int = 0
    """The kernel's time of its last change, in ms; of what is gone, its folder's."""


class StepChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one attempt at a step changed since it began."""

    step: str
    number: int
    """Of the attempt, counted over all runs of the folder."""
    task: TaskId
    attempt: int
    """Of the task's own."""
    top: str
    """What paths are relative to, spelled."""
    began_at: int
    ended_at: int
    gap: str = ""
    """Why it is not certain how everything was when it began; empty: it is."""
    outputs: tuple[str, ...] = ()
    """What it was to leave, as paths are told here."""
    files: tuple[LeftFile, ...] = ()
    more: int = 0
    """How many more there were than are listed."""


class AtWork(msgspec.Struct, frozen=True, gc=False):
    """When an attempt at a step was at work, on the wall clock in ms."""

    step: str
    number: int
    began_at: int
    ended_at: int


def was_made_by(left: LeftFile, ended_at: int) -> bool:
    """Whether a change can be of an attempt that ended then: what came later is somebody else's."""
    return left.changed_at <= ended_at + _RACY


def also_by(changes: StepChanges, left: LeftFile, others: Iterable[AtWork]) -> tuple[str, ...]:
    """Steps that may have made a change as well as the attempt in whose time it was made."""
    found: dict[str, None] = {}
    for other in others:
        if (other.step, other.number) == (changes.step, changes.number) or other.ended_at <= changes.began_at:
            continue  # itself, or one that was over when this one began: what that did was there then
        if left.how == "D":  # nothing is left that would say when
            within = other.began_at <= changes.ended_at and other.ended_at >= changes.began_at
        else:
            within = other.began_at - _RACY <= left.changed_at <= other.ended_at
        if within:
            found[other.step] = None
    found.pop(changes.step, None)
    return tuple(found)


Own = tuple[tuple[LeftFile, tuple[str, ...]], ...]
"""Changes, each with the steps that may have made it too."""


def own_files(changes: StepChanges, outputs: Mapping[str, str], others: Sequence[AtWork]) -> Own:
    """What an attempt changed, each with the steps that may have done it too; outputs of other steps are theirs.

    `outputs` says which step each declared path belongs to.
    """
    found = []
    for left in changes.files:
        owner = outputs.get(left.path)
        if owner is None:
            found.append((left, also_by(changes, left, others)))
        elif owner == changes.step:
            found.append((left, ()))
    return tuple(found)
