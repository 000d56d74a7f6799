"""A decision: everything that one command comes to, as a value. All of it is entered, or, where it is refused, nothing.

What is entered is told in this order: `events` first, then those of each outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.case import Outcome
from allswell.domain.checkin import Agent
from allswell.domain.command import Claim
from allswell.domain.event import Event
from allswell.domain.expense import ExpenseRow
from allswell.domain.lease import Lease
from allswell.domain.names import AgentId, Millis
from allswell.domain.question import Question
from allswell.domain.run import Run, Spread
from allswell.domain.service import ServiceRow
from allswell.domain.task import Finished
from allswell.errors import AllswellError


class Decision(msgspec.Struct):
    """What a command comes to. A row that is the same object as before has not changed.

    It is seen by the garbage collector, unlike rows: an error that was raised may lead back to it by its traceback.
    """

    answer: object = None
    error: AllswellError | None = None
    """For the caller; the rest is written all the same."""
    outcomes: Sequence[Outcome] = ()
    """What becomes of tasks, step by step: each is held to the table of moves."""
    agents: Sequence[tuple[AgentId, Agent | None]] = ()
    """What is held against agents now; None: nothing."""
    events: Sequence[Event] = ()
    leases: Sequence[Lease] = ()
    """Leases that were renewed, of which nothing else was read."""
    recorded: Sequence[Finished] = ()
    """Tasks that are finished as they are made."""
    runs: Sequence[Run] = ()
    services: Sequence[ServiceRow] = ()
    asked: Sequence[Question] = ()
    """Questions about services; those about tasks are in the outcomes."""
    closed: Sequence[Question] = ()
    """Questions that were answered, withdrawn or dismissed, be it that this decision has asked them."""
    expenses: Sequence[ExpenseRow] = ()
    """What attempts have cost, in the place of what was known of them."""
    spreads: Sequence[Spread] = ()
    worked_off: Sequence[str] = ()
    """Spreads that nothing is left of."""
    timers: Sequence[tuple[str, Millis | None]] = ()
    """Of runs that are otherwise as they were: when they fall due, or that they do not."""
    claim: Claim | None = None
    """To be served from the pool, after all commands of the batch were decided."""
