"""Steps of a Python flow (flow.py): recorded when they are done.

A step is not handed out: its process does it, and says so when it is done (`RecordStep`). What is written is a task in
its final state with its result, its one attempt and its event, in one commit. It was never open, so it needs no lease
and no timer. The word carries the flow's token and is refused when that is not the current one, so a process that
was given up cannot record over its successor.

A recorded step must cost little more than its commit, so it is about the flow's lease alone. Whether the step is there
already is not asked first: its row is simply made. Only if it turns out to be there (the same word was said twice, or
its answer was lost) is it decided again with that row in sight.
"""

from __future__ import annotations

from allswell.domain.claim import STEP_ROLE
from allswell.domain.command import RecordStep
from allswell.domain.decision import Decision
from allswell.domain.event import Event
from allswell.domain.lease import Lease, ends_at
from allswell.domain.names import Millis, Token, can_name
from allswell.domain.rule import LaneKey, Names, Rule
from allswell.domain.situation import Situation
from allswell.domain.submit import check_id, check_name, check_text
from allswell.domain.task import Attempt, Finished, Record, Spec, State, Task, rank
from allswell.errors import Bug, LeaseLost, Refused

LANE: LaneKey = (STEP_ROLE, ())
"""Where steps stand."""
_AS_ASKED = Spec()
_FIRST = Token(1)
_DONE = State.DONE.value


def record_step(
    lease: Lease | None, known: Task | None, command: RecordStep, lane: int, now: Millis
) -> tuple[Task, Attempt, Event] | None:
    """A step as the finished task that it is, its attempt, and what is told; None if this very word came before."""
    if known is not None:
        if known.record.ended_by == command.id:
            return None
        raise Refused("step_recorded", f"the step {command.name} ({command.step}) is recorded already", where="step")
    fence(lease, command, now)
    check_id(command.step)
    check_name(command.name, "the step's name")
    check_text(command.payload, f"what {command.name} was called with")
    check_text(command.result, f"the result of {command.name}")
    if command.elapsed < 0:
        raise Bug(f"step {command.name} took {command.elapsed} ms")
    began = Millis(now - command.elapsed)
    record = Record(token=_FIRST, reason="completed", ended_by=command.id)
    task = Task(
        command.step,
        command.name,
        command.run,
        STEP_ROLE,
        lane,
        0,
        _DONE,
        began,
        now,
        _AS_ASKED,
        record,
        rank(0, began),
    )
    attempt = Attempt(command.step, _FIRST, command.agent, began, now, _DONE, command.id, "completed")
    told = {"name": command.name, "elapsed_ms": command.elapsed}
    return task, attempt, Event("step_recorded", command.step, command.run, command.agent, _FIRST, told)


def fence(lease: Lease | None, command: RecordStep, now: Millis) -> None:
    """Refuse whoever does not hold the flow now, whatever it believes."""
    if lease is None:
        raise LeaseLost(command.flow, command.token, "nobody holds the flow")
    if lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.flow, command.token, f"{lease.agent} has taken the flow up since")
    if now >= ends_at(lease):
        raise LeaseLost(command.flow, command.token, "its time ran out")


# --- the command ------------------------------------------------------------------------------------------------------


def record(situation: Situation, command: RecordStep) -> Decision:
    """Record a step; the answer is the flow's lease, for whoever records the next one."""
    lease = situation.lease(command.flow)
    known = situation.cases.get(command.step)
    try:
        done = record_step(lease, None if known is None else known.task, command, situation.lanes[LANE], situation.now)
    except LeaseLost as lost:
        return Decision(error=lost, events=_refused(command))
    if done is None:
        return Decision(lease)
    task, attempt, event = done
    return Decision(lease, events=(event,), recorded=(Finished(task, command.payload, command.result, attempt),))


def _refused(command: RecordStep) -> tuple[Event, ...]:
    """What the journal is told of a step that was refused: whoever searches for it finds out whose it was."""
    if not can_name(command.name):
        return ()
    return (Event("step_refused", command.flow, command.run, command.agent, command.token, {"name": command.name}),)


def _names(command: RecordStep) -> Names:
    return Names(leases=(command.flow,), made=(command.step,), lanes=(LANE,))


RULES = (Rule(RecordStep, record, _names),)
