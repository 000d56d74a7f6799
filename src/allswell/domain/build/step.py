"""What a coordinator does: steps as values, decided by the rules of the build and carried out on the watch."""

from __future__ import annotations

import msgspec

from allswell.domain.build.line import Line
from allswell.domain.build.standing import BuildAudit, ClaimMark
from allswell.domain.names import QuestionId, TaskId, Token
from allswell.domain.question import Option


class OfferComponent(msgspec.Struct, frozen=True):
    """It can be built now: make it a task."""

    component: str


class CollectClaim(msgspec.Struct, frozen=True):
    """Somebody wants it; others may have been quicker, so the decision waits for the window to close."""

    component: str
    agent: str
    mark: ClaimMark


class GrantClaim(msgspec.Struct, frozen=True):
    """Give it to this agent; whoever else claimed it is told."""

    component: str
    task: TaskId
    agent: str
    mark: ClaimMark
    losers: tuple[str, ...] = ()


class HoldComponent(msgspec.Struct, frozen=True):
    """Its holder, or the audit that it waits for, is alive: renew the lease."""

    task: TaskId
    token: Token
    agent: str
    note: str = ""
    progress: float | None = None


class HandIn(msgspec.Struct, frozen=True):
    """It is built: have it audited."""

    component: str
    audit: BuildAudit
    instead_of: TaskId | None = None
    """The READY that this one replaces."""


class GiveVerdict(msgspec.Struct, frozen=True):
    """Somebody has audited it."""

    component: str
    audit: BuildAudit
    by: str
    passed: bool
    details: str = ""


class MergeComponent(msgspec.Struct, frozen=True):
    """It has passed, and is in."""

    component: str
    task: TaskId
    token: Token
    agent: str
    audit: BuildAudit


class GiveBackComponent(msgspec.Struct, frozen=True):
    """Its holder does not build it any more; it is free again."""

    task: TaskId
    token: Token
    agent: str
    reason: str


class AskAboutComponent(msgspec.Struct, frozen=True):
    """Its holder does not build it any more, and a human has to decide."""

    task: TaskId
    token: Token
    agent: str
    text: str
    options: tuple[Option, ...]


class AskAboutBuild(msgspec.Struct, frozen=True):
    """A human has to decide about the build; what is held goes on."""

    text: str
    options: tuple[Option, ...]


class AnswerQuestion(msgspec.Struct, frozen=True):
    """A human has decided, in the channel."""

    question: QuestionId
    option: str
    text: str
    by: str


class SayLine(msgspec.Struct, frozen=True):
    """Tell the channel."""

    line: Line


class IgnoreLine(msgspec.Struct, frozen=True):
    """What was said changes nothing; the log knows why."""

    who: str
    why: str


BuildStep = (
    OfferComponent
    | CollectClaim
    | GrantClaim
    | HoldComponent
    | HandIn
    | GiveVerdict
    | MergeComponent
    | GiveBackComponent
    | AskAboutComponent
    | AskAboutBuild
    | AnswerQuestion
    | SayLine
    | IgnoreLine
)
