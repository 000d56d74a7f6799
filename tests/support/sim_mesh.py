"""A hundred agents that ask each other, a third of them silent or late, on virtual time: what must hold, held.

The real core and engine on the memory store, several processes, and one seeded generator. They ask agents, roles and
addresses, some of them two at once, some without waiting, and some decline. With `crashes`, processes die where they
stand and come back, and answers of the store are lost. Every commit is looked at (mesh_auditor.py): an event that
breaks a promise is told with the promise.
`simulate_mesh(seed, requests=2_000)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allswell.app import make_watch
from allswell.domain.ids import AgentId, Millis, TaskId, Token, is_request
from allswell.domain.mesh.delivery import UNANSWERED
from allswell.domain.mesh.health import NEUTRAL, is_degraded
from allswell.domain.mesh.request import KINDS, Escalation, MeshFigures, RequestKind
from allswell.domain.mesh.routing import agent_of, role_of
from allswell.domain.rules.event import Event
from allswell.domain.task.model import OPEN
from allswell.domain.task.submit import WEBHOOKS
from allswell.engine.lease import Lease
from allswell.engine.mesh import Requested, RequestOptions
from allswell.engine.timings import Timings
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, LeaseLost, Refused
from allswell.store.memory import AnswerLost, MemoryStore
from allswell.store.port import RowChanges
from allswell.testing.loop import VirtualClock, run, running_loop
from allswell.timing.loops import Nursery

# What must hold of requests between agents, looked at with every commit of a simulated mesh.
#
# The auditor knows nothing of the rules: it hears the journal, keeps its own account of it, and names the promise that
# an event breaks. What must happen at last, and did not, is found when all is over.

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
    posted: int = 0
    """How often a webhook was posted."""
    declined: int = 0
    not_waited_for: int = 0
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
    posts: int = 0
    token: int = 0
    blocks: bool = True

    @property
    def is_under_way(self) -> bool:
        """Whether somebody waits for it: a delivery can still be answered in time, and it has not blocked its task."""
        return self.blocks and self.blocked_at is None and self.deliveries > self.expired


class MeshAuditor:
    """Looks at every commit."""

    def __init__(self, store: MemoryStore, report: MeshReport, *, calm: bool = True) -> None:
        self._store = store
        self._calm = calm
        """Whether no process crashes: then somebody is always there to post."""
        self._report = report
        self._open: dict[str, _Asked] = {}
        self._now = 0
        self._waited: dict[str, int] = {}
        """When each agent waited last, of those that have stopped."""
        self._ended: set[str] = set()
        self._moved_on: set[tuple[TaskId, int]] = set()
        """The attempts that a request has blocked."""
        self._expiries: dict[str, list[int]] = {}
        """When each agent let a delivery expire that had its time, within the last day."""
        self._tables = store.database.tables
        self._hears: Mapping[str, Callable[[_Asked, Mapping[str, object], int], None]] = {
            "request_delivered": self._delivered,
            "request_expired": self._expired,
            "mesh_asked": self._mesh_asked,
            "request_blocked": self._blocked,
            "task_blocked_long": self._told_long,
            "request_declined": self._declined,
            "request_closed": self._closed,
            "request_resolved": self._resolved,
        }
        self.late: Counter[str] = Counter()
        """How often each late answer was acknowledged to whoever gave it."""

    def __call__(self, written: list[RowChanges]) -> None:
        """One commit."""
        for changes in written:
            self._now = changes.at
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
        asked.token = int(event.token or 0)
        asked.blocks = spec is None or spec.blocks
        self._report.not_waited_for += not asked.blocks
        self._open[id_] = asked
        role = role_of(to)
        if role is not None:
            self._report.to_roles += 1
            self._check_route(TaskId(id_), role, asker, at)
            return
        if "://" not in to and asked.blocks:
            self._check_circle(asked)

    def _check_circle(self, new: _Asked) -> None:
        waits: dict[str, set[str]] = {}
        for asked in self._open.values():
            if asked.is_under_way and self._is_held(asked) and role_of(asked.to) is None and "://" not in asked.to:
                waits.setdefault(asked.asker, set()).add(asked.to)
        met, pending = {new.to}, [new.to]
        for agent in pending:
            if agent == new.asker:
                self._report.breaks("agents never wait for each other in a circle", f"{new.asker} asks {new.to}")
                return
            fresh = waits.get(agent, set()) - met
            met |= fresh
            pending += sorted(fresh)

    def _is_held(self, asked: _Asked) -> bool:
        """Whether whoever asked still holds the task for which it did."""
        lease = self._tables.leases.get(asked.task)
        return lease is not None and lease.token == asked.token

    def askers_of(self, agent: str) -> list[str]:
        """Who has asked this agent something that is open, whether or not it still waits."""
        return sorted({asked.asker for asked in self._open.values() if asked.to == agent})

    def check_refused(self, asker: str, members: Sequence[str]) -> None:
        """A request was refused, as these would wait for each other: all but the asker do, or did a moment ago."""
        now = self._now
        for member in members:
            mine = [asked for asked in self._open.values() if asked.asker == member and asked.is_under_way]
            lately = [
                ended.ended_at >= now - _SETTLED
                for asked in mine
                if (ended := self._tables.attempts.get((asked.task, Token(asked.token)))) is not None
            ]
            waits = any(map(self._is_held, mine)) or any(lately)
            if member != asker and not waits and self._waited.get(member, 0) < now - _SETTLED:
                self._report.breaks("only who waits is in a circle", f"{asker} was refused, and {member} does not wait")

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
        if row.role == WEBHOOKS and request in self._open:
            asked = self._open[request]
            asked.posts += 1
            if asked.posts > asked.deliveries or asked.expired == asked.deliveries:
                self._report.breaks("a webhook is posted once for each delivery", request)
            self._report.posted += 1
        stand = row.record.request
        if stand is not None and agent in stand.declined:
            self._report.breaks("who has declined it is not given it again", f"{request} {agent}")
        if to is not None and to != agent:
            self._report.breaks("what is addressed to an agent is offered to nobody else", f"{request} {agent}")
        if origin is not None and origin.agent == agent:
            self._report.breaks("nobody is given what it asked itself", f"{request} {agent}")
        if agent in self._tables.bars.get(request, frozenset[AgentId]()):
            self._report.breaks("who is passed over is not given it", f"{request} {agent}")

    # --- what becomes of it -------------------------------------------------------------------------------------------

    def _delivered(self, asked: _Asked, _: Mapping[str, object], __: int) -> None:
        asked.deliveries += 1

    def _expired(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        asked.expired += 1
        self._waited[asked.asker] = at
        if asked.blocked_at is None and at - asked.sent_at < asked.shortest:
            self._report.breaks("a delivery never expires early", asked.id)
        against, had = str(data["against"]), int(str(data["timeout_ms"]))
        if role_of(asked.to) is None and against != ("" if "://" in asked.to else asked.to):
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
        if not asked.blocks:
            self._report.breaks("who does not wait is not blocked", asked.id)
        is_webhook = "://" in asked.to
        if is_webhook and self._calm and asked.posts != asked.deliveries:
            told = f"{asked.id} {asked.posts} of {asked.deliveries}"
            self._report.breaks("a webhook is posted with each delivery", told)
        if asked.mesh != (0 if is_webhook else 1):
            self._report.breaks("it blocks after the mesh was asked, and nobody answered", asked.id)
        if asked.expired != asked.deliveries:
            self._report.breaks("each delivery that nobody answers is told", asked.id)
        asked.blocked_at = at
        self._moved_on.add((asked.task, asked.token))

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

    def _declined(self, asked: _Asked, data: Mapping[str, object], _: int) -> None:
        self._report.declined += 1
        if role_of(asked.to) is None and data["by"] != asked.to:
            self._report.breaks("only who was asked declines", f"{asked.id} by {data['by']}")
        row = self._tables.tasks.get(TaskId(asked.id))
        if data["final"] and row is not None and row.state == OPEN:
            self._report.breaks("what nobody is left to answer is over", asked.id)

    def _closed(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        self._report.answered += data["outcome"] == "done"
        self._report.given_up += asked.blocked_at is not None
        if asked.blocked_at is None:
            self._check_time(asked, at)
        else:
            self._check_told(asked, at)
        self._end(asked, at)

    def _resolved(self, asked: _Asked, data: Mapping[str, object], at: int) -> None:
        self._report.resolved += 1
        if asked.blocked_at is None:
            self._report.breaks("only a block is resolved", asked.id)
        if data["by"] != asked.to and not asked.mesh and role_of(asked.to) is None:
            self._report.breaks("only who was asked answers", f"{asked.id} by {data['by']}")
        self._check_told(asked, at)
        self._end(asked, at)

    def _end(self, asked: _Asked, at: int) -> None:
        row = self._tables.tasks.get(TaskId(asked.id))
        stand = None if row is None else row.record.request
        strange = stand is not None and stand.by and stand.by != asked.to and role_of(asked.to) is None
        if strange and not asked.mesh:
            self._report.breaks("only who was asked answers", asked.id)
        self._waited[asked.asker] = at
        self._check_handed(asked)
        self._ended.add(asked.id)
        del self._open[asked.id]

    def _check_handed(self, asked: _Asked) -> None:
        """What was answered is there for whoever holds the asking task next."""
        request, asking = self._tables.tasks.get(TaskId(asked.id)), self._tables.tasks.get(asked.task)
        if request is None or asking is None or asking.state != OPEN:
            return
        stand = request.record.request
        declined = request.state == "failed" and stand is not None and bool(stand.declined)
        if request.state != "done" and not (declined and request.record.reason != UNANSWERED):
            return
        if asked.id not in {answer.request for answer in asking.record.answers}:
            self._report.breaks("an answer is handed to the next attempt", asked.id)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _check_time(self, asked: _Asked, at: int) -> None:
        if (asked.task, asked.token) in self._moved_on:
            return  # another request of the same attempt has blocked it: a late answer to this one is waited for
        if not asked.blocks:
            return  # its answer is taken until the attempt's limit
        if at - asked.sent_at > asked.longest + LATE_BY:
            self._report.breaks("no request is open past its schedule", f"{asked.id} {at - asked.sent_at} ms")

    def _check_told(self, asked: _Asked, at: int) -> None:
        waits = any(wait.target == asked.id for wait in self._tables.waits.get(asked.task, ()))
        if waits and not asked.told and at - (asked.blocked_at or at) > LONG + LATE_BY:
            self._report.breaks("a long block is told", asked.id)

    def _is_degraded(self, agent: str, now: int) -> bool:
        return sum(moment > now - DAY for moment in self._expiries.get(agent, ())) > TOO_MANY

    def _check_health(self, agent: str, now: int) -> None:
        kept = self._tables.health.get(agent, NEUTRAL)
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


PACE = Timings(follow_poll=4.0, sweep_most=1.0, claim_poll=5.0)
FIGURES = MeshFigures({**KINDS, "handoff": RequestKind(USUAL, 2)}, Escalation(LONG, AGAIN))
_PROCESSES = 3
_LOOK = 7.0
_BUSY = 300.0
"""Seconds that an agent works before it asks, at most."""
_LIMITS = ("20m", "6m")
"""Of its tasks: into some of them not every schedule fits."""
_LEASE = "30s"
"""Where processes crash: after so long their work is anybody's."""
_KEPT = "2h"
_HOOKS = ("answers", "fails", "hangs", "refuses", "recovers")
"""What receivers of webhooks do: `recovers` fails the first delivery, and takes the second."""
_TO_HOOKS = 0.15
_NEAR, _TO_NEAR = 5, 0.2
"""Of so many in a row, and so often, one asks another."""
_ASKS_BACK = 0.3
"""How often who was asked asks one of those who did: circles come about, if that still waits."""
_TWO_AT_ONCE = 0.25
"""How often somebody asks two others at once."""
_NOT_WAITED_FOR = 0.1
_DECLINED = 0.05
"""How often a prompt agent declines what it is asked, at one look."""
_OUTAGE = 300.0
"""Seconds by which who waits may come back later where processes crash."""
_RELEASED_WITHIN = 15.0
"""Seconds in which all who wait for requests of one attempt have to hear that one of them has blocked it."""
_ROLES = ("ops", "dev", "qa", "night")
"""Nobody who has the last one answers in time."""
_TO_ROLES = 0.3
_STRANGERS = 0.0001
"""How often somebody answers, at one look, what was asked of another; once the mesh was asked, anybody may."""
_LOST = 0.001
"""How often a store's answer to a commit is lost, where processes crash."""
_CALM = 60.0


