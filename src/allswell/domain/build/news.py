"""What the channel has to be told: the difference between what it was told last and how the build stands now.

What was told is kept in the store, together with the lines that are still to be said (`owed.py`). A coordinator that
was killed goes on from there, so that a line is said again only if nobody knows whether it arrived, and then word for
word.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allswell.domain.build.limits import BuildLimits
from allswell.domain.build.line import (
    AckLine,
    AuditLine,
    CompleteLine,
    ErrorLine,
    EscalateLine,
    Line,
    MergedLine,
    ReadyLine,
    RejectLine,
    RetryLine,
    TimeoutLine,
)
from allswell.domain.build.standing import (
    ASKED,
    AUDIT_FAILED,
    GIVEN_TO,
    SILENT,
    ComponentStanding,
    PastAttempt,
    Standing,
)
from allswell.domain.build.wording import tasks_lines
from allswell.domain.names import Millis, QuestionId


class ToldComponent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the channel knows of a component."""

    holder: str = ""
    token: int = 0
    """Of the last lease that was told of."""
    audits: int = 0
    """How many verdicts were told."""
    announced: int = 0
    """The READY that was announced last, by its number, and when."""
    announced_at: Millis = Millis(0)
    merged: bool = False


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the channel knows."""

    components: Mapping[str, ToldComponent] = {}
    """Those of which something was told and more is to come."""
    merged: tuple[str, ...] = ()
    """Those of which nothing more is to be told."""
    free: tuple[str, ...] = ()
    free_at: Millis = Millis(0)
    """When that was said last."""
    questions: tuple[QuestionId, ...] = ()
    cycle: str = ""
    complete: bool = False


_UNTOLD = ToldComponent()


def news(told: Told, standing: Standing, limits: BuildLimits, url: str, now: Millis) -> tuple[list[Line], Told]:
    """The lines to say, those about what can be claimed last, and what the channel knows once they have arrived."""
    lines: list[Line] = []
    components = dict(told.components)
    merged = dict.fromkeys(told.merged)
    returned = False
    for component in standing.components.values():
        if component.task is None or component.name in merged:
            continue  # there is nothing to tell of it, or nothing more
        before = components.get(component.name, _UNTOLD)
        said, after, freed = _about(before, component, limits, now)
        lines += said
        returned = returned or freed
        if after.merged:
            components.pop(component.name, None)
            merged[component.name] = None
        elif after is not before:
            components[component.name] = after
    for question in standing.questions:
        if question.choice is None and question.id not in told.questions:
            if standing.cycle and question.options[:1] == ("recheck",):
                lines.append(ErrorLine(f"dependency cycle detected: {standing.cycle}"))
            lines.append(EscalateLine(question.text, question.id, question.options))
    free = () if standing.stands_still() else tuple(standing.free)
    free_at = told.free_at
    if free and (returned or not set(free) <= set(told.free) or now >= free_at + limits.tasks_every):
        lines += tasks_lines(url, free)
        free_at = now
    complete = standing.is_over and bool(standing.components)
    if complete and not told.complete:
        lines.append(CompleteLine(url))
    questions = tuple(question.id for question in standing.questions)
    return lines, Told(components, tuple(merged), free, free_at, questions, standing.cycle, complete)


def _about(
    before: ToldComponent, component: ComponentStanding, limits: BuildLimits, now: Millis
) -> tuple[list[Line], ToldComponent, bool]:
    """The lines about one component, in the order in which it happened; whether it has become free again."""
    name = component.name
    verdicts = [audit for audit in component.audits if audit.passed is not None]
    failed = [audit for audit in verdicts[before.audits :] if not audit.passed]
    lines: list[Line] = []
    freed = False
    token = before.token
    for lease in _leases(component):
        if lease.token > before.token:
            lines.append(AckLine(name, lease.agent))
        lines += [AuditLine(name, passed=False, details=one.details) for one in failed if one.token == lease.token]
        if lease.outcome and (lease.token > before.token or (lease.token == before.token and before.holder)):
            freed = component.state == "free"
            lines += _ending(component, lease)
        token = max(token, lease.token)
    merged = component.state == "merged"
    if merged and not before.merged:
        lines.append(MergedLine(name))
    announced, announced_at = before.announced, before.announced_at
    audit = component.in_audit
    if audit is not None and audit.number > announced:
        announced, announced_at = audit.number, now  # its builder has just said so
    elif audit is not None and now >= announced_at + limits.audit_timeout:
        lines.append(ReadyLine(name, audit.url))
        announced_at = now
    after = ToldComponent(component.holder, token, len(verdicts), announced, announced_at, merged)
    return lines, before if after == before else after, freed


def _leases(component: ComponentStanding) -> list[PastAttempt]:
    """Every lease there was, in order; the one that there is has no outcome yet."""
    held = [PastAttempt(component.token, component.holder, "")] if component.holder else []
    return [*component.past, *held]


def _ending(component: ComponentStanding, lease: PastAttempt) -> list[Line]:
    """What is said of a lease that is over, so that its builder stops; an abort was said by itself."""
    name = component.name
    if lease.outcome == SILENT:
        return [TimeoutLine(name)]
    if lease.detail.startswith(AUDIT_FAILED):
        return [RetryLine(name)]
    if lease.detail.startswith(GIVEN_TO):
        return [RejectLine(name, lease.agent, f"a human has given it to {lease.detail.removeprefix(GIVEN_TO)}")]
    if lease.outcome == ASKED and any(one.token == lease.token and one.passed is False for one in component.audits):
        return [RejectLine(name, lease.agent, "your work on it has failed, and a human decides about it")]
    return []
