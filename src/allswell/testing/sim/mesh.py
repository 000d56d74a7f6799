"""A hundred agents that ask each other, a third of them silent or late, on virtual time: what must hold, held.

The real core and engine on the memory store, several processes, and one seeded generator. Every commit is looked at: an
event that breaks a promise is told with the promise. `simulate_mesh(seed, requests=2_000)`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec

from allswell.app import make_watch
from allswell.domain.address import agent_of
from allswell.domain.event import Event
from allswell.domain.names import TaskId, is_request
from allswell.engine.handle import Lease
from allswell.engine.pace import Pace
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, LeaseLost, Refused
from allswell.store.memory import MemoryStore
from allswell.store.port import Changes
from allswell.testing.clock import VirtualClock
from allswell.testing.loop import run, running_loop

PACE = Pace(follow_poll=4.0, sweep_most=1.0, claim_poll=5.0)
LATE_BY = 10_000
"""Milliseconds by which a schedule may end late: the sweeper's look, and the time that a caller has to come."""
_PROCESSES = 3
_LOOK = 7.0
_BUSY = 300.0
"""Seconds that an agent works before it asks, at most."""
_LIMITS = ("20m", "6m")
"""Of its tasks: into some of them not every schedule fits."""


class MeshReport(msgspec.Struct):
    """What happened, and the promises that were broken."""

    sent: int = 0
    answered: int = 0
    blocked: int = 0
    resolved: int = 0
    still_blocked: int = 0
    refused_circles: int = 0
    refused_strangers: int = 0
    broken: list[str] = msgspec.field(default_factory=list)


class _Seen(msgspec.Struct):
    """One request as the journal has told of it so far."""

    asker: str
    to: str
    sent_at: int
    longest: int
    shortest: int
    expired: int = 0
    mesh: int = 0
    blocked: int = 0
    ends: int = 0