class _Line:
    """The connection of one process to the store."""

    def __init__(self, chance: random.Random, lost: float) -> None:
        self._chance = chance
        self._lost = lost

    async def before(self, statement: str) -> None:
        """Every statement arrives."""

    async def before_commit(self) -> None:
        """Of what is lost, half has taken place."""
        if self._chance.random() < self._lost / 2:
            raise AnswerLost

    async def after_commit(self) -> None:
        """And half has not."""
        if self._chance.random() < self._lost / 2:
            raise AnswerLost


class _Mesh:
    """The agents of all processes."""

    def __init__(self, seed: int, agents: int, requests: int, *, crashes: bool) -> None:
        self.chance = random.Random(seed)
        self.left = requests
        self.crashes = crashes
        self.asking = 0
        """How many are at it."""
        self.over = asyncio.Event()
        """Nobody is, and all was asked."""
        self.report = MeshReport()
        self.auditor: MeshAuditor | None = None
        self.names = [f"a{number}" for number in range(agents)]
        manners = ("prompt", "prompt", "prompt", "prompt", "silent", "late")
        self.manner = {name: manners[number % len(manners)] for number, name in enumerate(self.names)}
        self.role = {
            name: _ROLES[-1] if number % 12 in (4, 5) else _ROLES[number % 3] for number, name in enumerate(self.names)
        }

    # --- asking -------------------------------------------------------------------------------------------------------

    async def ask_on(self, watch: Watch, name: str, late: Counter[str]) -> None:
        """One agent that works, and asks others again and again."""
        self.asking += 1
        try:
            await self._ask_on(watch, name, late)
        except (Bug, AllswellError) as error:
            self.report.breaks("no agent meets a bug of ours", repr(error))
        finally:
            self.asking -= 1
            if self.left <= 0 and not self.asking:
                self.over.set()

    async def _ask_on(self, watch: Watch, name: str, late: Counter[str]) -> None:
        lease: Lease | None = None
        while self.left > 0:
            if lease is None:
                await watch.submit(f"work of {name}", role=self.role[name], timeout=self.chance.choice(_LIMITS))
                length = _LEASE if self.crashes else None
                roles = None if self.chance.random() < 0.3 else [self.role[name]]
                lease = await watch.claim(agent=name, roles=roles, wait="1m", lease=length)
            if lease is None:
                continue
            try:
                lease = await (
                    self._serve(watch, lease, late) if is_request(lease.task) else self._work(watch, lease, name)
                )
            except LeaseLost:
                lease = None
        if lease is not None:
            await lease.release()

    async def _serve(self, watch: Watch, lease: Lease, late: Counter[str]) -> None:
        """It was given a request to its role, as a task."""
        manner = self.manner[lease.agent]
        await asyncio.sleep(self.chance.uniform(1, 20) if manner == "prompt" else 2 * _BUSY)
        if manner == "silent":
            await lease.release()
            return
        await lease.complete()
        await self._count_late(watch, lease.task, late)

    async def _work(self, watch: Watch, lease: Lease, name: str) -> Lease | None:
        """Work, and ask somebody; what it was given to do instead, if that has blocked it."""
        await asyncio.sleep(self.chance.uniform(0, _BUSY))
        asking = [self._ask(lease, name)]
        if self.chance.random() < _TWO_AT_ONCE:
            asking.append(self._ask(lease, name))
        ends = [end for end in await asyncio.gather(*asking) if end is not None]
        blocked = [(end, at) for end, at in ends if end.blocked]
        if not blocked:
            await lease.complete()
            return None
        moments = [at for _, at in blocked]
        if max(moments) - min(moments) > _RELEASED_WITHIN:
            self.report.breaks("who waits comes back when its task is blocked", lease.task)
        given = {None if end.next is None else (end.next.task, end.next.token) for end, _ in blocked}
        if len(given - {None}) > 1:
            self.report.breaks("one next for each attempt", f"{lease.task} {given}")
        following: Lease | None = next((end.next for end, _ in blocked if end.next is not None), None)
        if len(blocked) == 1:
            await self._ask_again(watch, lease, blocked[0][0].request_id, following)
        return following

    async def _ask(self, lease: Lease, name: str) -> tuple[Requested, float] | None:
        """Ask somebody, and wait; what came of it, and when. None: that was refused."""
        block = self.names.index(name) // _NEAR * _NEAR
        among = self.names[block : block + _NEAR] if self.chance.random() < _TO_NEAR else self.names
        to, kind = self.chance.choice([other for other in among if other != name] or self.names[:1]), "handoff"
        draw, back = self.chance.random(), self.auditor.askers_of(name) if self.auditor is not None else []
        if back and self.chance.random() < _ASKS_BACK:
            to = self.chance.choice(back)
        elif draw < _TO_ROLES:
            to = f"role:{self.chance.choice((self.role[name], *_ROLES))}"
        elif draw < _TO_ROLES + _TO_HOOKS:
            to, kind = f"https://{self.chance.choice(_HOOKS)}.example/", "webhook"
        length, retries = self.chance.choice(((20_000, 1), (40_000, 2), (USUAL, 0)))
        self.left -= 1
        most = length * (retries + 1) / 1_000 + LATE_BY / 1_000
        try:
            async with asyncio.timeout(most + (_OUTAGE if self.crashes else 0.0)):
                blocks = kind == "webhook" or self.chance.random() >= _NOT_WAITED_FOR
                what: RequestOptions = {"timeout": length, "retries": retries, "kept": _KEPT, "blocks": blocks}
                if not blocks:
                    await lease.send_request(to, kind, f"{name} to {to}", **what)
                    return None
                return await lease.request(to, kind, f"{name} to {to}", **what), running_loop().time()
        except TimeoutError:
            self.report.breaks("who waits comes back when its task is blocked", f"{lease.task} asks {to}")
            raise LeaseLost(lease.task, lease.token, "it has waited too long") from None
        except Refused as refused:
            if refused.code == "circle":
                self.report.refused_circles += 1
                self._check_refused(name, refused)
            self.left += 1
            return None

    def _check_refused(self, name: str, refused: Refused) -> None:
        named = refused.message.partition("in a circle: ")[2].partition(";")[0]
        members = [member.strip("<- ") for member in named.replace("<->", "->").split("->")]
        if self.auditor is not None:
            self.auditor.check_refused(name, members)

    async def _ask_again(self, watch: Watch, lease: Lease, request: str, following: Lease | None) -> None:
        """A caller whose answer was lost asks again, and is given the same."""
        if self.chance.random() < 0.1:
            again = await watch.held(lease.task, lease.token, lease.agent).wait_for(request)
            given = None if again.next is None else (again.next.task, again.next.token)
            if given != (None if following is None else (following.task, following.token)):
                self.report.breaks("one next for each request", f"{request} {given}")

    # --- answering ----------------------------------------------------------------------------------------------------

    async def answer_on(self, watch: Watch, names: list[str], late: Counter[str]) -> None:
        """What the agents of a process answer: promptly, late, never, and now and then what nobody asked of them."""
        roles = {name: (self.role[name],) for name in names}
        try:
            while True:
                await asyncio.sleep(_LOOK)
                for name, items in (await watch.inboxes(roles)).items():
                    for item in items:
                        await self._look_at(
                            watch, name, item.request_id, item.to, late, open_=item.expires_at is not None
                        )
        except (Bug, AllswellError) as error:
            self.report.breaks("no agent meets a bug of ours", repr(error))

    async def _look_at(
        self, watch: Watch, name: str, request: str, to: str, late: Counter[str], *, open_: bool
    ) -> None:
        wanted = to in (name, f"role:{self.role[name]}") or self.chance.random() < _STRANGERS
        if wanted and (self.manner[name] == "prompt" or (self.manner[name] == "late" and not open_)):
            if self.chance.random() < _DECLINED:
                await self._decline(watch, name, request)
            else:
                await self._answer(watch, name, request, late)
        if to == name and self.chance.random() < 0.02:
            await self._answer(watch, self.chance.choice(self.names), request, late)

    async def _answer(self, watch: Watch, name: str, request: str, late: Counter[str]) -> None:
        try:
            await watch.respond(request, name, agent=name, roles=[self.role[name]])
        except Refused as refused:
            self.report.refused_strangers += refused.code in ("not_addressed", "own_request")
        else:
            await self._count_late(watch, request, late)

    async def _decline(self, watch: Watch, name: str, request: str) -> None:
        try:
            await watch.decline(request, "not today", agent=name, roles=[self.role[name]])
        except Refused as refused:
            if refused.code not in ("not_addressed", "request_closed"):
                self.report.breaks("who is asked may decline", f"{request} {name} {refused}")

    @staticmethod
    async def _count_late(watch: Watch, request: str, late: Counter[str]) -> None:
        """An answer was taken; count it if it was a late one."""
        row = await watch.task(request)
        stand = None if row is None else row.task.record.request
        if stand is not None and stand.blocked_at is not None:
            late[request] += 1

    # --- posting ------------------------------------------------------------------------------------------------------

    async def post_on(self, watch: Watch) -> None:
        """Take webhooks up as a poster does, each beside the others."""
        try:
            async with Nursery() as posting:
                while True:
                    lease = await watch.claim(agent="poster", roles=[WEBHOOKS], wait="5s", lease=_LEASE)
                    if lease is not None:
                        posting.start(self._post(lease))
        except (Bug, AllswellError) as error:
            self.report.breaks("no agent meets a bug of ours", repr(error))

    async def _post(self, lease: Lease) -> None:
        spec, progress = lease.granted.task.spec.request, lease.granted.task.record.request
        if spec is None or progress is None:
            raise Bug(f"{lease.task} is no webhook")
        does = spec.to.removeprefix("https://").partition(".")[0]
        if does == "recovers":
            does = "answers" if progress.attempt > 1 else "fails"
        await asyncio.sleep(spec.timeout / 1_000 + 1 if does == "hangs" else self.chance.uniform(0, 5))
        with contextlib.suppress(LeaseLost):
            if does == "answers":
                await lease.complete(does)
            else:
                await lease.fail("answered badly", error_class="permanent" if does == "refuses" else "network")


