"""How an agent stands with those who ask it: degraded by requests that it let expire, healthy as they age out (M7).

More than three expiries within a sliding day are too many. One under a timeout that was shorter than its kind has does
not count: nobody makes an agent degraded by asking it impatiently. That it has unblocked somebody by a late answer
speaks for it (M8), and decides where nothing else does.

This is decided together with the event that reports it, and kept in a row of its own for each agent that there is
anything to say of. The row is small and has an end: only the newest count, and none is older than a day.

**Routing.** A request to a role lies where everybody who has it can take it. Of those who can, the degraded may not,
as long as one is not: they are barred from it. Where all are degraded, they may all the same, but for those that have
let more expire, or unblocked fewer, than the best of them. That holds for its first delivery: if whoever was preferred
has not answered then, or is gone, nobody is kept from it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from allswell.domain.duration import show
from allswell.domain.ids import AgentId, Millis, TaskId
from allswell.domain.lease.model import Agent
from allswell.domain.mesh.request import DELEGATION
from allswell.domain.mesh.routing import agent_of, family
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import RowSearch
from allswell.domain.task.aggregate import TaskChange

DAY = 86_400_000
TOO_MANY = 3
"""An agent is degraded by more expiries than this within a day."""
KEPT = 8
_PREFIX = "@"
Holder = TypeVar("Holder", bound=str)


class ExpiredDelivery(msgspec.Struct, frozen=True, gc=False):
    """A delivery that an agent did not answer in time."""

    at: Millis
    request: str
    kind: str
    timeout: int
    """How long was waited, in milliseconds."""


class AgentRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last day says of an agent: the newest of it."""

    expired: tuple[ExpiredDelivery, ...] = ()
    unblocked: tuple[Millis, ...] = ()
    """When late answers of its let a blocked task go on."""


NEUTRAL = AgentRecord()
_decode = msgspec.json.Decoder(AgentRecord).decode


def standing_row(agent: str) -> AgentId:
    """The id of the row in which an agent's standing is kept; no holder has such a name."""
    return AgentId(f"{_PREFIX}{agent}")


def standing_of(row: Agent | None) -> AgentRecord:
    """What a row says; nothing, if there is none."""
    return NEUTRAL if row is None or not row.standing else _decode(row.standing)


def row_of(agent: str, standing: AgentRecord) -> Agent:
    """The row that says so."""
    return Agent(standing_row(agent), 0, Millis(0), standing=msgspec.json.encode(standing).decode())


def standings(rows: Collection[Agent]) -> dict[str, AgentRecord]:
    """Of all rows, those that are about this, by the names of their agents."""
    return {str(row.id)[len(_PREFIX) :]: standing_of(row) for row in rows if row.standing}


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


def degraded(rows: Collection[Agent], now: Millis) -> dict[str, tuple[ExpiredDelivery, ...]]:
    """The agents that are, with what has made them so."""
    known = standings(rows)
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


def moved_back(standing: str, wall: int) -> str:
    """A standing after the clock was set back: nothing of it is yet to come."""
    if not standing:
        return standing
    found = _decode(standing)
    expired = tuple(msgspec.structs.replace(one, at=Millis(min(one.at, wall))) for one in found.expired)
    unblocked = tuple(Millis(min(at, wall)) for at in found.unblocked)
    return msgspec.json.encode(AgentRecord(expired, unblocked)).decode()


def _is_recent(at: Millis, now: Millis) -> bool:
    return at > now - DAY


def _recent(moments: Sequence[Millis], now: Millis) -> tuple[Millis, ...]:
    return tuple(at for at in moments if _is_recent(at, now))


# What a decision says of agents is entered into their standing, in the same unit of work (M7, M8).
#
# The standing is a sum of events, so it is made of them: of those that a decision tells. There is no other way to
# change it, and whoever reads the journal comes to the same.

Rows = Mapping[AgentId, Agent | None]


def target(request: TaskId) -> RowSearch:
    """Whom a request is for, and who holds it: its role, which never changes, and an agent if there is one."""
    return RowSearch("target", request)


def own_row(holder: str) -> AgentId:
    """The row with the standing of whoever holds tasks under this name."""
    return standing_row(family(holder))


def concerned(found: Sequence[str]) -> list[AgentId]:
    """The rows that an expiry may concern: that of the agent the request is for, or that of whoever holds it."""
    if not found:
        return []
    role, *holders = found
    to = agent_of(role)
    return [own_row(agent) for agent in (holders if to is None else [to])]


def charged(outcomes: Iterable[TaskChange], rows: Rows, now: Millis) -> list[tuple[AgentId, Agent | None]]:
    """The standings after what these outcomes tell."""
    told = [event for out in outcomes for event in out.events]
    return [*entered(told, rows, now).items()]


def entered(events: Iterable[Event], rows: Rows, now: Millis) -> dict[AgentId, Agent | None]:
    """The standings that these events change."""
    changed: dict[AgentId, Agent | None] = {}
    for event in events:
        agent = _who(event)
        if not agent:
            continue
        row = standing_row(agent)
        standing = standing_of(changed.get(row) or rows.get(row))
        if event.kind == "request_expired":
            data = event.data
            expiry = ExpiredDelivery(now, str(data["request"]), str(data["kind"]), int(data["timeout_ms"]))
            changed[row] = row_of(agent, after_expiry(standing, expiry))
        else:
            changed[row] = row_of(agent, after_unblocking(standing, now))
    return changed


def _who(event: Event) -> str:
    """The agent of which an event says something that counts; empty: nobody."""
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
# -   A delivery that another let expire costs the one who asked nothing, and the wait for it is nobody's idle time.
# -   A late answer that lets a blocked task go on speaks for whoever gave it; one to a task that is over, for nobody.
# -   An attempt that ended because its own agent was silent or slow: the time since its last sign is its idle time.

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
        self.lines.append(LedgerLine(at, weight, what, why, request, task))
