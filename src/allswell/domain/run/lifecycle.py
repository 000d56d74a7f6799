"""How runs open and end, how a Python flow is taken up by a process, and how its steps are recorded.

A run is ended by a caller or by its deadline; its tasks are reached by a spread, in chunks.

Time passes for a run after it has for its tasks: what they ask may stop its clock in this very moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, CommandId, Millis, QuestionId, RunId, Token, is_file_name
from allswell.domain.lease.claim import STEP_ROLE, Granted, grant
from allswell.domain.lease.expiry import tick
from allswell.domain.lease.model import LeaseRow, ends_at
from allswell.domain.question import Question
from allswell.domain.rules.command import AcquireFlow, Claim, Command, EndRun, NewTask, OpenRun, RecordStep
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, LaneKey, ReadSet, RowReads, RowSnapshot, Rule
from allswell.domain.run.run import Fanout, Run
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, end_attempt, leave, requeue, resume_clock
from allswell.domain.task.answer import withdraw
from allswell.domain.task.model import OPEN, Attempt, FinishedTask, Spec, State, Task, TaskHistory, rank
from allswell.domain.task.submit import accept_among, check_run, check_task, check_text, lanes_of
from allswell.errors import LeaseLost, Refused

REASON_MAX = 16_384
RUN_ID_MAX = 66


def check_run_id(run: RunId) -> None:
    """Refuse an id for a new run that does not begin as it must, is too long, or could lead elsewhere in a path."""
    if not run.startswith("r_") or not 3 <= len(run) <= RUN_ID_MAX or not is_file_name(run):
        letters = "letters, digits, '_', '-', and dots between them"
        text = f"a run's id starts with 'r_' and has at most {RUN_ID_MAX} characters: {letters}"
        raise Refused("bad_id", text, where="run")


class TickRun(Command, frozen=True, gc=False):
    """Time has passed for this run; whether that was looked at is the answer."""

    run: RunId


def open_run(command: OpenRun, now: Millis) -> tuple[Run, list[Event]]:
    """A new run, its deadline counted from now."""
    deadline = None if command.timeout is None else Millis(now + command.timeout)
    run = Run(command.run, command.name, now, deadline, command=command.id)
    return run, [Event("run_opened", None, run.id, None, None, {"name": run.name, "deadline": deadline})]


def end_run(run: Run, command: EndRun, now: Millis) -> tuple[Run, Fanout, list[Event]]:
    """A run ended by a caller: everything in it that is still open is cancelled."""
    if run.ended_at is not None:
        raise Refused("run_ended", f"run {run.id} has already ended: {run.reason}", where="run")
    check_text(command.reason, "reason", REASON_MAX)
    return _ended(run, State.CANCELLED, command.reason, now, command.id)


def tick_run(run: Run, now: Millis) -> tuple[Run, Fanout, list[Event]] | None:
    """A run whose time is up: everything in it that is still open fails. While its clock stands, it is not."""
    limit = run.limit
    if run.ended_at is not None or limit is None or limit > now:
        return None
    return _ended(run, State.FAILED, "run_timeout", now, NO_COMMAND)


def _ended(run: Run, end: State, reason: str, now: Millis, command: CommandId) -> tuple[Run, Fanout, list[Event]]:
    ended = replace(run, ended_at=now, reason=reason, command=command or run.command)
    told = Event("run_ended", None, run.id, None, None, {"reason": reason})
    return ended, Fanout(run.id, end.value, reason), [told]


# --- the commands -----------------------------------------------------------------------------------------------------


def open_(situation: RowSnapshot, command: OpenRun) -> Decision:
    """Open a run, and enter that one which has ended goes on in it."""
    known = situation.runs.get(command.run)
    if known is not None:
        if known.command == command.id:
            return Decision(known.id)
        raise Refused("id_taken", f"run {command.run} exists already", where="run")
    run, events = open_run(command, situation.now)
    before = None if command.after is None else situation.runs.get(command.after)
    if before is None or before.ended_at is None:
        return Decision(run.id, runs=(run,), events=events)
    return Decision(run.id, runs=(run, replace(before, continued_in=run.id)), events=events)


def end(situation: RowSnapshot, command: EndRun) -> Decision:
    """End a run."""
    run = situation.runs.get(command.run)
    if run is None:
        raise Refused("unknown_run", f"there is no run {command.run}", where="run")
    if run.ended_at is not None and run.command == command.id:
        return Decision(run.id)
    ended, spread, events = end_run(run, command, situation.now)
    return Decision(run.id, runs=(ended,), spreads=(spread,), events=events)


def let_time_pass(situation: RowSnapshot, command: TickRun) -> Decision:
    """Let time pass for a run, unless a task of it is in other hands whose time has come too: that goes first."""
    run = situation.runs.get(command.run)
    elsewhere = [
        task for task, its in situation.runs_found.items() if its == command.run and task not in situation.cases
    ]
    if run is None or elsewhere:
        return Decision(False)
    ended = tick_run(run, situation.now)
    if ended is None:
        return Decision(True, timers=((run.id, None if run.ended_at is not None else run.limit),))
    return Decision(True, runs=ended[:1], spreads=ended[1:2], events=ended[2])


def _names_of_opening(command: OpenRun) -> ReadSet:
    return ReadSet(runs=(command.run,) if command.after is None else (command.run, command.after))


# Taking up a Python flow: it is made, with its run, or freed of a holder that is gone, and then held; its steps.

DIED = "agent_died"
"""How an attempt ends whose process was seen to be gone."""


def give_up_the_dead(
    case: TaskAggregate, command: AcquireFlow, now: Millis, run: Run | None = None
) -> TaskChange | None:
    """The end of an attempt whose holder is known to have died; None if there is no such holder."""
    lease = case.lease
    if lease is None or lease.token != command.dead or now >= ends_at(lease):
        return None
    out = TaskChange(case, run=run)
    end_attempt(out, DIED, now, lapses=case.task.record.lapses + 1)
    lapsed = {"elapsed_ms": now - lease.granted_at}
    out.events.append(Event("lease_lapsed", lease.task, case.task.run, lease.agent, lease.token, lapsed))
    leave(out, f"{lease.agent} died", now)
    return out


def take_up(
    case: TaskAggregate, question: Question | None, command: AcquireFlow, now: Millis, run: Run | None = None
) -> tuple[tuple[TaskChange, ...], Question | None]:
    """Give a flow to the process that wants to run it, or nothing where it is done already.

    `question` is the one about its having been left, which is withdrawn with it.
    """
    out = TaskChange(case)
    task, lease = case.task, case.lease
    if not task.spec.flow:
        raise Refused("not_a_flow", f"{task.id} is a task like any other, not a flow", where="run_id")
    if task.name != command.flow.name:
        text = f"the run {task.run} is of the flow {task.name}, not of {command.flow.name}; choose another run_id"
        raise Refused("other_flow", text, where="run_id")
    if task.state == State.DONE:
        return (), None
    if task.state != OPEN:
        text = f"the flow {task.name} ({task.run}) was {task.state}: {task.record.reason}; run it under another run_id"
        raise Refused("flow_over", text, where="run_id")
    if lease is not None and lease.command == command.id and lease.agent == command.agent:
        return (out,), None
    if lease is not None:
        text = f"the flow {task.name} ({task.run}) is running: {lease.agent} holds it; a holder that dies loses it"
        raise Refused("flow_running", f"{text} {(ends_at(lease) - now + 999) // 1000} s from now", where="run_id")
    if question is not None:
        told = Event("question_withdrawn", task.id, task.run, None, None, {"question": question.id})
        out.events.append(told)
        if run is not None:
            run, resumed = resume_clock(run, question, now)
            out.events += resumed
        question = withdraw(question, now)
    out.case = requeue(replace(case, waits=()), now)
    out.run = run
    granted = grant(out.case, Claim(command.id, command.agent, length=command.length), now, run)
    if granted.answer is None:
        raise Refused("flow_over", f"the run {task.run} of {task.name} has reached its deadline", where="run_id")
    return (out, granted), question


def check_flow(new: NewTask) -> None:
    """Refuse what is wrong with a flow by itself."""
    check_task(new, flow=True)
    if new.run is None:
        raise Refused("bad_flow", f"{new.name} is a flow, and names no run of its own", where="run")
    check_run_id(new.run)


# --- the command ------------------------------------------------------------------------------------------------------


def hold_flow(situation: RowSnapshot, command: AcquireFlow) -> Decision:
    """Give a flow to whoever runs it now; the answer is what was granted, or None where the flow is done."""
    new = command.flow
    if new.run is None:
        raise Refused("bad_flow", f"{new.name} is a flow, and names no run of its own", where="run")
    case = situation.cases.get(new.id)
    if case is None:
        return _begin(situation, new, new.run, command)
    gone = _without_holder(situation, case, command)
    freed, run = (case, situation.run_of(case.task)) if gone is None else (gone.case, gone.run)
    taken, closed = take_up(freed, _about_its_leaving(situation, freed, gone), command, situation.now, run)
    outcomes = taken if gone is None else (gone, *taken)
    return Decision(_granted(situation, taken, new), outcomes=outcomes, closed=() if closed is None else (closed,))


def _begin(situation: RowSnapshot, new: NewTask, run_id: RunId, command: AcquireFlow) -> Decision:
    """A flow that is new, in a run that is new too, as a rule."""
    decision = Decision()
    run = situation.runs.get(run_id)
    if run is None:
        decision = open_(situation, OpenRun(command.id, run_id, new.name))
        (run,) = decision.runs
    check_run(run, run_id)
    accepted = accept_among(situation, new, {new.id: 0})
    taken, _ = take_up(accepted.case, None, command, situation.now, run)
    decision.outcomes = (accepted, *taken)
    decision.answer = _granted(situation, taken, new)
    return decision


def _without_holder(situation: RowSnapshot, case: TaskAggregate, command: AcquireFlow) -> TaskChange | None:
    """The flow without a holder whose time has run out, or who is known to have died; None where there is none such."""
    run = situation.run_of(case.task)
    if case.lease is not None and situation.now >= ends_at(case.lease):
        return tick(case, situation.now, run)
    return give_up_the_dead(case, command, situation.now, run)


def _about_its_leaving(situation: RowSnapshot, case: TaskAggregate, gone: TaskChange | None) -> Question | None:
    """The question that the flow waits for, be it that it was asked just now."""
    for wait in case.waits:
        if wait.kind == "question":
            asked = {question.id: question for question in (() if gone is None else gone.questions)}
            id_ = QuestionId(wait.target)
            return asked.get(id_) or situation.questions.get(id_)
    return None


def _granted(situation: RowSnapshot, taken: Sequence[TaskChange], new: NewTask) -> Granted | None:
    case = taken[-1].case if taken else None
    if case is None or case.lease is None:
        return None
    return Granted(case.lease, case.task, new.payload, situation.now)


def _names_of_flow(command: AcquireFlow) -> ReadSet:
    new = command.flow
    runs = () if new.run is None else (new.run,)
    return ReadSet(held=(new.id,), tasks=new.needs, runs=runs, lanes=lanes_of((new,)))


def _asked(command: AcquireFlow, situation: RowSnapshot) -> RowReads | None:
    """The question that the flow waits for: its lock covers them."""
    case = situation.cases.get(command.flow.id)
    asked = () if case is None else [QuestionId(wait.target) for wait in case.waits if wait.kind == "question"]
    return RowReads(questions=asked) if asked else None


# Steps of a Python flow: recorded when they are done.
#
# A step is not handed out: its process does it, and says so when it is done (`RecordStep`). What is written is a task
# in its final state with its result, its one attempt and its event, in one commit. It was never open, so it needs no
# lease and no timer. The command carries the flow's token and is refused when that is not the current one, so a process
# that was given up cannot record over its successor.
#
# A recorded step must cost little more than its commit, so it is about the flow's lease alone. Whether the step is
# there already is not asked first: its row is simply made. Only if it turns out to be there (the same command came
# twice, or its answer was lost) is it decided again with that row in sight.

LANE: LaneKey = (STEP_ROLE, ())
"""Where steps stand."""
_AS_ASKED = Spec()
_FIRST = Token(1)
_DONE = State.DONE.value


def record_step(
    lease: LeaseRow | None, known: Task | None, command: RecordStep, lane: int, now: Millis
) -> tuple[Task, Attempt, Event] | None:
    """A step as the finished task that it is, its attempt, and what is told; None if this very word came before."""
    if known is not None:
        if known.record.ended_by == command.id:
            return None
        raise Refused("step_recorded", f"the step {command.name} ({command.step}) is recorded already", where="step")
    fence(lease, command, now)
    began = Millis(now - command.elapsed)
    record = TaskHistory(token=_FIRST, reason="completed", ended_by=command.id)
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


def fence(lease: LeaseRow | None, command: RecordStep, now: Millis) -> None:
    """Refuse whoever does not hold the flow now, whatever it believes."""
    if lease is None:
        raise LeaseLost(command.flow, command.token, "no agent holds the flow")
    if lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.flow, command.token, f"{lease.agent} has taken the flow up since")
    if now >= ends_at(lease):
        raise LeaseLost(command.flow, command.token, "its time ran out")


# --- the command ------------------------------------------------------------------------------------------------------


def record(situation: RowSnapshot, command: RecordStep) -> Decision:
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
    return Decision(lease, events=(event,), recorded=(FinishedTask(task, command.payload, command.result, attempt),))


def _refused(command: RecordStep) -> tuple[Event, ...]:
    """What the journal is told of a step that was refused: whoever searches for it finds out whose it was."""
    return (Event("step_refused", command.flow, command.run, command.agent, command.token, {"name": command.name}),)


def _names_of_step(command: RecordStep) -> ReadSet:
    return ReadSet(leases=(command.flow,), made=(command.step,), lanes=(LANE,))


RULES = (
    Rule(OpenRun, open_, _names_of_opening),
    Rule(EndRun, end, lambda command: ReadSet(runs=(command.run,))),
    Rule(TickRun, let_time_pass, lambda command: ReadSet(runs=(command.run,))),
    Rule(AcquireFlow, hold_flow, _names_of_flow, reads=_asked),
    Rule(RecordStep, record, _names_of_step),
)
