"""How an agent stands with those who ask it: degraded by requests that it let expire, healthy as they age out (M7).

More than three expiries within a sliding day are too many. One under a timeout that was shorter than its kind has does
not count: an impatient question does not make an agent degraded. That it has unblocked a task by a late answer speaks
for it (M8), and decides where nothing else does.

This is decided together with the event that reports it, and kept in a row of its own for each agent that there is
anything to say of. The row is small and has an end: only the newest count, and none is older than a day.

**Routing.** Every agent with the role can take a request to it. Of those who can, the degraded may not,
as long as one is not: they are barred from it. Where all are degraded, they may all the same, but for those that have
let more expire, or unblocked fewer, than the best of them. That holds for its first delivery: if the preferred agents
have not answered then, or are gone, no agent is kept from it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from allswell.domain.duration import show
from allswell.domain.ids import Millis, TaskId
from allswell.domain.lease.model import AgentRecord, ExpiredDelivery
from allswell.domain.mesh.request import DELEGATION
from allswell.domain.mesh.routing import agent_of, family
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import RowSearch
from allswell.domain.task.aggregate import TaskChange

DAY = 86_400_000
TOO_MANY = 3
"""An agent is degraded by more expiries than this within a day."""
KEPT = 8
Holder = TypeVar("Holder", bound=str)


NEUTRAL = AgentRecord()


def counts(timeout: int, default: int) -> bool:
    """Whether an expiry says anything about the one who was asked."""
    return timeout >= default


def after_expiry(standing: AgentRecord, expiry: ExpiredDelivery) -> AgentRecord:
    """After a delivery has expired that counts."""
    recent = [one for one in standing.expired if _is_recent(one.at, expiry.at)]
    return AgentRecord((*recent, expiry)[-KEPT:], _recent(standing.unblocked, expiry.at))


def after_unblocking(standing: AgentRecord, now: Millis) -> AgentRecord:
    """After a late answer has let a blocked task go on."""
    expired = tuple(one for one in standing.expired if _is_recent(one.at, now))
    return AgentRecord(expired, (*_recent(standing.unblocked, now), now)[-KEPT:])


def held_against(standing: AgentRecord, now: Millis) -> tuple[ExpiredDelivery, ...]:
    """The expiries that count now, the oldest first."""
    return tuple(one for one in standing.expired if _is_recent(one.at, now))


def is_degraded(standing: AgentRecord, now: Millis) -> bool:
    """Whether an agent has let too many requests expire."""
    return len(held_against(standing, now)) > TOO_MANY


def degraded(known: Mapping[str, AgentRecord], now: Millis) -> dict[str, tuple[ExpiredDelivery, ...]]:
    """The agents that are, with what has made them so."""
    return {name: held_against(standing, now) for name, standing in known.items() if is_degraded(standing, now)}


def healthy_at(standing: AgentRecord, now: Millis) -> Millis | None:
    """When a degraded agent is healthy again, if nothing more expires; None if it is."""
    against = held_against(standing, now)
    return Millis(against[-TOO_MANY - 1].at + DAY) if len(against) > TOO_MANY else None


def score(standing: AgentRecord, now: Millis) -> int:
    """What decides between two who are equally healthy: whom they have unblocked, less what they have let expire."""
    return len(_recent(standing.unblocked, now)) - len(held_against(standing, now))


def passed_over(can_serve: Mapping[Holder, AgentRecord], now: Millis) -> tuple[Holder, ...]:
    """Of those who can serve a request, those that are not to: never all of them."""
    degraded = [agent for agent, standing in can_serve.items() if is_degraded(standing, now)]
    if len(degraded) < len(can_serve):
        return tuple(degraded)
    best = max((score(standing, now) for standing in can_serve.values()), default=0)
    return tuple(agent for agent, standing in can_serve.items() if score(standing, now) < best)


def _is_recent(at: Millis, now: Millis) -> bool:
    """Whether it was within the last day; what is yet to come, as the clock was set back since, was not."""
    return now - DAY < at <= now


def _recent(moments: Sequence[Millis], now: Millis) -> tuple[Millis, ...]:
    return tuple(at for at in moments if _is_recent(at, now))


# What a decision says of agents is entered into their standing, in the same unit of work (M7, M8).
#
# The standing is a sum of events, so it is made of them: of those that a decision tells. There is no other way to
# change it, and every reader of the journal comes to the same.


def target(request: TaskId) -> RowSearch:
    """Whom a request is for, and who holds it: its role, which never changes, and an agent if there is one."""
    return RowSearch("target", request)


def concerned(found: Sequence[str]) -> list[str]:
    """Whose health an expiry may concern: that of the agent the request is for, or that of its holder."""
    if not found:
        return []
    role, *holders = found
    to = agent_of(role)
    return [family(agent) for agent in (holders if to is None else [to])]


def charged(
    outcomes: Iterable[TaskChange], known: Mapping[str, AgentRecord], now: Millis
) -> list[tuple[str, AgentRecord]]:
    """The health of agents after what these outcomes tell."""
    return [*entered((event for out in outcomes for event in out.events), known, now).items()]


def entered(events: Iterable[Event], known: Mapping[str, AgentRecord], now: Millis) -> dict[str, AgentRecord]:
    """The health of the agents of which these events say something."""
    changed: dict[str, AgentRecord] = {}
    for event in events:
        agent = _who(event)
        if not agent:
            continue
        record = changed.get(agent) or known.get(agent, NEUTRAL)
        if event.kind == "request_expired":
            data = event.data
            expiry = ExpiredDelivery(now, str(data["request"]), str(data["kind"]), int(data["timeout_ms"]))
            changed[agent] = after_expiry(record, expiry)
        else:
            changed[agent] = after_unblocking(record, now)
    return changed


def _who(event: Event) -> str:
    """The agent of which an event says something that counts; empty: none."""
    if event.kind == "request_expired":
        data = event.data
        return str(data["against"]) if counts(int(data["timeout_ms"]), int(data["default_ms"])) else ""
    unblocks = event.kind == "request_resolved" and bool(event.data["requeued"])
    return family(str(event.data["by"])) if unblocks else ""


# An agent's ledger: what counts for it and against it, what does not, and why (M8).
#
# It is read from the journal, event by event. What it adds up to is the agent's standing (health.py), which decides
# between two who could serve a request, and nothing more.
#
# -   A delivery that the agent let expire counts against it, unless it was given less time than its kind has.
# -   A delivery that another let expire costs the one who asked nothing, and the wait for it is not idle time.
# -   A late answer that lets a blocked task go on speaks for the agent that gave it; one to a task that is over does
# not count. -   An attempt that ended because its own agent was silent or slow: the time since its last sign is its
# idle time.

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
    request: str | None
    task: str | None
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
    book = _LedgerBuilder(family(agent))
    for at, event in entries:
        book.enter(at, event)
    return Ledger(agent, tuple(book.lines))


class _LedgerBuilder:
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
            self.lines.append(
                LedgerLine(at, "idle", SLOW[event.kind], "its own idle time", None, attempt[0] or None, idle)
            )
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
            if data["requeued"]:
                self._add(at, "for", f"its answer let {event.agent} go on", "it unblocked a task", request, task)
            else:
                why = "the task did not wait for it any more"
                self._add(at, "nothing", f"answered {event.agent} late", why, request, task)
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
        self.lines.append(LedgerLine(at, weight, what, why, request, task or None))
