"""Evidence of progress: what counts, how strongly, and when an attempt has given none for too long.

Strongest first: an explicit check-in; an event of a protocol the agent speaks; a change in the work; signs of its
processes. What it prints is noted and is no progress: a spinner is not work. Two lines are drawn through that order,
and both stand here once: what keeps an attempt from being idle (`PROGRESS`), and what answers an asked-for check-in
(`ANSWERS`; O2: bytes and CPU do not).

Processor time needs judgement, because a spinner that repaints without a pause burns as much of it as a compiler. So
time counts by process: while everything that comes out has been seen before, the time of those who write it does not
count; a silent compiler's does, and so does that of a compiler below somebody who paints.

A change in the work needs judgement, because a file does not say who wrote it. What we write ourselves is left out
where it is looked at. Where two attempts work in one folder (`in_one_folder`), what changes there is no sign of either.

Moments are milliseconds of the supervisor's monotonic clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath

import msgspec


class Sign(StrEnum):
    """What kind of evidence it is, the strongest first."""

    CHECKIN = "checkin"
    """It said so itself."""
    PROTOCOL = "protocol"
    """Its protocol reported a step: a message, a tool call, a result."""
    WORK = "work"
    """Something changed in the folder it works in."""
    PROCESS = "process"
    """Its processes spend processor time on something other than painting."""
    OUTPUT = "output"
    """It printed something. Noted, and no progress."""


PROGRESS = frozenset({Sign.CHECKIN, Sign.PROTOCOL, Sign.WORK, Sign.PROCESS})
"""What keeps an attempt from being idle."""
ANSWERS = frozenset({Sign.CHECKIN, Sign.PROTOCOL})
"""What answers an asked-for check-in."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One thing that was seen."""

    sign: Sign
    at: int
    what: str


class Standing(msgspec.Struct, frozen=True):
    """All that an attempt has shown so far: the last of each sign."""

    began: int
    last: Mapping[Sign, Evidence] = {}

    def heard(self, seen: Evidence) -> Standing:
        """How it stands with one thing more."""
        before = self.last.get(seen.sign)
        if before is not None and before.at > seen.at:
            return self
        return Standing(self.began, {**self.last, seen.sign: seen})

    @property
    def progress(self) -> Evidence | None:
        """The last proof of progress; of two at the same moment, the stronger."""
        return self._latest(PROGRESS)

    @property
    def answer(self) -> Evidence | None:
        """The last thing that would answer an asked-for check-in."""
        return self._latest(ANSWERS)

    def idle_at(self, idle: int) -> int:
        """The moment at which it has given no proof of progress for so long."""
        last = self.progress
        return (self.began if last is None else last.at) + idle

    def _latest(self, among: frozenset[Sign]) -> Evidence | None:
        latest = None
        for sign in Sign:
            seen = self.last.get(sign)
            if sign in among and seen is not None and (latest is None or seen.at > latest.at):
                latest = seen
        return latest


# --- the work ---------------------------------------------------------------------------------------------------------

NOT_WORK = (".git", ".allswell", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""Folders in which nothing that changes is work."""


def in_one_folder(one: str, other: str) -> bool:
    """Whether who works in one of two folders may change what is looked at in the other; both are absolute.

    A worktree of ours lies below the folder it was made for, and in `.allswell`, where nobody looks.
    """
    outer, inner = sorted((PurePosixPath(one), PurePosixPath(other)), key=lambda path: len(path.parts))
    return inner.is_relative_to(outer) and not any(part in NOT_WORK for part in inner.relative_to(outer).parts)


# --- processes --------------------------------------------------------------------------------------------------------

BUSY = 0.2
"""The share of one processor from which a tree is at work; a spinner that pauses between two pictures takes less."""
_PAINTER = 0.25
"""Who has written at least this share of what came out is a painter."""


class Process(msgspec.Struct, frozen=True, gc=False):
    """What one process has used since it started."""

    cpu: int
    """Its own processor time, and the time it stood in line for a processor, in milliseconds."""
    children: int = 0
    """That of its children which have ended, and theirs."""
    written: int = 0
    """Bytes written to anything."""


class Look(msgspec.Struct, frozen=True):
    """A tree at one moment; processes are told apart by number and start time."""

    at: int
    processes: Mapping[tuple[int, int], Process]
    printed: int = 0
    """Bytes that have come out so far."""
    new: int = 0
    """How often something came out that had not come out before."""
    sockets: int = 0


def busy(before: Look, after: Look) -> float:
    """The share of a processor that went into work between two looks, painting left out."""
    length = after.at - before.at
    if length <= 0:
        return 0.0
    spent = _total(after) - _total(before)
    printed = after.printed - before.printed
    if printed > 0 and after.new == before.new:
        for key, process in after.processes.items():
            earlier = before.processes.get(key, Process(0))
            if process.written - earlier.written >= max(printed * _PAINTER, 1):
                spent -= process.cpu - earlier.cpu
    return max(spent, 0) / length


def _total(look: Look) -> int:
    return sum(process.cpu + process.children for process in look.processes.values())


def at_work(before: Look, after: Look, threshold: float = BUSY) -> str | None:
    """What the processes show, if that is progress."""
    share = busy(before, after)
    if share < threshold:
        return None
    return f"its processes take {share:.0%} of a processor"


# --- output -----------------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BREAKS = re.compile(rb"[\r\n\x08\x0b\x0c]+")
_GLYPHS = re.compile(rb"\xe2[\x80-\xbf][\x80-\xbf]|[^A-Za-z\x80-\xff]+")
"""Numbers, marks, and the pictures of which spinners and bars are made (U+2000 to U+2FFF)."""
_REMEMBERED = 4_096


class Novelty:
    """Tells whether output says anything that was not said before: letters count, numbers and pictures do not."""

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}

    def is_new(self, piece: bytes) -> bool:
        """Whether this piece of output has words that are new; it is remembered."""
        found = False
        for part in _BREAKS.split(_ESCAPES.sub(b"\n", piece)):
            words = _GLYPHS.sub(b" ", part).strip()[:200]
            if words and words not in self._seen:
                found = True
                self._seen[words] = None
                if len(self._seen) > _REMEMBERED:
                    del self._seen[next(iter(self._seen))]
        return found


_LAST = 500
"""Characters of its last output that somebody is shown who is asked about an attempt."""


def last_words(printed: bytes) -> str:
    """The end of what was printed, as lines that a person can read; what was painted again and again stands once."""
    lines: list[str] = []
    for part in _BREAKS.split(_ESCAPES.sub(b"\n", printed)):
        line = "".join(one for one in part.decode("utf-8", "replace").strip() if one.isprintable())
        if line and line not in lines:
            lines.append(line)
    return "\n".join(lines)[-_LAST:]