class _Process:
    """Some of the agents; where processes crash, it dies where it stands, and comes back."""

    def __init__(self, mesh: _Mesh, number: int, store: MemoryStore, clock: VirtualClock, auditor: MeshAuditor) -> None:
        self._mesh = mesh
        self._names = mesh.names[number::_PROCESSES]
        self._store = store
        self._clock = clock
        self._auditor = auditor
        self._chance = random.Random(f"{mesh.chance.random()} {number}")

    async def live(self) -> None:
        """Live, and live again, until cancelled."""
        lost = _LOST if self._mesh.crashes else 0.0
        while True:
            store = self._store.another(faults=_Line(self._chance, lost))
            watch = make_watch(store, clock=self._clock, chance=self._chance, pace=PACE, mesh=FIGURES)
            async with watch, Nursery() as inside:
                inside.start(self._mesh.answer_on(watch, self._names, self._auditor.late))
                inside.start(self._mesh.post_on(watch))
                for name in self._names:
                    inside.start(self._mesh.ask_on(watch, name, self._auditor.late))
                await self._until_it_dies()
                inside.cancel()
            self._mesh.report.crashes += 1
            await asyncio.sleep(self._chance.uniform(1, 90))

    async def _until_it_dies(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(1, 600))
            if self._mesh.crashes and self._mesh.left > 0:
                return


