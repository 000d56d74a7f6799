"""What must hold of requests between agents, looked at with every commit of a simulated mesh.

The auditor knows nothing of the rules: it hears the journal, keeps its own account of it, and names the promise that an
event breaks. What must happen at last, and did not, is found when all is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from allswell.domain.address import agent_of, role_of
from allswell.domain.event import Event
from allswell.domain.names import AgentId, Millis, TaskId, is_request
from allswell.domain.standing import is_degraded, standing_of, standing_row
from allswell.store.memory import MemoryStore
from allswell.store.port import Changes

LATE_BY = 10_000
"""Milliseconds by which a schedule may end late: the sweeper's look, and the time that a caller has to come."""
DAY = 86_400_000
TOO_MANY = 3
LONG, AGAIN = 600_000, 1_800_000
"""How long a block lasts when it is told, and told again; milliseconds."""
USUAL = 30_000
"""What a delivery has in these simulations that sets nothing by itself."""
_SETTLED = 5_000
"""Who has held a task for so long is known to everybody; milliseconds."""
_MOST = 20


class MeshReport(msgspec.Struct):
    """What happened, and the promises that were broken."""

    sent: int = 0
    to_roles: int = 0
    answered: int = 0
    blocked: int = 0
    resolved: int = 0
    given_up: int = 0
    still_blocked: int = 0
    told_long: int = 0
    passed_over: int = 0
    degraded: int = 0
    crashes: int = 0
    refused_circles: int = 0
    refused_strangers: int = 0
    broken: list[str] = msgspec.field(default_factory=list)

    def breaks(self, promise: str, what: object) -> None:
        """A promise was broken; the first few are told."""
        if len(self.broken) < _MOST:
            self.broken.append(f"{promise}: {what}")


class _Asked(msgspec.Struct):
    """One request as the journal has told of it so far."""

    id: str
    task: TaskId
    asker: str
    to: str
    sent_at: int
    longest: int
    shortest: int
    deliveries: int = 1
    expired: int = 0
    mesh: int = 0
    blocked_at: int | None = None
    told_at: int | None = None
    told: int = 0
    ends: int = 0


