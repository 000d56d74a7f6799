"""Evidence of progress: what counts, how strongly, and when an attempt has given none for too long.

Strongest first: an explicit check-in; an event of a protocol the agent speaks; a change in the work; signs of its
processes; a new line of output (`NewLines`), where it speaks no protocol. All else that it prints is noted and is no
progress: a spinner is not work. Two lines are drawn through that order, and both stand here once: what keeps an attempt
from being idle (`PROGRESS`), and what answers an asked-for check-in (`ANSWERS`; O2: lines, bytes and CPU do not).

Processor time needs judgement, because a spinner that repaints without a pause burns as much of it as a compiler. So
time counts by process: while everything that comes out has been seen before, the time of those who write it does not
count; a silent compiler's does, and so does that of a compiler below somebody who paints.

An agent that repeats itself (repetition.py) gives all of that for ever: its protocol and its processor time count for
nothing then, and only its own word and a change in the work are progress.

A change in the work needs judgement, because a file does not say who wrote it. What we write ourselves is left out
where it is looked at. Where two attempts work in one folder (`in_one_folder`), what changes there is no sign of either.

Moments are milliseconds of the supervisor's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath

import msgspec

from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass


class EvidenceKind(StrEnum):
    """What kind of evidence it is, the strongest first."""

    CHECKIN = "checkin"
    """It said so itself."""
    PROTOCOL = "protocol"
    """Its protocol reported a step: a message, a tool call, a result."""
    WORK = "work"
    """Something changed in the folder it works in."""
    PROCESS = "process"
    """Its processes spend processor time on something other than painting."""
    LINE = "line"
    """It printed a line that says something new."""
    OUTPUT = "output"
    """It printed something. Noted, and no progress."""


PROGRESS = frozenset(
    {EvidenceKind.CHECKIN, EvidenceKind.PROTOCOL, EvidenceKind.WORK, EvidenceKind.PROCESS, EvidenceKind.LINE}
)
"""What keeps an attempt from being idle."""
ANSWERS = frozenset({EvidenceKind.CHECKIN, EvidenceKind.PROTOCOL})
"""What answers an asked-for check-in."""
_OF_A_CIRCLE = frozenset({EvidenceKind.PROTOCOL, EvidenceKind.PROCESS, EvidenceKind.LINE})
"""What an agent that repeats itself gives without end; its own word and a change in the work count all the same."""


BARE_CHECKIN = "it checked in"
"""What is noted of a check-in without a note."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """One thing that was seen."""

    sign: EvidenceKind
    at: int
    what: str


_UNTOLD_DELAY = 300_000
"""A client that meets a rate limit and does not say for how long it waits has at most so many milliseconds (F5)."""


class ProviderRefusal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The client's last try was refused, or not answered, and it waits for the next one."""

    error: ErrorClass
    status: int | None = None
    attempt: int | None = None
    """Which of its own tries that was."""
    attempts: int | None = None
    """How many it makes before it gives up."""
    delay: Millis | None = None
    """How long it waits before the next try, where it says so."""
    message: str = ""

    @property
    def words(self) -> str:
        """What was refused, and which try that was: "429, try 6 of 10"."""
        reason = str(self.status) if self.status is not None else _WITHOUT_STATUS.get(self.error, "an error")
        if self.attempt is None:
            return reason
        return f"{reason}, try {self.attempt}" + ("" if self.attempts is None else f" of {self.attempts}")

    @property
    def quiet_for(self) -> int:
        """For how many milliseconds the client may rightly show nothing."""
        if self.delay is not None:
            return self.delay
        return _UNTOLD_DELAY if self.error is ErrorClass.RATE_LIMIT else 0


_WITHOUT_STATUS: Mapping[ErrorClass, str] = {
    ErrorClass.NETWORK: "no answer",
    ErrorClass.OVERLOAD: "overloaded",
    ErrorClass.RATE_LIMIT: "a rate limit",
    ErrorClass.SERVER: "a server error",
    ErrorClass.AUTH: "the login is refused",
}


_SAME_ERROR = 2_000
"""Milliseconds within which new lines after a refusal are the rest of what a client prints about it."""


