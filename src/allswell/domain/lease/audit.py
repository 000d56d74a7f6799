"""Audits: another agent judges what was built, and what follows from the verdict (C2).

This is the one rule for every kind of work that is audited: the components of a build, whose verdicts are said in a
chat; a flow's step with `audit:`, whose verdict is a command's exit code or an agent's word; and whatever else has its
work judged before it counts, such as a claim that is checked by a command. Each of them has to say three things, and
decides nothing by itself:

    who judges           `why_no_verdict`: not its builder, no agent that is not listed if some are, and none before the
    work was handed in how often it failed  `failed_audits`: of one builder, since a human last decided about it what
    follows         `after_verdict`: it is accepted; its builder fixes it; another builder has to do it; or, without
    another, a human decides
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from allswell.domain.ids import Millis

AUDIT_FAILURES = 3
"""After so many failed audits of one builder, another builder or a human has to do it."""


class Audited(msgspec.Struct, frozen=True):
    """One verdict on the work."""

    passed: bool
    by: str
    details: str = ""


class AuditVerdict(msgspec.Struct, frozen=True):
    """One verdict in the history of a piece of work, and whose work it was about."""

    builder: str
    passed: bool


class HumanDecision(msgspec.Struct, frozen=True):
    """A human has decided about the work: what was before does not count any more."""


AuditHistory = Iterable[AuditVerdict | HumanDecision]
"""What happened to a piece of work, in order."""


class AfterAudit(StrEnum):
    """What follows from a verdict."""

    ACCEPT = "accept"
    MEND = "mend"
    """Its builder goes on with what was found."""
    REASSIGN = "reassign"
    """Its builder is barred from it, and another one does it."""
    ASK = "ask"
    """There is no other builder: a human decides."""


def why_no_verdict(
    auditor: str, builder: str, *, listed: Collection[str] = (), said_at: Millis, handed_in_at: Millis
) -> str:
    """Why a report about a piece of work is not a verdict on it; empty if it is one.

    Both moments are of one clock. If auditors are listed, only their verdicts count.
    """
    if said_at < handed_in_at:
        return "it was said before the work was handed in"
    if auditor == builder:
        return "an agent cannot audit its own build"
    if listed and auditor not in listed:
        return "you are not among the auditors of this build"
    return ""


def failed_audits(history: AuditHistory, builder: str) -> int:
    """How often the work of this builder has failed, since a human last decided."""
    count = 0
    for one in history:
        if isinstance(one, HumanDecision):
            count = 0
        elif not one.passed and one.builder == builder:
            count += 1
    return count


def after_verdict(*, passed: bool, failed: int, others: bool = False, most: int = AUDIT_FAILURES) -> AfterAudit:
    """What follows from a verdict; `failed` counts this one, `others` is whether another builder could do it."""
    if passed:
        return AfterAudit.ACCEPT
    if failed < most:
        return AfterAudit.MEND
    return AfterAudit.REASSIGN if others else AfterAudit.ASK
