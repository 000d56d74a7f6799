"""Handing an ended task over again: a new task that carries the ended one's history. The ended one stays ended.

Ends are final, so nothing goes back: the new task is what the old one was asked to be, and knows what came of it (the
notes of humans, what the last attempt handed over, limits that were raised). Each names the other. An ended task is
submitted again once; a third submission is one of the second.

With it go, where they are wanted, the tasks that were skipped because it had not ended well: they need the new ones.
A done task is submitted again only on request, because other work may rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, RunId, TaskId
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.rules.command import Command, NewTask
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, event
from allswell.domain.task.model import OPEN, Spec, State, Task, carried
from allswell.domain.task.submit import accept_among, check_name, check_needs, check_run
from allswell.errors import Refused

MOST = 1_000
"""Tasks that are handed over again together."""


class ResubmittedTask(msgspec.Struct, frozen=True, gc=False):
    """One ended task and the new one for it; the rest follows from the ended one, and is named so that it is locked."""

    of: TaskId
    id: TaskId
    needs: tuple[tuple[TaskId, ...], ...] = ()
    """For each task that the ended one needed: that one, and those that it was handed over as, the last one last."""
    run: RunId | None = None
    role: str = ""
    services: tuple[str, ...] = ()


class Resubmit(Command, frozen=True, gc=False):
    """Hand ended tasks over again, all or none; the first is the one that was meant, others were skipped for it."""

    id: CommandId
    renewals: tuple[ResubmittedTask, ...]
    again: bool = False
    """One that is done, too."""
    by: str = ""


def resubmit(situation: RowSnapshot, command: Resubmit) -> Decision:
    """Decide which ended tasks are made anew, and what they carry."""
    renewals = command.renewals
    if not 1 <= len(renewals) <= MOST:
        raise Refused("too_many_tasks", f"1 to {MOST} tasks can be retried together", where="task")
    if command.by:
        check_name(command.by, "by")
    ids = [one.id for one in renewals]
    before = situation.cases.get(renewals[0].of)
    if before is not None and before.task.record.retried_as == ids[0]:  # it was said before, and its answer was lost
        return Decision(ids)
    together = {one.of: one.id for one in renewals}
    made = [_made(situation, one, together) for one in renewals]
    check_needs(made)
    for place, one in enumerate(renewals):
        old = situation.case(one.of)
        _check_ended(old.task, again=command.again and place == 0)
        if place:
            _check_skipped_for(old.task, together)
    _check_needs_hold(situation, made[0])
    outcomes: list[TaskChange] = []
    fresh = dict.fromkeys(ids, 0)
    for one, new in zip(renewals, made, strict=True):
        if new.run is not None:
            check_run(situation.runs.get(new.run), new.run)
        outcomes += _handed_over(situation, situation.case(one.of), new, fresh, command.by)
    return Decision(ids, outcomes=outcomes)


def _made(situation: RowSnapshot, one: ResubmittedTask, together: Mapping[TaskId, TaskId]) -> NewTask:
    """The ended task as it was asked for, under its new id; what was named for the locks must be what it is."""
    task = situation.case(one.of).task
    spec = task.spec
    said = (one.role, one.services, tuple(chain[0] for chain in one.needs))
    if said != (task.role, spec.services, spec.needs):
        raise Refused("bad_retry", f"{task.name} is not what it was said to be", where="task")
    for then, now in (pair for chain in one.needs for pair in pairwise(chain)):
        if now not in (together.get(then), situation.case(then).task.record.retried_as):
            raise Refused("bad_retry", f"{task.name} needs {then}, and {now} does not stand for it", where="needs")
    return NewTask(
        one.id,
        task.name,
        one.run,
        task.role,
        spec.services,
        task.priority,
        tuple(chain[-1] for chain in one.needs),
        tuple(AgentId(agent) for agent in sorted(situation.bars.get(task.id, ()))),
        situation.payloads.get(task.id, "null"),
        None,
        spec.critical,
        spec.if_need_fails,
        spec.policy,
        carried=carried(task.record),
    )


def _check_ended(task: Task, *, again: bool) -> None:
    """Refuse what cannot be handed over again, with what can be done instead."""
    if task.state == OPEN:
        text = f"{task.name} has not ended: it goes on by itself, or waits for something"
        raise Refused("not_ended", text, where="task", hint=f"`allswell why {task.id}` says for what")
    if task.record.retried_as is not None:
        text = f"{task.name} was retried already, as {task.record.retried_as}"
        raise Refused("retried", text, where="task", hint=f"`allswell show {task.record.retried_as}`")
    if task.state == State.SPLIT:
        parts = ", ".join(task.record.replaced_by[:5])
        raise Refused("split", f"{task.name} was split; retry its parts instead: {parts}", where="task")
    if task.spec.flow or task.role == STEP_ROLE:
        text = f"{task.name} belongs to a flow, which goes on where it was"
        raise Refused("of_a_flow", text, where="task", hint=f"`allswell resume {task.run or 'RUN'}`")
    if task.role == RUN_ROLE:
        text = f"{task.name} is a command that runs where it was started"
        raise Refused("of_a_command", text, where="task", hint=f"`allswell run --resume {task.id}`")
    if task.spec.origin is not None:
        raise Refused(
            "a_request", f"{task.name} was asked for by {task.spec.origin.agent}, who can ask again", where="task"
        )
    if task.state == State.DONE and not again:
        text = f"{task.name} is done, and others may have built on it"
        raise Refused("task_done", text, where="task", hint="to do it once more all the same, say `--again`")


def way_back(task: Task) -> str | None:
    """How a human takes back the end of a task; None where only its asker can."""
    try:
        _check_ended(task, again=True)
    except Refused as refused:
        return refused.hint
    return f"`allswell retry {task.id} --with-dependents`"


def _check_skipped_for(task: Task, together: Mapping[TaskId, TaskId]) -> None:
    if task.state != State.SKIPPED or not any(need in together for need in task.spec.needs):
        text = f"{task.name} was not skipped because of what is retried with it"
        raise Refused("not_skipped", text, where="task")


def _check_needs_hold(situation: RowSnapshot, new: NewTask) -> None:
    """Refuse what would be skipped at once: what it needs has not ended well either."""
    if new.if_need_fails == "run":
        return
    for need in new.needs:
        case = situation.cases.get(need)
        if case is not None and case.task.state not in (OPEN, State.DONE):
            text = f"{new.name} needs {case.task.name}, which was {case.task.state}; retry that first"
            raise Refused("need_ended", text, where="task", hint=f"`allswell retry {need} --with-dependents`")


def _handed_over(
    situation: RowSnapshot, old: TaskAggregate, new: NewTask, fresh: Mapping[TaskId, int], by: str
) -> tuple[TaskChange, TaskChange]:
    """The ended task, which names its successor, and the successor, which knows what came of it."""
    before = replace(old, task=replace(old.task, record=replace(old.task.record, retried_as=new.id)))
    left = TaskChange(before, events=[event(old.task, "task_resubmitted", new_task=new.id, by=by)])
    made = accept_among(situation, new, fresh)
    task = made.case.task
    spec: Spec = replace(task.spec, retry_of=old.task.id)
    made.case = replace(made.case, task=replace(task, spec=spec))
    return left, made


def _names(command: Resubmit) -> ReadSet:
    renewals = command.renewals
    old = [one.of for one in renewals]
    together = {one.id for one in renewals}
    needed = [need for one in renewals for chain in one.needs for need in chain if need not in together]
    return ReadSet(
        tasks=[*old, *needed],
        made=[one.id for one in renewals],
        payloads=old,
        bars=old,
        runs_shared=[one.run for one in renewals if one.run is not None],
        lanes={(one.role, one.services): None for one in renewals},
    )


RULES = (Rule(Resubmit, resubmit, _names),)
