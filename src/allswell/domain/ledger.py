"""An agent's ledger: what counts for it and against it, what does not, and why (M8).

It is read from the journal, event by event. What it adds up to is the agent's standing (standing.py), which decides
between two who could serve a request, and nothing more.

-   A delivery that the agent let expire counts against it, unless it was given less time than its kind has.
-   A delivery that another let expire costs the one who asked nothing, and the wait for it is nobody's idle time.
-   A late answer that lets a blocked task go on speaks for whoever gave it.
-   An attempt that ended because its own agent was silent or slow: the time since its last sign is its idle time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from allswell.domain.address import family
from allswell.domain.duration import show
from allswell.domain.event import Event
from allswell.domain.names import Millis
from allswell.domain.request import DELEGATION
from allswell.domain.standing import counts

Weight = Literal["for", "against", "idle", "nothing"]
SLOW = {
    "agent_timeout": "it reached the limit of its attempt",
    "agent_idle": "it showed no progress",
    "agent_stalled": "it missed too many check-ins",
    "lease_lapsed": "it was not heard of",
}
"""Endings that are an agent's own."""
NOT_ITS_OWN = "the target's, not its own"
_ANSWERED = "done"


class LedgerLine(msgspec.Struct, frozen=True):
    """One thing that happened, and what it means for the agent."""

    at: Millis
    weight: Weight
    what: str
    why: str
    request: str = ""
    task: str = ""
    idle_ms: int = 0


class Ledger(msgspec.Struct, frozen=True):
    """All of it, the oldest first."""

    agent: str
    lines: tuple[LedgerLine, ...]
    cut: int | None = None
    """Only about so many events at the end of the journal were looked at; None: all that there are of that time."""

    def total(self, weight: Weight) -> int:
        """How many lines weigh so."""
        return sum(line.weight == weight for line in self.lines)

    @property
    def idle_ms(self) -> int:
        """For how long it was idle by its own fault."""
        return sum(line.idle_ms for line in self.lines)


def ledger_of(agent: str, entries: Iterable[tuple[Millis, Event]]) -> Ledger:
    """The ledger of an agent, by its name in the settings or under which it holds tasks, from what happened."""
    book = _Book(family(agent))
    for at, event in entries:
        book.enter(at, event)
    return Ledger(agent, tuple(book.lines))


class _Book:
    """A ledger while it is written."""

    def __init__(self, agent: str) -> None:
        self.lines: list[LedgerLine] = []
        self._agent = agent
        self._asked: dict[str, str] = {}
        """Requests that were sent to the agent by name; a delegation is for a role."""
        self._signs: dict[tuple[str, int], Millis] = {}
        """The last sign of each of its attempts."""

    def enter(self, at: Millis, event: Event) -> None:
        """Write down what an event means, if anything."""
        own = event.agent is not None and family(event.agent) == self._agent
        if event.kind.startswith("request_"):
            self._request(at, event, own=own)
        if not own:
            return
        attempt = (str(event.task or ""), int(event.token or 0))
        if event.kind in SLOW:
            idle = at - self._signs.get(attempt, at)
            self.lines.append(LedgerLine(at, "idle", SLOW[event.kind], "its own idle time", "", attempt[0], idle))
        self._signs[attempt] = at

    def _request(self, at: Millis, event: Event, *, own: bool) -> None:
        data, task = event.data, str(event.task or "")
        request, to = str(data["request"]), str(data.get("to", ""))
        if event.kind == "request_sent" and data["kind"] != DELEGATION and family(to) == self._agent:
            self._asked[request] = to
        elif event.kind == "request_expired":
            self._expired(at, event, own=own)
        elif event.kind == "request_blocked" and own:
            self._add(at, "nothing", f"moved on without {to}", NOT_ITS_OWN, request, task)
        elif event.kind == "request_resolved" and family(str(data["by"])) == self._agent:
            self._add(at, "for", f"its answer let {event.agent} go on", "it unblocked a task", request, task)
        elif event.kind == "request_closed" and data["outcome"] == _ANSWERED and request in self._asked:
            self._add(at, "nothing", f"answered {event.agent} in time", "as is expected", request, task)

    def _expired(self, at: Millis, event: Event, *, own: bool) -> None:
        data, task = event.data, str(event.task or "")
        request, timeout, default = str(data["request"]), int(data["timeout_ms"]), int(data["default_ms"])
        if family(str(data["against"])) == self._agent:
            what = f"no answer to {event.agent} in {show(timeout)}"
            if counts(timeout, default):
                self._add(at, "against", what, "it had its kind's time", request, task)
            else:
                self._add(at, "nothing", what, f"too short: its kind has {show(default)}", request, task)
        elif own:
            what = f"no answer from {data['to']} in {show(timeout)}"
            self._add(at, "nothing", what, NOT_ITS_OWN, request, task)

    def _add(self, at: Millis, weight: Weight, what: str, why: str, request: str, task: str) -> None:
        self.lines.append(LedgerLine(at, weight, what, why, request, task))
