"""A hundred agents that ask each other, a third of them silent or late, on virtual time: what must hold, held.

The real core and engine on the memory store, several processes, and one seeded generator. They ask agents and roles;
with `crashes`, processes die where they stand and come back, and answers of the store are lost. Every commit is looked
at (mesh_auditor.py): an event that breaks a promise is told with the promise. `simulate_mesh(seed, requests=2_000)`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from allswell.app import make_watch
from allswell.domain.names import is_request
from allswell.domain.request import KINDS, Escalation, MeshFigures, RequestKind
from allswell.engine.handle import Lease
from allswell.engine.pace import Pace
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, LeaseLost, Refused
from allswell.store.memory import AnswerLost, MemoryStore
from allswell.store.port import Changes
from allswell.testing.clock import VirtualClock
from allswell.testing.loop import run, running_loop
from allswell.testing.sim.mesh_auditor import AGAIN, LONG, USUAL, MeshAuditor, MeshReport
from allswell.timing.nursery import Nursery

PACE = Pace(follow_poll=4.0, sweep_most=1.0, claim_poll=5.0)
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
        to = self.chance.choice([other for other in self.names if other != name])
        if self.chance.random() < _TO_ROLES:
            to = f"role:{self.chance.choice((self.role[name], *_ROLES))}"
        length, retries = self.chance.choice(((20_000, 1), (40_000, 2), (USUAL, 0)))
        self.left -= 1
        try:
            about = f"{name} to {to}"
            ended = await lease.request(to, "handoff", about, timeout=length, retries=retries, kept=_KEPT)
        except Refused as refused:
            self.report.refused_circles += refused.code == "circle"
            self.left += 1
            await lease.complete()
            return None
        if not ended.blocked:
            await lease.complete()
            return None
        following: Lease | None = ended.next
        await self._ask_again(watch, lease, ended.request_id, following)
        return following

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

    @staticmethod
    async def _count_late(watch: Watch, request: str, late: Counter[str]) -> None:
        """An answer was taken; count it if it was a late one."""
        row = await watch.task(request)
        stand = None if row is None else row.task.record.request
        if stand is not None and stand.blocked_at is not None:
            late[request] += 1


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
        auditor = MeshAuditor(store, mesh.report)
        found = False

        def look(written: list[Changes]) -> None:
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