class Auditor:
    """Looks at every commit."""

    def __init__(self, store: MemoryStore, report: MeshReport) -> None:
        self._store = store
        self._report = report
        self._seen: dict[str, _Seen] = {}
        self._tasks = store.database.tables.tasks
        self.late: dict[str, int] = {}
        """How often each late answer was acknowledged to whoever gave it."""

    def __call__(self, written: list[Changes]) -> None:
        """One commit."""
        for changes in written:
            for event in changes.events:
                self._hear(event, changes.at)
        for task in self._store.unaccounted():
            self._breaks("nothing hangs silently", str(task))

    def _breaks(self, promise: str, what: str) -> None:
        if len(self._report.broken) < 20:
            self._report.broken.append(f"{promise}: {what}")

    def _hear(self, event: Event, at: int) -> None:
        if event.kind == "agent_timeout":
            self._breaks("a request blocks before the asking lease's limit", str(event.task))
        if event.kind == "task_claimed" and event.task is not None and is_request(event.task):
            to = agent_of(self._tasks[event.task].role)
            if to is not None and to != event.agent:
                self._breaks("what is addressed to an agent is offered to nobody else", f"{event.task} {event.agent}")
        if "request" not in event.data:
            return
        id_ = str(event.data["request"])
        if event.kind == "request_sent":
            self._sent(event, id_, at)
            return
        seen = self._seen[id_]
        hear: Callable[[_Seen, Event, int], None] | None = {
            "request_expired": self._expired,
            "mesh_asked": self._mesh_asked,
            "request_blocked": self._blocked,
            "request_closed": self._ended,
            "request_resolved": self._resolved,
        }.get(event.kind)
        if hear is not None:
            hear(seen, event, at)

    def _sent(self, event: Event, id_: str, at: int) -> None:
        self._report.sent += 1
        task = self._tasks.get(TaskId(id_))
        spec = None if task is None else task.spec.request
        longest = 0 if spec is None else spec.timeout * (spec.retries + 1) + spec.wait
        seen = _Seen(str(event.agent), str(event.data["to"]), at, longest, int(event.data["timeout_ms"]))
        self._seen[id_] = seen
        self._check_circle(seen)

    def _check_circle(self, new: _Seen) -> None:
        waits: dict[str, list[str]] = {}
        for seen in self._seen.values():
            if not seen.ends and not seen.blocked:
                waits.setdefault(seen.asker, []).append(seen.to)
        met, pending = {new.to}, [new.to]
        for agent in pending:
            if agent == new.asker:
                self._breaks("agents never wait for each other in a circle", f"{new.asker} asks {new.to}")
                return
            for other in waits.get(agent, ()):
                if other not in met:
                    met.add(other)
                    pending.append(other)

    def _expired(self, seen: _Seen, event: Event, at: int) -> None:
        seen.expired += 1
        if not seen.blocked and at - seen.sent_at < seen.shortest:
            self._breaks("a delivery never expires early", str(event.data["request"]))

    def _mesh_asked(self, seen: _Seen, event: Event, _: int) -> None:
        seen.mesh += 1
        if seen.mesh > 1:
            self._breaks("the mesh is asked once", str(event.data["request"]))

    def _blocked(self, seen: _Seen, event: Event, at: int) -> None:
        self._report.blocked += 1
        seen.blocked += 1
        self._check_time(seen, event, at)
        if seen.blocked > 1:
            self._breaks("a request blocks its task once", str(event.data["request"]))
        if seen.ends or seen.mesh != 1:
            self._breaks("it blocks after the mesh was asked, and nobody answered", str(event.data["request"]))

    def _ended(self, seen: _Seen, event: Event, at: int) -> None:
        seen.ends += 1
        self._report.answered += event.data["outcome"] == "done"
        if not seen.blocked:
            self._check_time(seen, event, at)
        self._check_once(seen, event)

    def _resolved(self, seen: _Seen, event: Event, _: int) -> None:
        seen.ends += 1
        self._report.resolved += 1
        self._check_once(seen, event)
        if not seen.blocked:
            self._breaks("only a block is resolved", str(event.data["request"]))
        if event.data["by"] != seen.to and not seen.mesh:
            self._breaks("only who was asked answers", f"{event.data['request']} by {event.data['by']}")

    def _check_once(self, seen: _Seen, event: Event) -> None:
        if seen.ends > 1:
            self._breaks("an answer counts once", str(event.data["request"]))

    def _check_time(self, seen: _Seen, event: Event, at: int) -> None:
        if at - seen.sent_at > seen.longest + LATE_BY:
            self._breaks("no request is open past its schedule", f"{event.data['request']} {at - seen.sent_at} ms")

    def check_end(self, now: int) -> None:
        """When all is over."""
        for id_, seen in self._seen.items():
            if not seen.ends and not seen.blocked and now - seen.sent_at > seen.longest + LATE_BY:
                self._breaks("no request is open past its schedule", id_)
            task = self._tasks.get(TaskId(id_))
            stand = None if task is None else task.record.request
            if stand is not None and stand.by and stand.by != seen.to and not seen.mesh:
                self._breaks("only who was asked answers", f"{id_} by {stand.by}")
        self._report.still_blocked = sum(1 for seen in self._seen.values() if seen.blocked and not seen.ends)
        acknowledged = sum(self.late.values())
        if acknowledged != self._report.resolved:
            self._breaks("a late answer counts once", f"{acknowledged} were taken, {self._report.resolved} counted")


