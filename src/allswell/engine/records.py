"""A batch of recorded steps. A step must cost little more than its commit, so it touches the flow's lease alone.

Whether a step is recorded already is not asked first: its row is simply made. Only if it turns out to be there
(`Conflict`: the same word was said twice, or its answer was lost) is the batch decided again with the rows in sight.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.command import RecordStep
from allswell.domain.event import Event
from allswell.domain.flow import record_step
from allswell.domain.lease import Lease
from allswell.domain.names import Millis, TaskId, can_name
from allswell.domain.task import Finished, Task
from allswell.engine.batch import Performed
from allswell.engine.book import News
from allswell.engine.plan import ordered
from allswell.errors import AllswellError, LeaseLost
from allswell.store.port import Changes, Kind, Lock, Transaction, Wanted
from allswell.store.shortcut import Decide, Recorded


def decision(step: RecordStep, lane: int) -> Decide:
    """What recording one step comes to, for the short way; None for whatever needs more than the lease to be told."""

    def decide(lease: Lease | None, now: Millis) -> Recorded | None:
        try:
            done = record_step(lease, None, step, lane, now)
        except AllswellError:
            return None
        if done is None:
            return None
        task, attempt, event = done
        return Recorded(Finished(task, step.payload, step.result, attempt), event, now)

    return decide


async def perform(
    tx: Transaction, said: Sequence[RecordStep], lane: int, seen: dict[TaskId, Lease], *, careful: bool
) -> Performed:
    """Record steps; an answer or an error for each. `careful` looks for those that are there already.

    The leases are left in `seen`, for those who take the short way next time.
    """
    flows = ordered({command.flow for command in said})
    steps = ordered({command.step for command in said}) if careful else []
    locks = [Lock(kind, ids) for kind, ids in ((Kind.TASK, steps), (Kind.LEASE, flows)) if ids]
    now, rows = await tx.take(locks, Wanted(tasks=steps, leases=flows))
    seen.update(rows.leases)
    known: dict[TaskId, Task] = rows.tasks
    changes = Changes(at=now)
    answers: list[object] = []
    for command in said:
        try:
            done = record_step(rows.leases.get(command.flow), known.get(command.step), command, lane, now)
        except AllswellError as error:
            answers.append(error)
            if isinstance(error, LeaseLost) and can_name(command.name):  # whoever looks for it finds out whose it was
                told = {"name": command.name}
                changes.events.append(
                    Event("step_refused", command.flow, command.run, command.agent, command.token, told)
                )
            continue
        answers.append(command.step)
        if done is not None:
            task, attempt, event = done
            known[task.id] = task
            changes.recorded.append(Finished(task, command.payload, command.result, attempt))
            changes.events.append(event)
    if changes.events:
        await tx.write(changes)
    return Performed(answers, News(steps=bool(changes.recorded)))