class MeshAuditor:
    """Looks at every commit."""

    def __init__(self, store: MemoryStore, report: MeshReport) -> None:
        self._store = store
        self._report = report
        self._open: dict[str, _Asked] = {}
        self._waits: dict[str, Counter[str]] = {}
        """Who waits for whose answer."""
        self._ended: set[str] = set()
        self._expiries: dict[str, list[int]] = {}
        """When each agent let a delivery expire that had its time, within the last day."""
        self._tables = store.database.tables
        self._hears: Mapping[str, Callable[[_Asked, Mapping[str, object], int], None]] = {
            "request_delivered": self._delivered,
            "request_expired": self._expired,
            "mesh_asked": self._mesh_asked,
            "request_blocked": self._blocked,
            "task_blocked_long": self._told_long,
            "request_closed": self._closed,
            "request_resolved": self._resolved,
        }
        self.late: Counter[str] = Counter()
        """How often each late answer was acknowledged to whoever gave it."""

    def __call__(self, written: list[Changes]) -> None:
        """One commit."""
        for changes in written:
            for event in changes.events:
                self._hear(event, changes.at)
            for agent in [str(event.data["against"]) for event in changes.events if event.kind == "request_expired"]:
                self._check_health(agent, changes.at)
        for task in self._store.unaccounted():
            self._report.breaks("nothing hangs silently", task)

    def _hear(self, event: Event, at: int) -> None:
        if event.kind == "agent_timeout" and self._waits_on(event):
            self._report.breaks("a request blocks before the asking lease's limit", event.task)
        if event.kind == "task_claimed" and event.task is not None and is_request(event.task):
            self._taken(event.task, str(event.agent))
        if "request" not in event.data:
            return
        id_ = str(event.data["request"])
        if event.kind == "request_sent":
            self._sent(event, id_, at)
            return
        if id_ in self._ended:
            once = {"request_closed": "an answer counts once", "request_resolved": "an answer counts once"}
            over = {"request_blocked": "it blocks after the mesh was asked, and nobody answered"}
            self._report.breaks({**once, **over}.get(event.kind, "what is over is over"), f"{event.kind} {id_}")
            return
        hear = self._hears.get(event.kind)
        if hear is not None:
            hear(self._open[id_], event.data, at)

    def _waits_on(self, timed_out: Event) -> bool:
        """Whether it has a request that is neither answered nor blocked; else its process has died near its limit."""
        return any(
            (asked.task, asked.asker) == (timed_out.task, timed_out.agent) and asked.blocked_at is None
            for asked in self._open.values()
        )

    # --- asking -------------------------------------------------------------------------------------------------------

    def _sent(self, event: Event, id_: str, at: int) -> None:
        self._report.sent += 1
        row = self._tables.tasks.get(TaskId(id_))
        spec = None if row is None else row.spec.request
        longest = 0 if spec is None else spec.timeout * (spec.retries + 1) + spec.wait
        to, asker = str(event.data["to"]), str(event.agent)
        asked = _Asked(id_, event.task or TaskId(""), asker, to, at, longest, int(event.data["timeout_ms"]))
        self._open[id_] = asked
        role = role_of(to)
        if role is not None:
            self._report.to_roles += 1
            self._check_route(TaskId(id_), role, asker, at)
            return
        self._waits_for(asked, 1)
        self._check_circle(asked)

    def _check_circle(self, new: _Asked) -> None:
        met, pending = {new.to}, [new.to]
        for agent in pending:
            if agent == new.asker:
                self._report.breaks("agents never wait for each other in a circle", f"{new.asker} asks {new.to}")
                return
            for other, count in self._waits.get(agent, {}).items():
                if count and other not in met:
                    met.add(other)
                    pending.append(other)

    def _check_route(self, request: TaskId, role: str, asker: str, at: int) -> None:
        """Of those who hold a task of the role, the degraded are passed over, if one is not."""
        barred = self._tables.bars.get(request, frozenset[AgentId]()) - {AgentId(asker)}
        holding: dict[str, int] = {}
        for task, lease in self._tables.leases.items():
            if self._tables.tasks[task].role == role and lease.agent != asker:
                holding[lease.agent] = min(lease.granted_at, holding.get(lease.agent, at))
        known = {agent for agent, since in holding.items() if at - since > _SETTLED}
        worse = {agent for agent in known if self._is_degraded(agent, at)}
        self._report.passed_over += bool(barred)
        if known - worse and worse - barred:
            self._report.breaks(
                "a degraded agent is passed over while another can serve", f"{request} {worse - barred}"
            )
        healthy = {agent for agent in barred if not self._is_degraded(agent, at)}
        if healthy:
            self._report.breaks("nobody is passed over who is not degraded", f"{request} {healthy}")
        if holding and barred.issuperset(holding):
            self._report.breaks("somebody is left to serve", request)

    def _taken(self, request: TaskId, agent: str) -> None:
        row = self._tables.tasks[request]
        to, origin = agent_of(row.role), row.spec.origin
        if to is not None and to != agent:
            self._report.breaks("what is addressed to an agent is offered to nobody else", f"{request} {agent}")
        if origin is not None and origin.agent == agent:
            self._report.breaks("nobody is given what it asked itself", f"{request} {agent}")
        if agent in self._tables.bars.get(request, frozenset[AgentId]()):
            self._report.breaks("who is passed over is not given it", f"{request} {agent}")

    # --- what becomes of it -------------------------------------------------------------------------------------------

    def _delivered(self, asked: _Asked, _: Mapping[str, object], __: int) -> None:
        asked.deliveries += 1
        if asked.blocked_at is None:
            self._waits_for(asked, 1)

    def _expired(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        asked.expired += 1
        if asked.blocked_at is None:
            self._waits_for(asked, -1)
        if asked.blocked_at is None and at - asked.sent_at < asked.shortest:
            self._report.breaks("a delivery never expires early", asked.id)
        against, had = str(data["against"]), int(str(data["timeout_ms"]))
        if role_of(asked.to) is None and against != asked.to:
            self._report.breaks("an expiry is of whoever was asked", f"{asked.id} {against}")
        if against and had >= USUAL:
            recent = [moment for moment in self._expiries.get(against, ()) if moment > at - DAY]
            self._expiries[against] = [*recent, at]

    def _mesh_asked(self, asked: _Asked, _: Mapping[str, object], __: int) -> None:
        asked.mesh += 1
        if asked.mesh > 1:
            self._report.breaks("the mesh is asked once", asked.id)

    def _blocked(self, asked: _Asked, _: Mapping[str, object], at: int) -> None:
        self._report.blocked += 1
        self._check_time(asked, at)
        if asked.blocked_at is not None:
            self._report.breaks("a request blocks its task once", asked.id)
        if asked.mesh != 1:
            self._report.breaks("it blocks after the mesh was asked, and nobody answered", asked.id)
        if asked.expired != asked.deliveries:
            self._report.breaks("each delivery that nobody answers is told", asked.id)
        asked.blocked_at = at

    def _told_long(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        self._report.told_long += 1
        asked.told += 1
        since = asked.blocked_at if asked.told_at is None else asked.told_at
        wait = LONG if asked.told_at is None else AGAIN
        if since is None or at - since < wait or data["count"] != asked.told:
            self._report.breaks("a long block is told once, and again when it is time", asked.id)
        if not any(wait.target == asked.id for wait in self._tables.waits.get(asked.task, ())):
            self._report.breaks("only what is blocked is told", asked.id)
        asked.told_at = at

    def _closed(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        self._report.answered += data["outcome"] == "done"
        self._report.given_up += asked.blocked_at is not None
        if asked.blocked_at is None:
            self._check_time(asked, at)
        else:
            self._check_told(asked, at)
        self._end(asked)

    def _resolved(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        self._report.resolved += 1
        if asked.blocked_at is None:
            self._report.breaks("only a block is resolved", asked.id)
        if data["by"] != asked.to and not asked.mesh and role_of(asked.to) is None:
            self._report.breaks("only who was asked answers", f"{asked.id} by {data['by']}")
        self._check_told(asked, at)
        self._end(asked)

    def _end(self, asked: _Asked) -> None:
        row = self._tables.tasks.get(TaskId(asked.id))
        stand = None if row is None else row.record.request
        strange = stand is not None and stand.by and stand.by != asked.to and role_of(asked.to) is None
        if strange and not asked.mesh:
            self._report.breaks("only who was asked answers", asked.id)
        if asked.blocked_at is None and asked.deliveries > asked.expired:
            self._waits_for(asked, -1)
        self._ended.add(asked.id)
        del self._open[asked.id]

    def _waits_for(self, asked: _Asked, more: int) -> None:
        """A delivery is under way, or is not any more."""
        if role_of(asked.to) is None:
            self._waits.setdefault(asked.asker, Counter())[asked.to] += more

    # --- time ---------------------------------------------------------------------------------------------------------

    def _check_time(self, asked: _Asked, at: int) -> None:
        if at - asked.sent_at > asked.longest + LATE_BY:
            self._report.breaks("no request is open past its schedule", f"{asked.id} {at - asked.sent_at} ms")

    def _check_told(self, asked: _Asked, at: int) -> None:
        waits = any(wait.target == asked.id for wait in self._tables.waits.get(asked.task, ()))
        if waits and not asked.told and at - (asked.blocked_at or at) > LONG + LATE_BY:
            self._report.breaks("a long block is told", asked.id)

    def _is_degraded(self, agent: str, now: int) -> bool:
        return sum(moment > now - DAY for moment in self._expiries.get(agent, ())) > TOO_MANY

    def _check_health(self, agent: str, now: int) -> None:
        kept = standing_of(self._tables.agents.get(standing_row(agent)))
        if self._is_degraded(agent, now) != is_degraded(kept, Millis(now)):
            self._report.breaks("an agent is degraded by more than three expiries in a day", agent)

    def check_end(self, now: int, *, crashed: bool) -> None:
        """When all is over."""
        for asked in self._open.values():
            if asked.blocked_at is None:
                self._check_time(asked, now)
            else:
                self._report.still_blocked += 1
                self._check_told(asked, now)
        for agent in self._expiries:
            self._report.degraded += self._is_degraded(agent, now)
            self._check_health(agent, now)
        acknowledged = sum(self.late.values())
        exact = acknowledged == self._report.resolved
        if not exact and not (crashed and acknowledged < self._report.resolved):
            resolved = self._report.resolved
            self._report.breaks("a late answer counts once", f"{acknowledged} were taken, {resolved} counted")
