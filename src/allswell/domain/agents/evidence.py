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

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from allswell.domain.agents.refusal import ProviderRefusal


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


# --- output -----------------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_KEYS = re.compile(r"(?:\^[@-_?])+")
"""Keys that a terminal has shown as they were typed, such as ^C."""
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


def last_words(printed: bytes, most: int = _LAST) -> str:
    """The end of what was printed, as lines that a person can read; what was painted again and again stands once."""
    lines: list[str] = []
    for part in _BREAKS.split(_ESCAPES.sub(b"\n", _COLOURS.sub(b"", printed))):
        line = "".join(one for one in part.decode("utf-8", "replace").strip() if one.isprintable())
        if line and line not in lines and not _KEYS.fullmatch(line):
            lines.append(line)
    return "\n".join(lines)[-most:]


# Whether a line of output says something new: weak evidence of progress, where there is no protocol.
#
# A line is compared with those before it by its words. Pictures, bars and marks are left out, and so are clocks. Where
# the words were there before, the line is new only if one of its numbers has advanced: `epoch 3 loss=0.21` is new after
# `epoch 2 loss=0.23`; `elapsed 13s` is not after `elapsed 12s`, nor is `waiting...` after `waiting...`.
#
# What is a clock:
#   by its form     a time of day, a date, a number with a unit of time (`12s`, `3 min`) or after "elapsed" and the like
#   by its course   a number that has moved by as many seconds as have passed; one that counts lines, 1, 2, 3, has not,
#                   even if there is a line every second
# Digits within a name (`file7.c`, `test_17`) are part of the name.
#
# What is painted over by carriage returns is no line until it is completed, and what goes up to paint over earlier
# lines
# is none at all. Lines are found and bounded where bytes are read (runtime/attempt/output.py); moments are milliseconds
# of a monotonic clock.

LONGEST = 512
"""Bytes of a line that are looked at; of a longer one, such as a paragraph that is streamed, so many at a time."""
_NUMBERS_MOST = 16
_EPOCH = 1e9
"""From here on a number may be a time since 1970, in seconds or less."""
_UNITS = (1, 1e3, 1e6, 1e9)

_NEW_LINE_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BACK = re.compile(r"\r|\x1b\[[0-9;]*[GK]")
"""What goes back to the beginning of a line, or takes it away: what stood before it is not there any more."""
_UP = re.compile(r"\x1b(?:\[[0-9;]*[AFHJSTfsu]|[78M])|\x08")
"""What goes elsewhere: the lines are painted over earlier ones."""
_UNIT = r"(?:[nuµm]s|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_CLOCKS = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"  # a date, with a time or without
    r"|\d{1,4}/(?:\d{1,2}|[A-Z][a-z]{2})/\d{2,4}(?::\d\d:\d\d:\d\d)?(?: [+-]\d{4})?"  # and as web servers write it
    r"|(?<![\w.])\d{1,3}(?::\d\d){1,2}(?:[.,]\d+)?(?![\w:])"  # 12:30:45, 00:12
    rf"|(?<![\w.])(?:\d+(?:[.,]\d+)?[ -]?{_UNIT}\b(?![/=]) ?)+"  # 12s, 1h 30m, 3 minutes
    r"|\b(?:elapsed|uptime|eta|runtime|waited|waiting)\b[^\w\n]{0,4}\d+(?:[.,]\d+)?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<!\w)\d+(?:[.,]\d+)*%?")
"""A number that is not part of a name."""
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_MARKS = re.compile(r"[\W_]+")
_AGAIN = re.compile(r"\b(\w+)(?: \1\b)+")


def standing_text(line: bytes) -> str:
    """What stands there once a line, given without its end, has been completed; nothing where it paints elsewhere."""
    text = line.rstrip(b"\r").decode("utf-8", "replace")
    if _UP.search(text):
        return ""
    shown = _NEW_LINE_ESCAPES.sub("", _BACK.split(text)[-1])
    return shown if shown.isprintable() else "".join(one if one.isprintable() else " " for one in shown)


class _Number(NamedTuple):
    """A number as it stands in a line."""

    value: float
    whole: bool
    share: bool
    """Whether it is a percentage."""


class _Slot:
    """One number of a kind of line: how far it has been, and whether it has gone with the clock."""

    __slots__ = ("at", "first", "high", "last", "low")

    def __init__(self, value: float, at: int) -> None:
        self.first = self.last = self.high = self.low = value
        self.at = at

    def advances(self, number: _Number, at: int) -> bool:
        """Whether it has gone further than ever, and not with the clock; it is remembered.

        A whole number may also count down. One that is not whole may be a measurement, and those vary.
        """
        value = number.value
        beyond = value > self.high or (number.whole and value < self.low)
        clock = self._is_clock(number, at)
        self.high, self.low, self.last = max(self.high, value), min(self.low, value), value
        return beyond and not clock

    def _is_clock(self, number: _Number, at: int) -> bool:
        passed, moved = (at - self.at) / 1_000, abs(number.value - self.first)
        since_1970 = self.first >= _EPOCH
        if number.share or (number.whole and not since_1970 and abs(number.value - self.last) <= 1):
            return False  # a share of the work, or it counts lines
        near = 1 if number.whole else 0.2
        return any(
            abs(moved - passed * unit) <= max(near * unit, 0.05 * moved) for unit in (_UNITS if since_1970 else (1,))
        )


class NewLines:
    """Tells which lines of an output are new; one for each stream."""

    def __init__(self) -> None:
        self._kinds: dict[str, list[_Slot]] = {}

    def is_new(self, line: bytes, at: int) -> bool:
        """Whether this line, without its end, says something new; it is remembered."""
        text = _CLOCKS.sub(" ", standing_text(line)[:LONGEST])
        numbers = _NUMBER.findall(text)[:_NUMBERS_MOST]
        words = _AGAIN.sub(r"\1", _MARKS.sub(" ", _NUMBER.sub(" 0 ", text)).strip().casefold())
        if not any(letter.isalpha() for letter in words) and not numbers:
            return False
        values = [_value(number) for number in numbers]
        slots = self._kinds.get(words)
        if slots is None:
            self._kinds[words] = [_Slot(number.value, at) for number in values]
            if len(self._kinds) > _REMEMBERED:
                del self._kinds[next(iter(self._kinds))]
            return True
        advanced = [slot.advances(number, at) for slot, number in zip(slots, values, strict=False)]
        return any(advanced)


def _value(text: str) -> _Number:
    """A number as it is written: 1,000,000 is whole, and 0,5 is not; of 1.2.3 the first two parts count."""
    digits = text.removesuffix("%")
    plain = digits.replace(",", "") if _THOUSANDS.fullmatch(digits) else digits.replace(",", ".")
    parts = plain.split(".")
    return _Number(float(".".join(parts[:2])), len(parts) == 1, text.endswith("%"))