class EvidenceState(msgspec.Struct, frozen=True):
    """All that an attempt has shown so far: the last of each sign."""

    began: int
    last: Mapping[EvidenceKind, Evidence] = {}
    refusal: ProviderRefusal | None = None
    """The provider's last refusal, while the client tries again: until it reports a step of its work."""
    refused_at: int = 0
    repeats: str = ""
    """The circle that it goes round in, in words (repetition.py); empty: none."""

    def as_it_counts(self, seen: Evidence) -> Evidence:
        """What a thing that was seen is evidence of: of nothing, where it belongs to a circle that it goes round in."""
        if not self.repeats or seen.sign not in _OF_A_CIRCLE:
            return seen
        return Evidence(EvidenceKind.OUTPUT, seen.at, self.repeats)

    def heard(self, seen: Evidence) -> EvidenceState:
        """How it stands with one thing more."""
        seen = self.as_it_counts(seen)
        before = self.last.get(seen.sign)
        if before is not None and before.at > seen.at:
            return self
        later = seen.at - self.refused_at >= _SAME_ERROR
        goes_on = seen.sign is EvidenceKind.PROTOCOL or (seen.sign is EvidenceKind.LINE and later)
        refusal, refused_at = (None, 0) if goes_on else (self.refusal, self.refused_at)
        return EvidenceState(self.began, {**self.last, seen.sign: seen}, refusal, refused_at, self.repeats)

    def refused(self, refusal: ProviderRefusal, at: int) -> EvidenceState:
        """How it stands once the provider has refused, which is no progress."""
        return EvidenceState(self.began, self.last, refusal, at, self.repeats)

    def repeating(self, words: str) -> EvidenceState:
        """How it stands now that it goes round in a circle, or, without words, in none any more."""
        return msgspec.structs.replace(self, repeats=words)

    @property
    def progress(self) -> Evidence | None:
        """The last proof of progress; of two at the same moment, the stronger."""
        return self._latest(PROGRESS)

    @property
    def answer(self) -> Evidence | None:
        """The last thing that would answer an asked-for check-in."""
        return self._latest(ANSWERS)

    def idle_at(self, idle: int) -> int:
        """The moment at which it has given no proof of progress for so long.

        While its client waits for the provider it cannot give any: the clock stands until the client's next try.
        """
        last = self.progress
        since = self.began if last is None else last.at
        if self.refusal is not None:
            since = max(since, self.refused_at + self.refusal.quiet_for)
        return since + idle

    def _latest(self, among: frozenset[EvidenceKind]) -> Evidence | None:
        latest = None
        for sign in EvidenceKind:
            seen = self.last.get(sign)
            if sign in among and seen is not None and (latest is None or seen.at > latest.at):
                latest = seen
        return latest


SILENCE = 300_000
"""After so many milliseconds without a sign of progress `allswell run` says so (`run_silence`)."""


class Silence:
    """When to say that a command has shown no sign of progress: each time it takes twice as long as the last time.

    So a server that is asked for something every ten minutes is mentioned once or twice, and not all night.
    """

    def __init__(self, after: int = SILENCE) -> None:
        self._after = after

    def due_at(self, standing: EvidenceState) -> int:
        """The next moment at which there could be something to say."""
        return standing.idle_at(self._after)

    def to_tell(self, standing: EvidenceState, now: int) -> int | None:
        """How long it has been silent, if that is to be said now."""
        if now < self.due_at(standing):
            return None
        self._after *= 2
        return now - standing.idle_at(0)


# --- circles ----------------------------------------------------------------------------------------------------------
#
# An attempt that does the same again and again (repetition.py) is known by its reason when it has ended: the next one
# should not go on with a session in which an agent was lost.

REPEAT_LIMIT = 5
"""After so many rounds what an agent repeats is no progress any more (`repeat_limit`)."""
ASKED_AFTER = 2
"""After so many times the limit a human is asked."""
REPEATS_MOST = 10_000
REPEATS = "it repeated itself: "
"""How the detail of an attempt begins that ended while it went round in a circle."""
AGENT_REPEATS = "agent_repeats"
"""The outcome of an attempt that a human had ended for it; also the kind of the question about it."""


def ended_repeating(outcome: str, detail: str) -> bool:
    """Whether an attempt ended while it went round in a circle, by the outcome and the detail that are kept of it."""
    return outcome == AGENT_REPEATS or detail.startswith(REPEATS)


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


class ProcessSample(msgspec.Struct, frozen=True, gc=False):
    """What one process has used since it started."""

    cpu: int
    """Its own processor time, and the time it stood in line for a processor, in milliseconds."""
    children: int = 0
    """That of its children which have ended, and theirs."""
    written: int = 0
    """Bytes written to anything."""


class TreeSample(msgspec.Struct, frozen=True):
    """A tree at one moment; processes are told apart by number and start time."""

    at: int
    processes: Mapping[tuple[int, int], ProcessSample]
    printed: int = 0
    """Bytes that have come out so far."""
    new: int = 0
    """How often something came out that had not come out before."""
    sockets: int = 0


def busy(before: TreeSample, after: TreeSample) -> float:
    """The share of a processor that went into work between two looks, painting left out."""
    length = after.at - before.at
    if length <= 0:
        return 0.0
    spent = _total(after) - _total(before)
    printed = after.printed - before.printed
    if printed > 0 and after.new == before.new:
        for key, process in after.processes.items():
            earlier = before.processes.get(key, ProcessSample(0))
            if process.written - earlier.written >= max(printed * _PAINTER, 1):
                spent -= process.cpu - earlier.cpu
    return max(spent, 0) / length


def _total(look: TreeSample) -> int:
    return sum(process.cpu + process.children for process in look.processes.values())


def at_work(before: TreeSample, after: TreeSample, threshold: float = BUSY) -> str | None:
    """What the processes show, if that is progress."""
    share = busy(before, after)
    if share < threshold:
        return None
    return f"its processes take {share:.0%} of a processor"