def simulate_mesh(
    seed: int, *, agents: int = 100, requests: int = 2_000, crashes: bool = False, until: str | None = None
) -> MeshReport:
    """One history; the same seed has the same one. It ends early where the promise named by `until` is broken."""

    async def main() -> MeshReport:
        mesh = _Mesh(seed, agents, requests, crashes=crashes)
        clock = VirtualClock()
        store = MemoryStore(clock=clock, turn=running_loop().turn)
        mesh.auditor = auditor = MeshAuditor(store, mesh.report, calm=not crashes)
        found = False

        def look(written: list[RowChanges]) -> None:
            nonlocal found
            auditor(written)
            if until is not None and any(told.startswith(until) for told in mesh.report.broken):
                found = True
                mesh.over.set()

        store.on_commit = look
        processes = [_Process(mesh, number, store, clock, auditor) for number in range(_PROCESSES)]
        async with make_watch(store.another(), clock=clock, chance=random.Random(seed), pace=PACE) as watch:
            tasks = [
                {"name": f"n{number}", "role": _ROLES[number % 4], "timeout": _LIMITS[number % 2]}
                for number in range(agents // 2)
            ]
            await watch.submit_many(tasks)
            async with Nursery() as living:
                for process in processes:
                    living.start(process.live())
                await mesh.over.wait()
                if not found:
                    await asyncio.sleep(_CALM + LONG / 1_000)
                living.cancel()
            if not found:
                auditor.check_end(await watch.now(), crashed=crashes)
        return mesh.report

    return run(main(), seed=seed, max_steps=5_000_000_000)
