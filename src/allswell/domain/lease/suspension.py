"""An attempt that a person has stopped (Ctrl-Z, SIGSTOP): nothing of it runs, and its limit stands meanwhile.

Only a command that is run in front of a person (`allswell run`) may be stopped so. An agent of a fleet that stops has
stopped itself, and its limits go on.

While it stands, the limit in its lease is later by the longest time that it may stand, so that no sweeper ends it; when
it goes on, it is later by the time that it stood. The lease is renewed all the same, by a process beside the stopped
one (`interfaces/cli/renewer.py`): one whose machine is gone lapses as every other.

A command whose client waits for a provider that refuses it (agents/refusal.py) stands as well, and its limit does not:
that is noted for who looks. Of an agent of a fleet its supervisor says so.

So is a circle that an agent goes round in (agents/repetition.py). Where a human is asked about it, the attempt goes on
meanwhile: the question is taken back when the agent does something else.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.agents.evidence import AGENT_REPEATS
from allswell.domain.agents.status import AgentCondition
from allswell.domain.ids import Millis, QuestionId, question_id
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.lease.model import LeaseRow, ends_at
from allswell.domain.question import REPEATS_OPTIONS, repeats_text
from allswell.domain.rules.command import LeaseCommand
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.task.aggregate import QuestionDraft, TaskAggregate, TaskChange, ask, due_of, event
from allswell.domain.task.answer import withdraw
from allswell.domain.task.model import StopState, Task
from allswell.domain.task.submit import check_name
from allswell.errors import LeaseLost, Refused

LONGEST_STOP = 86_400_000
"""Milliseconds for which an attempt may stand; then it is given back, with its work kept."""
_AGO_MOST = 60_000
"""Milliseconds within which a stop must have been noticed."""
_WORDS_MOST = 400
"""Characters of what an attempt repeats that are kept."""


class Suspend(LeaseCommand, frozen=True, gc=False):
    """The attempt was stopped, by this signal, so many milliseconds ago; said again it changes nothing."""

    by: str = "SIGSTOP"
    ago: int = 0


class Continue(LeaseCommand, frozen=True, gc=False):
    """The attempt goes on; said of one that was not stopped it changes nothing."""


class NoteRefusal(LeaseCommand, frozen=True, gc=False):
    """The attempt's client waits for a provider that refuses it, and tries again by itself; empty: it goes on."""

    words: str = ""
    """What was refused, and which try that was: "429, try 6 of 10"."""


class NoteRepeats(LeaseCommand, frozen=True, gc=False):
    """The attempt does the same again and again; empty: it does so no more. The answer is the question."""

    words: str = ""
    """What it does: "called Read lexer.py 14 times, same answer"."""
    asks: bool = False
    """Whether a human is asked about it."""
    question: QuestionId | None = None
    """What was asked about it before, and is taken back when it goes on."""


def suspend(situation: RowSnapshot, command: Suspend) -> Decision:
    """Let the limit of an attempt stand."""
    check_name(command.by, "by")
    case = situation.case(command.task)
    ago = min(max(command.ago, 0), _AGO_MOST)
    lease = _lease_of(case, command, Millis(situation.now - ago))
    task = case.task
    if task.role != RUN_ROLE:
        text = f"{task.name} is not a command of `allswell run`: only such a command can be stopped"
        raise Refused("not_stoppable", text, where="task")
    out = TaskChange(case, answer=task.id)
    if task.record.stopped is None:
        stopped = StopState(command.by, Millis(situation.now - ago))
        _move(out, lease, LONGEST_STOP, stopped, situation.now)
        out.events.append(event(task, "task_suspended", lease, signal=command.by))
    return Decision(task.id, outcomes=(out,))


def go_on(situation: RowSnapshot, command: Continue) -> Decision:
    """Let the limit of an attempt go on: it is later by the time that the attempt stood."""
    case = situation.case(command.task)
    lease = _lease_of(case, command, situation.now)
    task, stopped = case.task, case.task.record.stopped
    out = TaskChange(case, answer=task.id)
    if stopped is not None:
        stood = stood_for(stopped, situation.now)
        _move(out, lease, stood - LONGEST_STOP, None, situation.now)
        out.events.append(event(task, "task_continued", lease, signal=stopped.by, stood_ms=stood))
    return Decision(task.id, outcomes=(out,))


