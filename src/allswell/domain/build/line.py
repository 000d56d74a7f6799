"""The lines of a build: what agents, the coordinator and humans say to each other, one value for each verb (C8).

How a line is written and read stands in `wording`. Who may say what is not decided here.
"""

from __future__ import annotations

import msgspec


class ClaimLine(msgspec.Struct, frozen=True):
    """`CLAIM c`: the speaker wants to build it."""

    component: str


class ProgressLine(msgspec.Struct, frozen=True):
    """`PROGRESS c [40%] [note]`: the builder is still at it."""

    component: str
    percent: int | None = None
    note: str = ""


class BlockedLine(msgspec.Struct, frozen=True):
    """`BLOCKED c dep`: the builder cannot go on before another component is there."""

    component: str
    dependency: str


class ReadyLine(msgspec.Struct, frozen=True):
    """`READY c url`: it is built; the pull request can be audited."""

    component: str
    url: str


class AuditLine(msgspec.Struct, frozen=True):
    """`AUDIT c PASS|FAIL details`: a verdict on what was built."""

    component: str
    passed: bool
    details: str = ""


class AbortLine(msgspec.Struct, frozen=True):
    """`ABORT c "reason"`: the builder gives it back."""

    component: str
    reason: str = ""


class AnswerLine(msgspec.Struct, frozen=True):
    """`ANSWER question option [text]`: a human decides."""

    question: str
    option: str
    text: str = ""


class TasksLine(msgspec.Struct, frozen=True):
    """`TASKS url c1 c2 …`: what can be claimed now."""

    url: str
    free: tuple[str, ...] = ()


class AckLine(msgspec.Struct, frozen=True):
    """`ACK c agent`: the component is this agent's now."""

    component: str
    agent: str


class RejectLine(msgspec.Struct, frozen=True):
    """`REJECT c agent "reason"`: what this agent said of the component does not count."""

    component: str
    agent: str
    reason: str = ""


class TimeoutLine(msgspec.Struct, frozen=True):
    """`TIMEOUT c`: its builder was silent for too long and has lost it."""

    component: str


class RetryLine(msgspec.Struct, frozen=True):
    """`RETRY c`: its builder has failed too often; another one may claim it."""

    component: str


class MergedLine(msgspec.Struct, frozen=True):
    """`MERGED c`: it is in; what needs it can begin."""

    component: str


class ErrorLine(msgspec.Struct, frozen=True):
    """`ERROR "text"`: the build cannot go on as it is."""

    text: str


class EscalateLine(msgspec.Struct, frozen=True):
    """`ESCALATE "text" ANSWER question option|option`: a human is asked; the end says what to type."""

    text: str
    question: str = ""
    options: tuple[str, ...] = ()


class CompleteLine(msgspec.Struct, frozen=True):
    """`BUILD COMPLETE url`: everything is merged."""

    url: str = ""


AgentLine = ClaimLine | ProgressLine | BlockedLine | ReadyLine | AuditLine | AbortLine
HumanLine = AnswerLine | MergedLine
CoordinatorLine = (
    TasksLine
    | AckLine
    | RejectLine
    | TimeoutLine
    | RetryLine
    | MergedLine
    | ErrorLine
    | EscalateLine
    | CompleteLine
    | AuditLine
    | ReadyLine
)
"""`AUDIT` and `READY` too: it repeats the verdict that counts, and announces again what nobody audits."""
Line = AgentLine | HumanLine | CoordinatorLine


class Misread(msgspec.Struct, frozen=True):
    """Text that begins like a line and is none, or is too long to be looked at; it is logged and changes nothing."""

    text: str
    why: str