class _Mesh:
    """The agents of all processes."""

    def __init__(self, seed: int, agents: int, requests: int) -> None:
        self.chance = random.Random(seed)
        self.left = requests
        self.report = MeshReport()
        self.names = [f"a{number}" for number in range(agents)]
        manners = ("prompt", "prompt", "prompt", "prompt", "silent", "late")
        self.manner = {name: manners[number % len(manners)] for number, name in enumerate(self.names)}

    async def ask_on(self, watch: Watch, name: str) -> None:
        """One agent that works, and asks others again and again."""
        lease: Lease | None = None
        while self.left > 0:
            if lease is None:
                await watch.submit(f"work of {name}", timeout=self.chance.choice(_LIMITS))
                lease = await watch.claim(agent=name, wait="1m")
            if lease is None:
                continue
            await asyncio.sleep(self.chance.uniform(0, _BUSY))
            to = self.chance.choice([other for other in self.names if other != name])
            length, retries = self.chance.choice(((20_000, 1), (40_000, 2), (30_000, 0)))
            following: Lease | None = None
            try:
                self.left -= 1
                ended = await lease.request(to, "handoff", f"{name} to {to}", timeout=length, retries=retries)
                if ended.blocked:
                    following = ended.next
                    await self._ask_again(watch, lease, ended.request_id, following)
                else:
                    await lease.complete()
            except Refused as refused:
                self.report.refused_circles += refused.code == "circle"
                self.left += 1
                await lease.complete()
            except LeaseLost:
                pass
            lease = following
        if lease is not None:
            await lease.release()

    async def _ask_again(self, watch: Watch, lease: Lease, request: str, following: Lease | None) -> None:
        """A caller whose answer was lost asks again, and is given the same."""
        if self.chance.random() < 0.1:
            again = await watch.held(lease.task, lease.token, lease.agent).wait_for(request)
            given = None if again.next is None else (again.next.task, again.next.token)
            if given != (None if following is None else (following.task, following.token)):
                self.report.broken.append(f"one next for each request: {request} {given}")

    async def answer_on(self, watch: Watch, names: list[str], late: dict[str, int]) -> None:
        """What the agents of a process answer: promptly, late, never, and now and then what nobody asked of them."""
        while True:
            await asyncio.sleep(_LOOK)
            for name, items in (await watch.inboxes(dict.fromkeys(names, ()))).items():
                for item in items:
                    blocked = item.expires_at is None
                    wanted = item.to == name or self.chance.random() < 0.001
                    if wanted and (self.manner[name] == "prompt" or (self.manner[name] == "late" and blocked)):
                        await self._answer(watch, name, item.request_id, late if blocked else {})
                    if item.to == name and self.chance.random() < 0.02:
                        await self._answer(watch, self.chance.choice(names), item.request_id, late)

    async def _answer(self, watch: Watch, name: str, request: str, late: dict[str, int]) -> None:
        try:
            await watch.respond(request, name, agent=name)
        except Refused as refused:
            self.report.refused_strangers += refused.code in ("not_addressed", "own_request")
        else:
            row = await watch.task(request)
            stand = None if row is None else row.task.record.request
            if stand is not None and stand.blocked_at is not None:
                late[request] = late.get(request, 0) + 1


def simulate_mesh(seed: int, *, agents: int = 100, requests: int = 2_000) -> MeshReport:
    """One history; the same seed has the same one."""

    async def main() -> MeshReport:
        mesh = _Mesh(seed, agents, requests)
        clock = VirtualClock()
        store = MemoryStore(clock=clock, turn=running_loop().turn)
        auditor = Auditor(store, mesh.report)
        store.on_commit = auditor
        stores = [store, *(store.another() for _ in range(_PROCESSES - 1))]
        watches = [
            make_watch(one, clock=clock, chance=random.Random(f"{seed} {number}"), pace=PACE)
            for number, one in enumerate(stores)
        ]
        for watch in watches:
            await watch.__aenter__()
        tasks = [{"name": f"n{number}", "timeout": _LIMITS[number % 2]} for number in range(agents // 2)]
        await watches[0].submit_many(tasks)
        owns = [mesh.names[number::_PROCESSES] for number in range(_PROCESSES)]
        answering = [
            asyncio.ensure_future(mesh.answer_on(watch, own, auditor.late))
            for watch, own in zip(watches, owns, strict=True)
        ]
        asking = [mesh.ask_on(watch, name) for watch, own in zip(watches, owns, strict=True) for name in own]
        for ended in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(ended, Bug | AllswellError):
                mesh.report.broken.append(f"no agent meets a bug of ours: {ended}")
        await asyncio.sleep(60)
        for work in answering:
            work.cancel()
        for ended in await asyncio.gather(*answering, return_exceptions=True):
            if isinstance(ended, Exception):
                mesh.report.broken.append(f"no agent meets a bug of ours: {ended}")
        auditor.check_end(await watches[0].now())
        for watch in watches:
            await watch.__aexit__(None, None, None)
        return mesh.report

    return run(main(), seed=seed, max_steps=500_000_000)