def note_refusal(situation: RowSnapshot, command: NoteRefusal) -> Decision:
    """Note that an attempt waits for its provider; the journal hears of the beginning and of the end."""
    case = situation.case(command.task)
    lease = _lease_of(case, command, situation.now)
    before = case.task.record.refused
    task = replace(case.task, record=replace(case.task.record, refused=command.words))
    out = TaskChange(replace(case, task=task), answer=task.id)
    if bool(before) != bool(command.words):
        condition = AgentCondition.FOR_PROVIDER if command.words else AgentCondition.WORKING
        evidence = command.words or "its provider has answered"
        out.events.append(event(task, "agent_state", lease, state=condition.value, evidence=evidence))
    return Decision(task.id, outcomes=(out,))


def note_repeats(situation: RowSnapshot, command: NoteRepeats) -> Decision:
    """Note that an attempt goes round in circles, and ask about it, once for each command."""
    case = situation.case(command.task)
    lease = _lease_of(case, command, situation.now)
    record = case.task.record
    if command.asks and record.asked_by == command.id:
        return Decision(question_id(case.task.id, record.questions))
    words = command.words[:_WORDS_MOST]
    task = replace(case.task, record=replace(record, repeats=words))
    out = TaskChange(replace(case, task=task))
    if bool(record.repeats) != bool(words):
        condition = AgentCondition.REPEATING if words else AgentCondition.WORKING
        told = event(task, "agent_state", lease, state=condition.value, evidence=words or "it does something else")
        out.events.append(told)
    if words and command.asks:
        text = repeats_text(task.id, task.name, command.agent, words)
        draft = QuestionDraft(AGENT_REPEATS, text, REPEATS_OPTIONS, lease.agent, command.id)
        out.answer = ask(out, draft, situation.now, wait=False).id
    asked = None if command.question is None else situation.questions.get(command.question)
    mine = asked is not None and asked.task == task.id and asked.kind == AGENT_REPEATS and asked.closed_at is None
    if asked is None or not mine or words:
        return Decision(out.answer, outcomes=(out,))
    out.events.append(event(task, "question_withdrawn", question=asked.id))
    return Decision(None, outcomes=(out,), closed=(withdraw(asked, situation.now),))


def stood_for(stopped: StopState, now: int) -> int:
    """For how long an attempt stands, in milliseconds; no longer than it may, however the clock was set since."""
    return min(max(now - stopped.at, 0), LONGEST_STOP)


def time_left(task: Task, lease: LeaseRow, now: int) -> int | None:
    """How long it is to the limit of an attempt, in milliseconds, if it went on now; None: it has none."""
    if lease.limit is None:
        return None
    stopped = task.record.stopped
    later = 0 if stopped is None else LONGEST_STOP - stood_for(stopped, now)
    return max(lease.deadline - later - now, 0)


def _lease_of(case: TaskAggregate, command: LeaseCommand, at: Millis) -> LeaseRow:
    lease = case.lease
    if lease is None or lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.task, command.token, "no agent holds the task" if lease is None else "it is another's")
    if at >= ends_at(lease):
        raise LeaseLost(command.task, command.token, "its time ran out")
    return lease


def _move(out: TaskChange, lease: LeaseRow, by: int, stopped: StopState | None, now: Millis) -> None:
    """Move the limit of an attempt, and renew its lease: the sender of this is alive."""
    if lease.own is None:
        moved = replace(lease, deadline=Millis(lease.deadline + by), renewed_at=now)
    else:  # the limit of its run is nearer, and does not move
        moved = replace(lease, own=Millis(lease.own + by), renewed_at=now)
    # It is asked for no check-ins before its limit, and shall not be asked for any because that is later.
    moved = replace(moved, judged=max(lease.judged, -((lease.granted_at - moved.deadline) // lease.ask_every)))
    task = replace(out.case.task, record=replace(out.case.task.record, stopped=stopped))
    out.case = replace(out.case, task=task, lease=moved, due=due_of(task, moved))


def _names(command: Suspend | Continue | NoteRefusal) -> ReadSet:
    return ReadSet(held=(command.task,))


def _names_question(command: NoteRepeats) -> ReadSet:
    return ReadSet(held=(command.task,), questions=() if command.question is None else (command.question,))


RULES = (
    Rule(Suspend, suspend, _names),
    Rule(Continue, go_on, _names),
    Rule(NoteRefusal, note_refusal, _names),
    Rule(NoteRepeats, note_repeats, _names_question),
)
