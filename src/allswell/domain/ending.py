"""How a run opens and ends: by a caller, or by its deadline. Its tasks are reached by a spread, in chunks."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.command import EndRun, OpenRun
from allswell.domain.event import Event
from allswell.domain.names import NO_COMMAND, CommandId, Millis
from allswell.domain.run import Run, Spread
from allswell.domain.submit import check_text
from allswell.domain.task import State
from allswell.errors import Refused

REASON_MAX = 16_384


def open_run(command: OpenRun, now: Millis) -> tuple[Run, list[Event]]:
    """A new run, its deadline counted from now."""
    if command.timeout is not None and command.timeout <= 0:
        raise Refused("bad_duration", "a run's timeout must be positive", where="timeout")
    deadline = None if command.timeout is None else Millis(now + command.timeout)
    run = Run(command.run, command.name, now, deadline, command=command.id)
    return run, [Event("run_opened", None, run.id, None, None, {"name": run.name, "deadline": deadline})]


def end_run(run: Run, command: EndRun, now: Millis) -> tuple[Run, Spread, list[Event]]:
    """A run ended by a caller: everything in it that is still open is cancelled."""
    if run.ended_at is not None:
        raise Refused("run_ended", f"run {run.id} has already ended: {run.reason}", where="run")
    check_text(command.reason, "reason", REASON_MAX)
    return _ended(run, State.CANCELLED, command.reason, now, command.id)


def tick_run(run: Run, now: Millis) -> tuple[Run, Spread, list[Event]] | None:
    """A run whose time is up: everything in it that is still open fails. While its clock stands, it is not."""
    limit = run.limit
    if run.ended_at is not None or limit is None or limit > now:
        return None
    return _ended(run, State.FAILED, "run_timeout", now, NO_COMMAND)


def _ended(run: Run, end: State, reason: str, now: Millis, command: CommandId) -> tuple[Run, Spread, list[Event]]:
    ended = replace(run, ended_at=now, reason=reason, command=command or run.command)
    told = Event("run_ended", None, run.id, None, None, {"reason": reason})
    return ended, Spread(run.id, end.value, reason), [told]
