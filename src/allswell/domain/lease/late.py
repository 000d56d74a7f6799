"""What a holder still said after its attempt had ended: refused, never applied, and kept with the attempt (O10).

The first result that came is the attempt's `late`: it is what the next holder or a human may want to use. All words are
kept beside it in the order in which they came, each text up to a bound, and no more of them than `WORDS_MOST`; how many
more there were is counted. Check-ins can come without end, so of them there is a count and the last one.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, CommandId, Millis
from allswell.domain.rules.command import (
    Ask,
    CheckInAgain,
    Complete,
    Delegate,
    Fail,
    HolderCommand,
    Release,
    SendRequest,
    Verified,
)
from allswell.domain.task.model import Attempt
from allswell.domain.task.submit import check_text

WORDS_MOST = 16
TEXT_MOST = 16_384
"""Characters that are kept of each word beside the first result."""


class LateMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that came too late."""

    verb: str
    at: Millis
    text: str = ""
    """What it said; of the first result nothing, as that is kept as a whole."""
    cut: bool = False
    """Whether there was more of it."""
    command: CommandId = NO_COMMAND


class LateReports(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All that came after the end of one attempt."""

    words: tuple[LateMessage, ...] = ()
    more: int = 0
    """How many words there were beyond those that are kept."""
    checkins: int = 0
    checkin_at: Millis | None = None
    """When the last one came, and what it said."""
    note: str = ""
    progress: float | None = None


NOTHING = LateReports()
_decoder = msgspec.json.Decoder(LateReports)


def afterwards(attempt: Attempt) -> LateReports:
    """What came after an attempt's end."""
    return NOTHING if attempt.afterwards is None else _decoder.decode(attempt.afterwards)


def kept(past: Attempt, command: HolderCommand, now: Millis) -> tuple[Attempt, str] | None:
    """The attempt with what its holder still said, and the verb; None if there is nothing to keep of it."""
    before = afterwards(past)
    if isinstance(command, CheckInAgain):
        if not command.proof:
            return None
        check_text(command.note, "note")
        share = command.progress
        after = replace(
            before,
            checkins=before.checkins + 1,
            checkin_at=now,
            note=command.note[:TEXT_MOST] or before.note,
            progress=share if share is not None and 0 <= share <= 1 else before.progress,
        )
        return replace(past, afterwards=_text(after)), "checkin"
    said = _said(command)
    if said is None or any(word.command == command.id != NO_COMMAND for word in before.words):
        return None
    verb, text = said
    check_text(text, verb)
    if past.late is None and verb in ("complete", "fail"):
        past, text = replace(past, late=text), ""
    if len(before.words) >= WORDS_MOST:
        return replace(past, afterwards=_text(replace(before, more=before.more + 1))), verb
    word = LateMessage(verb, now, text[:TEXT_MOST], len(text) > TEXT_MOST, command.id)
    return replace(past, afterwards=_text(replace(before, words=(*before.words, word)))), verb


def is_news(past: Attempt, verb: str) -> bool:
    """Whether what was kept last goes to the journal: every report that is kept does, and the first check-in."""
    after = afterwards(past)
    return after.checkins == 1 if verb == "checkin" else after.more == 0


def _said(command: HolderCommand) -> tuple[str, str] | None:
    """What a word carries; that of a supervisor which takes a task back carries nothing."""
    match command:
        case Complete():
            return "complete", command.result
        case Verified():
            brought = command.result if command.passed else None
            return ("verified", command.why) if brought is None else ("complete", brought)
        case Fail():
            return "fail", msgspec.json.encode(command.failure).decode()
        case Release():
            return "release", command.reason
        case Ask():
            return "ask", command.text
        case Delegate():
            return "delegate", f"{command.request.role}: {command.request.name}"
        case SendRequest():
            return "request", f"{command.spec.to}: {command.request.name}"
        case _:
            return None


def _text(after: LateReports) -> str:
    return msgspec.json.encode(after).decode()


_ENDED = {
    "done": "it was completed",
    "not_verified": "its work was not verified, and the task was sent back",
    "agent_timeout": "its limit was reached",
    "agent_idle": "it showed no progress for too long",
    "agent_stalled": "it missed too many check-ins",
    "lease_lapsed": "it was not renewed in time",
    "run_timeout": "the deadline of its run has passed",
    "delegation_timeout": "the time of the request was up",
    "released": "it was given back",
    "asked": "a human was asked",
    "parked": "it waits out a limit of a service",
    "cancelled": "the task was cancelled",
    "skipped": "the task was skipped",
    "split": "the task was split",
    "supervisor_died": "its supervisor died",
    "supervisor_stopped": "its supervisor was stopped",
    "supervisor_cut_off": "its supervisor was cut off from the store",
}


def why_over(outcome: str) -> str:
    """Why an attempt is over, for its holder who comes late."""
    return "it failed" if outcome.startswith("failed") else _ENDED.get(outcome, f"it ended as {outcome}")
