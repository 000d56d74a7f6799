"""A service as a store keeps it: one row with its breaker, shared by every process, and whom it lets in (F5, F8).

**A row is made by the first thing that is held against a service, and stays.** Its generation must not begin anew, or
a permit from before would count again. A service that nothing was ever held against has no row.

**One question.** A row with `asked` set has exactly one open question about its failures. Beside it there is one for
each cause that only a human can mend (`domain.service.calls`).

**Reopening is staggered.** When a service may be used again, its agents are let in one after the other within
`REOPENING`, each at a place of its own that follows from its name: nothing has to be counted, or written, for that.

What commands make of a row stands in `domain.service.calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, service_question_id
from allswell.domain.service import breaker
from allswell.domain.service.breaker import CLEAN, BreakerState, Service

REOPENING = 5_000
"""Agents that wait for a service come back within so many milliseconds of one another, not all at once."""


class ServiceRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One service: how it stands, and what has been asked about it."""

    id: str
    state: Service = CLEAN
    questions: int = 0
    """How many were asked about it so far."""
    since: Millis = Millis(0)
    """When it was shut or, if it is not, when it was last opened again."""
    command: CommandId = NO_COMMAND
    """The last one that changed the row."""
    failing: int = 0
    """Which of the questions is open about its failures; 0: the last one."""
    causes: Mapping[str, int] = {}
    """What only a human can mend, and which question is open about each."""
    quiet: Mapping[str, Millis] = {}
    """Causes that a human has put off, and until when."""
    holds: tuple[str, ...] = ()
    """Those of the causes for which agents of this account get nothing to do before the answer."""
    raised: int = 0
    """Of a budget (lease/cost.py): by how much a human has raised it, in millionths of a dollar."""
    step: int = 0
    """Of a budget: what it is raised by at a time."""
    for_good: bool = False
    """Of a budget that no day ends: what is shut is opened by a human's answer alone, whatever `parked_until` says."""


def park(row: ServiceRow, until: Millis) -> ServiceRow:
    """The service parked until then, or longer where it already was."""
    state = breaker.park(row.state, until)
    return row if state == row.state else replace(row, state=state)


def open_question(row: ServiceRow) -> QuestionId | None:
    """The id of the question that is open about a service's failures."""
    return service_question_id(row.id, row.failing or row.questions) if row.state.asked else None


def question_about(row: ServiceRow) -> QuestionId | None:
    """The id of the question for which a service is waited for: about its account, or else about its failures."""
    for cause in row.holds:
        if cause in row.causes:
            return service_question_id(row.id, row.causes[cause])
    return open_question(row)


def parked_until(row: ServiceRow, now: Millis) -> Millis | None:
    """Until when a service is parked; None: it is not. What is shut for good is, wherever the clock was set to."""
    until = row.state.parked_until
    return until if until is not None and (row.for_good or until > now) else None


class ShutReason(msgspec.Struct, frozen=True, gc=False):
    """Why a service cannot be called."""

    stand: BreakerState | str
    """`parked`, `refused` (an account whose provider refuses it), or where its breaker stands."""
    until: Millis | None
    """When it is asked again; None while a human is waited for."""


def shut(row: ServiceRow, now: Millis) -> ShutReason | None:
    """Whether, why and until when a service is shut; a half-open one is not shut: a caller has to make the probe."""
    state = row.state
    if row.holds:
        return ShutReason("refused", None)
    if (parked := parked_until(row, now)) is not None:
        return ShutReason("parked", None if row.for_good else parked)
    where = breaker.stand(state, now)
    match where:
        case BreakerState.OPEN:
            return ShutReason(where, state.open_until)
        case BreakerState.HELD:
            return ShutReason(where, None)
        case BreakerState.PROBING if state.probe_until is not None and state.probe_until > now:
            return ShutReason(where, state.probe_until)
        case _:
            return None  # a probe whose lease is over has failed, as the next caller will find


def opened_at(row: ServiceRow) -> Millis:
    """When a service that is not shut was opened again; 0 if it always was open."""
    state = row.state
    return max(
        row.since, *(moment or Millis(0) for moment in (state.parked_until, state.open_until, state.probe_until))
    )


def lets_in(row: ServiceRow, agent: AgentId, now: Millis) -> bool:
    """Whether an agent may be given a task that needs this service."""
    if shut(row, now) is not None:
        return False
    opened = opened_at(row)
    return not opened or now >= opened + crc32(f"{row.id} {agent}".encode()) % REOPENING
