"""Limits of nested scopes: what is inside can only fire if it comes before what is around it (F1, F3, F12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allswell.domain.check.model import (
    CheckFigure,
    CheckRule,
    Finding,
    Location,
    Severity,
    SumCheck,
    at_least,
    exact,
    one,
)
from allswell.domain.check.model import times as several
from allswell.domain.check.retries import Retrying, hanging
from allswell.domain.task.submit import describe_cycle, find_cycle
from allswell.domain.values import nearest

ABOVE_HARD_LIMIT = CheckRule("above_hard_limit", Severity.ERROR, "A limit is at most the hard limit of its kind.")
OVERRIDE = CheckRule("override", Severity.NOTE, "A timeout_override may go beyond the hard limit, and is announced.")
NEVER_FIRES = CheckRule("never_fires", Severity.ERROR, "A limit is less than that of the scope around it.")


def above_hard_limit(own: CheckFigure, hard: CheckFigure) -> Iterator[Finding]:
    """A limit above the hard limit of its kind is refused at run time."""
    if own.value > hard.value:
        yield ABOVE_HARD_LIMIT.broken(
            f"{own.name} is above its hard limit, {hard.name}; it will be refused.",
            (own, hard),
            sum=SumCheck((one(own.length),), ">", hard.length),
            fix=f"Lower it to {exact(hard.length)}, or give the steps that need more a timeout_override.",
        )


def override_announced(override: CheckFigure, hard: CheckFigure) -> Iterator[Finding]:
    """An override is the one figure that may be above the hard limit; who reads the flow shall know (F12)."""
    if override.value > hard.value:
        yield OVERRIDE.broken(
            f"{override.name} replaces {hard.name} for this one step, as an override may.",
            (override, hard),
            sum=SumCheck((one(override.length),), ">", hard.length),
            fix=f"Nothing, if it is meant; otherwise lower it to {exact(hard.length)}.",
        )


def never_fires(inner: CheckFigure, outer: CheckFigure) -> Iterator[Finding]:
    """Whatever runs inside begins later, so at equal limits it is already the outer one that fires.

    A limit that nobody chose and a limit that is merely equal do no harm: these are warnings.
    """
    if inner.value >= outer.value:
        above = inner.value > outer.value
        yield NEVER_FIRES.broken(
            f"{inner.name} can never fire: {outer.name} is over first.",
            (inner, outer) if inner.written else (outer, inner),
            sum=SumCheck((one(inner.length),), ">" if above else "≥", outer.length),
            fix=f"Make {inner.name} less than {exact(outer.length)}, or {outer.name} more than {exact(inner.length)}.",
            severity=Severity.ERROR if above and inner.written else Severity.WARNING,
        )


# The steps of a flow: what needs what, and whether the longest way through fits (F1, F3, C4, O4).

UNKNOWN_NEED = CheckRule("unknown_need", Severity.ERROR, "A step needs only steps of its own flow.")
CYCLE = CheckRule("cycle", Severity.ERROR, "No step needs itself, whatever lies between.")
CRITICAL_PATH = CheckRule(
    "critical_path", Severity.WARNING, "Steps that wait for each other can all use their time within the flow."
)
ESCALATION_IN_REACH = CheckRule(
    "escalation_in_reach", Severity.NOTE, "A step can time out often enough for a human to be asked."
)
_LISTED = 8
"""How many steps of a path are written out."""


class Need(msgspec.Struct, frozen=True):
    """What a step waits for."""

    step: str
    place: Location | None = None


class StepFigures(msgspec.Struct, frozen=True):
    """One step."""

    id: str
    limit: CheckFigure
    needs: tuple[Need, ...] = ()
    place: Location | None = None
    retrying: Retrying | None = None
    """How often it is tried, where it says so itself."""

    def longest(self) -> int:
        """All its attempts with the pauses between them."""
        made = None if self.retrying is None else hanging(self.retrying, self.limit)
        return self.limit.length if made is None else made.total


def needs_are_met(steps: Sequence[StepFigures]) -> Iterator[Finding]:
    """Needs that no step of the flow has, and cycles."""
    known = {step.id for step in steps}
    for step in steps:
        for need in step.needs:
            if need.step not in known:
                yield UNKNOWN_NEED.broken(
                    f"Step {step.id!r} needs {need.step!r}, and there is no such step.",
                    (),
                    fix=_offer(need.step, known),
                    place=need.place or step.place,
                )
    members = find_cycle({step.id: [need.step for need in step.needs] for step in steps})
    if members is not None:
        first = next(step for step in steps if step.id == members[0])
        yield CYCLE.broken(
            f"dependency cycle detected: {describe_cycle(members)}; none of them can ever start.",
            (),
            fix="Take away one of these needs.",
            place=first.place,
        )


def _offer(name: str, known: set[str]) -> str:
    near = nearest(name, sorted(known))
    return f"Did you mean {near!r}?" if near else "Add a step of this id, or take the need away."


def critical_path(steps: Sequence[StepFigures], flow: CheckFigure, *, most: int | None = None) -> Iterator[Finding]:
    """The longest way through the flow, every step taking all that it may; nothing where needs are wrong.

    `most` is how long the flow could be made.
    """
    path = longest_path(steps)
    lengths = {step.id: step.longest() for step in path}
    total = sum(lengths.values())
    if len(path) < 2 or total <= flow.value:
        return
    if len({(lengths[step.id], step.limit.name) for step in path}) == 1:
        terms = [several(len(path), lengths[path[0].id])]
    else:
        terms = [one(lengths[step.id], step.id) for step in path]
    longer = f"Give {flow.name} {at_least(total)}, shorten" if most is None or total <= most else "Shorten"
    yield CRITICAL_PATH.broken(
        f"{len(path)} steps wait for each other ({_arrows(path)}), and cannot all use their time within {flow.name}.",
        (flow, *(step.limit for step in path)),
        sum=SumCheck(tuple(terms), ">", flow.length),
        fix=f"{longer} steps, or let some of them run side by side.",
        place=flow.place or path[-1].place,
    )


def longest_path(steps: Sequence[StepFigures]) -> list[StepFigures]:
    """The steps of the longest way, in order; empty where a need is missing or goes in a circle."""
    named: Mapping[str, StepFigures] = {step.id: step for step in steps}
    if any(need.step not in named for step in steps for need in step.needs):
        return []
    waiting = {step.id: len({need.step for need in step.needs}) for step in steps}
    followers: dict[str, list[str]] = {step.id: [] for step in steps}
    for step in steps:
        for needed in dict.fromkeys(need.step for need in step.needs):
            followers[needed].append(step.id)
    ended: dict[str, int] = {}
    before: dict[str, str | None] = dict.fromkeys(named)
    ready = [id_ for id_, count in waiting.items() if count == 0]
    for id_ in ready:  # grows while it is read: a step follows when all it needs have come
        latest = before[id_]
        ended[id_] = (ended[latest] if latest is not None else 0) + named[id_].longest()
        for follower in followers[id_]:
            held_up_by = before[follower]
            if held_up_by is None or ended[held_up_by] < ended[id_]:
                before[follower] = id_
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if not ended or len(ended) < len(named):
        return []
    at: str | None = max(ended, key=ended.__getitem__)
    path = []
    while at is not None:
        path.append(named[at])
        at = before[at]
    return path[::-1]


def _arrows(path: Sequence[StepFigures]) -> str:
    ids = [step.id for step in path]
    if len(ids) > _LISTED:
        ids = [*ids[:3], "…", *ids[-2:]]
    return " → ".join(ids)


def escalation_in_reach(step: CheckFigure, flow: CheckFigure, escalation: CheckFigure) -> Iterator[Finding]:
    """A step that times out again and again is a human's business, if the flow lasts that long (O4)."""
    total = step.length * escalation.length
    if total >= flow.value:
        yield ESCALATION_IN_REACH.broken(
            f"A step that keeps timing out is never put to a human: its timeout number {escalation.length} comes when"
            f" {flow.name} is over, and it is the flow that times out.",
            (step, flow, escalation),
            sum=SumCheck((several(escalation.length, step.length),), "≥", flow.length),
            fix=f"Nothing, if that is meant; otherwise make {step.name} less than"
            f" {exact(-(-flow.length // escalation.length))}.",
        )
