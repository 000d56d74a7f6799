"""How a task's time was spent: every millisecond between its submission and its end belongs to one span.

What a task did between two attempts is not written down anywhere; it follows from what stood in its way then: needs
that had not ended, a not-before, an open question. What is left after a failure is its pause, otherwise it was ready.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from allswell.domain.listing import TaskRow
from allswell.domain.names import Millis
from allswell.domain.task import OPEN, Attempt
from allswell.engine.explaining.ended import outcome
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.shapes import Span
from allswell.engine.explaining.words import clean, quoted

Kind = Literal["waiting", "asked", "paused", "ready"]


def spent(row: TaskRow, facts: Facts) -> list[Span]:
    """The spans of a task's life, in order and without gaps, up to its end or to now."""
    task, lease = row.task, row.lease
    end = facts.now if task.ended_at is None else task.ended_at
    spans: list[Span] = []
    at, before = task.created_at, None
    for attempt in sorted(facts.attempts, key=lambda one: one.token):
        spans += _between(at, attempt.granted_at, before, row, facts)
        spans.append(_held(attempt))
        at, before = attempt.ended_at, attempt
    if task.state == OPEN and lease is not None:
        spans += _between(at, lease.granted_at, before, row, facts)
        spans.append(
            Span("held", lease.granted_at, Millis(max(end, lease.granted_at)), "holds it now", lease.agent, lease.token)
        )
    else:
        spans += _between(at, Millis(end), before, row, facts)
    return [span for span in spans if span.end > span.start or span.kind == "held"]


def _held(attempt: Attempt) -> Span:
    says = outcome(attempt.outcome, attempt.detail)
    if attempt.late is not None or attempt.afterwards is not None:
        says += "; what it still said afterwards was refused, and kept"
    return Span("held", attempt.granted_at, attempt.ended_at, says, attempt.agent, attempt.token, attempt.outcome)


def _between(start: Millis, end: Millis, before: Attempt | None, row: TaskRow, facts: Facts) -> list[Span]:
    """What a task did while nobody held it."""
    if end <= start:
        return []
    blocks = _blocks(row, facts, end)
    edges = sorted({start, end, *(edge for low, high, _, _ in blocks for edge in (low, high) if start < edge < end)})
    spans: list[Span] = []
    for low, high in pairwise(edges):
        kind, says = _during(low, high, blocks, before)
        same = bool(spans) and (spans[-1].kind, spans[-1].says) == (kind, says)
        spans.append(Span(kind, spans.pop().start if same else Millis(low), Millis(high), says))
    return spans


Block = tuple[int, int, Kind, str]


def _blocks(row: TaskRow, facts: Facts, end: int) -> list[Block]:
    """What stood in the way: from when, until when, of what kind, in words; the weightier first."""
    task = row.task
    blocks: list[Block] = []
    waits_for = {wait.target for wait in row.waits}
    for question in facts.asked:
        if question.closed_at is not None or question.id in waits_for:
            who = clean(question.answered_by) or "a human"
            blocks.append((question.asked_at, question.closed_at or end, "asked", f"for {who} to answer"))
    needs = [
        (need.task.ended_at or end, need.task.name)
        for need in facts.needed
        if need.task.ended_at or need.task.id in waits_for
    ]
    if needs:
        until, name = max(needs)
        blocks.append(
            (task.created_at, until, "waiting", f"for {quoted(name, 60)}" + (" and others" if len(needs) > 1 else ""))
        )
    if task.spec.not_before is not None:
        blocks.append((task.created_at, task.spec.not_before, "paused", "until its time had come"))
    if row.due is not None and row.lease is None:
        since = max((attempt.ended_at for attempt in facts.attempts), default=task.created_at)
        blocks.append((since, row.due, "paused", "until it is tried again"))
    return blocks


def _during(low: int, high: int, blocks: list[Block], before: Attempt | None) -> tuple[Kind, str]:
    for start, end, kind, says in blocks:
        if start <= low and high <= end:
            return kind, says
    if before is not None and before.outcome == "parked":
        return "paused", "until the limit was over and somebody took it again"
    if before is not None and before.outcome.startswith("failed:"):
        return "paused", "after the failure, until somebody took it again"
    return "ready", "for somebody to take it"
