"""How a run opens and ends: by a caller, or by its deadline. Its tasks are reached by a spread, in chunks.

Time passes for a run after it has for its tasks: what they ask may stop its clock in this very moment.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, CommandId, Millis, RunId, is_file_name
from allswell.domain.rules.command import Command, EndRun, OpenRun
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.run.run import Fanout, Run
from allswell.domain.task.model import State
from allswell.domain.task.submit import check_text
from allswell.errors import Refused

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


def _names(command: OpenRun) -> ReadSet:
    return ReadSet(runs=(command.run,) if command.after is None else (command.run, command.after))


RULES = (
    Rule(OpenRun, open_, _names),
    Rule(EndRun, end, lambda command: ReadSet(runs=(command.run,))),
    Rule(TickRun, let_time_pass, lambda command: ReadSet(runs=(command.run,))),
)
