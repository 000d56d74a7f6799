"""The mesh on SQLite and PostgreSQL, with the protocol's own figures: the stores' clocks are moved, nobody waits.

On the memory store the same is played on virtual time (test_mesh.py, test_mesh_health.py). Here two watches are two
processes to the store, and what they do at once really meets there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from allswell import Lease, Refused, Watch, make_watch
from allswell.domain.ids import AgentId, CommandId, TaskId, Token
from allswell.domain.mesh.comms import Comm
from allswell.domain.mesh.health import DAY
from allswell.domain.mesh.request import KINDS
from allswell.domain.rules.command import MoveOn
from allswell.domain.rules.event import Event
from allswell.domain.task.model import Policy
from allswell.engine.status.agents import look
from allswell.engine.status.journal import comm_of, read_ledger
from allswell.engine.timings import Timings
from allswell.store.port import Store
from allswell.store.postgres import PostgresStore
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import Clock, SystemClock

MINUTE = 60_000
HOUR = 60 * MINUTE
QUICK = Timings(sweep_most=0.02, follow_poll=0.02, claim_poll=0.02)
UNASKED = {"": Policy(timeout=7 * DAY, checkpoint_interval=7 * DAY)}
"""Nobody is asked for check-ins in these scenes."""
MOVED_CLOCK = """
CREATE SCHEMA moved;
CREATE TABLE moved.by (ms bigint);
INSERT INTO moved.by VALUES (0);
CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + ms * interval ''1 ms'' FROM moved.by';
"""
"""A clock that a test can move; it is found before PostgreSQL's own where its schema is searched first.

It goes on between two moves, too, so what must not have happened yet is looked at long before it is due.
"""


class MovedClock:
    """Clocks that move only when they are told."""

    def __init__(self) -> None:
        self.by = 0

    def wall(self) -> int:
        return 1_700_000_000_000 + self.by

    def monotonic(self) -> int:
        return self.by

    def boottime(self) -> int:
        return self.by


class Mesh:
    """Two processes on one store, whose clock obeys."""

    def __init__(self, make: Callable[[], Store], clock: Clock, move: Callable[[int], Awaitable[None]]) -> None:
        self._make = make
        self._clock = clock
        self._move = move
        self.here = self._watch()
        self.there = self._watch()

    def _watch(self) -> Watch:
        return make_watch(self._make(), clock=self._clock, pace=QUICK, policies=UNASKED, sweeping=False)

    async def pass_time(self, length: int) -> None:
        """Let time pass, and everything that falls due be done: by nobody else, or it could be under way still."""
        await self._move(length)
        while not await self.here.sweep_once():
            pass

    async def told(self, *kinds: str) -> list[Event]:
        return [entry.event async for entry in self.here.events() if entry.event.kind in kinds]

    async def comms(self) -> list[Comm]:
        rows = [await comm_of(self.here.views, entry) async for entry in self.here.events()]
        return [row for row in rows if row is not None]

    async def holding(
        self, name: str, *, agent: str = "sandman", role: str = "", critical: bool = False, watch: Watch | None = None
    ) -> Lease:
        """Somebody who works on a task."""
        watch = watch or self.here
        task = await watch.submit(name, timeout="7d", role=role, priority=5, critical=critical)
        lease = await watch.claim(agent=agent, roles=[role], task=task)
        assert lease is not None
        return lease

    async def exhaust(self, lease: Lease, to: str, kind: str, **more: int) -> None:
        """Ask, and let all deliveries expire."""
        figures = KINDS[kind]
        retries = more.get("retries", figures.retries)
        await lease.send_request(to, kind, f"{to}?", retries=retries)
        for _ in range(retries + 1):
            await self.pass_time(figures.timeout + 1)


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Mesh]:
    clock = MovedClock()

    async def move(length: int) -> None:
        clock.by += length

    mesh = Mesh(lambda: SqliteStore(folder / "mesh.db", clock=clock), clock, move)
    async with mesh.here, mesh.there:
        yield mesh


@asynccontextmanager
async def postgres(url: str) -> AsyncIterator[Mesh]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(MOVED_CLOCK)
        name = connection.info.dbname
        await connection.execute(f'ALTER DATABASE "{name}" SET search_path = moved, pg_catalog, public')

        async def move(length: int) -> None:
            await connection.execute("UPDATE moved.by SET ms = ms + %s", [length])

        mesh = Mesh(lambda: PostgresStore(url), SystemClock(), move)
        async with mesh.here, mesh.there:
            yield mesh


Play = Callable[[Callable[[Mesh], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite", "postgres"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Play a scene on a store."""
    kept = sqlite(tmp_path) if request.param == "sqlite" else postgres(request.getfixturevalue("pg_url"))

    def on_store(scene: Callable[[Mesh], Awaitable[None]]) -> None:
        async def main() -> None:
            async with kept as mesh:
                await scene(mesh)
                assert await mesh.here.unaccounted() == []

        asyncio.run(asyncio.wait_for(main(), 60))

    return on_store


@pytest.mark.row("M1", "M2", "M3", "M5", "M8")
def test_the_protocol_s_first_example_with_its_own_figures(play: Play) -> None:
    async def scene(mesh: Mesh) -> None:
        lease = await mesh.holding("Deploy webhook monitoring")
        doc = await mesh.here.submit("doc task", priority=3)
        await mesh.here.submit("some other day", priority=1)
        waiting = asyncio.ensure_future(lease.request("oracle", "handoff", "server access"))
        while not await mesh.told("request_sent"):
            await asyncio.sleep(0.005)
        for attempt in (1, 2, 3):
            await mesh.pass_time(3 * MINUTE)
            assert len(await mesh.told("request_expired")) == attempt - 1, "never early"
            await mesh.pass_time(2 * MINUTE + 1)
            assert len(await mesh.told("request_expired")) == attempt
        await mesh.pass_time(3_000)
        ended = await waiting
        assert (ended.blocked, ended.fallback) == (True, "next_task")
        assert (ended.next.task, ended.next.agent) == (doc, "sandman")
        row = await mesh.there.task(lease.task)
        assert row is not None
        assert (row.lease, row.task.record.timeouts) == (None, 0), "M8: who asked is not charged"
        assert [(wait.kind, wait.target) for wait in row.waits] == [("request", ended.request_id)]
        await mesh.pass_time(20 * MINUTE)
        both = [watch.respond(ended.request_id, "here", agent="oracle") for watch in (mesh.here, mesh.there)]
        refused = [one for one in await asyncio.gather(*both, return_exceptions=True) if one is not None]
        assert [getattr(one, "code", one) for one in refused] == ["request_closed"], "it counts once"
        (resolved,) = await mesh.told("request_resolved")
        assert (resolved.data["by"], resolved.data["requeued"]) == ("oracle", True)
        await mesh.pass_time(1)  # who waited for it is queued again right after
        again = await mesh.there.claim(agent="sandman", wait="5s")
        assert again is not None
        assert again.task == lease.task
        assert [(one.request, one.by, one.text) for one in again.answers] == [(ended.request_id, "oracle", '"here"')]
        comms = [(one.status, one.timeout_min, one.retries) for one in await mesh.comms() if "mesh" not in one.event]
        assert comms == [
            *(("Sent", None, 0), ("Timeout", 5.0, 0), ("Sent", None, 1), ("Timeout", 5.0, 1), ("Sent", None, 2)),
            *(("Timeout", 5.0, 2), ("Blocked", 5.0, 2), ("Resolved", None, 2)),
        ]

    play(scene)


@pytest.mark.row("M1", "M9")
@pytest.mark.parametrize(
    "kind, timeout, retries", [("status_check", 120, 1), ("collaboration", 300, 2), ("webhook", 30, 3)]
)
def test_each_kind_has_its_timeout_and_retries(play: Play, kind: str, timeout: int, retries: int) -> None:
    async def scene(mesh: Mesh) -> None:
        lease = await mesh.holding("work")
        await lease.send_request("https://x.example/" if kind == "webhook" else "oracle", kind, "x")
        for expired in range(retries + 1):
            await mesh.pass_time(timeout * 500)
            assert len(await mesh.told("request_expired")) == expired
            await mesh.pass_time(timeout * 500 + 1)
        assert [event.data["timeout_ms"] for event in await mesh.told("request_expired")] == [timeout * 1_000] * (
            retries + 1
        )
        assert len(await mesh.told("request_blocked")) == 1

    play(scene)


@pytest.mark.row("M6")
def test_of_two_processes_that_ask_each_other_at_the_same_moment_one_is_refused(play: Play) -> None:
    async def scene(mesh: Mesh) -> None:
        for number in range(8):
            ann = await mesh.holding("a", agent=f"ann{number}")
            bob = await mesh.holding("b", agent=f"bob{number}", watch=mesh.there)
            both = [
                ann.send_request(f"bob{number}", "handoff", "x"),
                bob.send_request(f"ann{number}", "handoff", "y"),
            ]
            ends = await asyncio.gather(*both, return_exceptions=True)
            (refused,) = [end for end in ends if isinstance(end, BaseException)]
            assert isinstance(refused, Refused)
            assert refused.code == "circle"
            assert f"ann{number}" in str(refused)
            assert f"bob{number}" in str(refused)
        assert len(await mesh.told("request_sent")) == 8

    play(scene)


@pytest.mark.row("M6")
def test_a_caller_that_names_an_attempt_that_no_store_can_hold_is_refused(play: Play) -> None:
    """And not told of a bug, with all that was to be decided beside it."""

    async def scene(mesh: Mesh) -> None:
        task = await mesh.here.submit("work")
        assert await mesh.here.claim(agent="ada")
        waits = MoveOn(CommandId("c"), task, Token(1 << 70), AgentId("ada"), TaskId(f"{task}.12345678"))
        with pytest.raises(Refused, match="there is no request"):
            await mesh.here._engine.do(waits)

    play(scene)


def test_a_block_of_an_hour_is_told_once_whoever_sweeps(play: Play) -> None:
    async def scene(mesh: Mesh) -> None:
        lease = await mesh.holding("deploy", critical=True)
        await mesh.exhaust(lease, "oracle", "status_check")
        assert len(await mesh.told("request_blocked")) == 1
        await mesh.pass_time(HOUR - 2 * MINUTE)
        assert await mesh.told("task_blocked_long") == []
        await mesh.pass_time(2 * MINUTE + 1)
        await asyncio.gather(*(watch.sweep_once() for watch in (mesh.here, mesh.there) for _ in range(5)))
        (told,) = await mesh.told("task_blocked_long")
        assert (told.task, told.data["critical"], told.data["count"]) == (lease.task, True, 1)
        await mesh.pass_time(DAY - 3 * MINUTE)
        assert len(await mesh.told("task_blocked_long")) == 1, "not every minute"
        await mesh.pass_time(3 * MINUTE)
        assert [event.data["count"] for event in await mesh.told("task_blocked_long")] == [1, 2]

    play(scene)


@pytest.mark.row("M7", "M8")
def test_a_degraded_agent_is_passed_over_until_its_expiries_age_out(play: Play) -> None:
    async def scene(mesh: Mesh) -> None:
        async def degraded() -> list[str]:
            return [one.agent for one in (await look(mesh.there.views)).members if one.degraded]

        await mesh.holding("review", agent="ann", role="reviewer")
        asker = await mesh.holding("impatient", agent="eve")
        await mesh.exhaust(asker, "ann", "status_check", retries=2)
        assert await degraded() == []
        other = await mesh.holding("again", agent="eve")
        await mesh.exhaust(other, "ann", "status_check", retries=0)
        assert await degraded() == ["ann"]
        work = await mesh.holding("mine", agent="sandman")
        only = await work.send_request("role:reviewer", "handoff", "the only one is used")
        taken = await mesh.there.claim(agent="ann", roles=["reviewer"])
        assert taken is not None
        assert taken.task == only
        await taken.complete()
        await mesh.holding("review too", agent="bob", role="reviewer", watch=mesh.there)
        routed = await work.send_request("role:reviewer", "handoff", "look at this")
        assert await mesh.there.claim(agent="ann", roles=["reviewer"]) is None
        served = await mesh.there.claim(agent="bob", roles=["reviewer"])
        assert served is not None
        assert served.task == routed
        of_eve, of_ann = [await read_ledger(mesh.there.views, name, 0) for name in ("eve", "ann")]
        assert (of_eve.total("against"), of_ann.total("against")) == (0, 4)
        assert (of_ann.cut, (await read_ledger(mesh.there.views, "ann", 0, 1)).cut) == (None, 1)
        more = await work.send_request("role:reviewer", "handoff", "bob does not look at this")
        assert await mesh.there.claim(agent="ann", roles=["reviewer"]) is None
        await mesh.pass_time(5 * MINUTE + 1)
        late = await mesh.there.claim(agent="ann", roles=["reviewer"])
        assert late is not None, "who was passed over may take the next delivery"
        assert late.task == more
        await mesh.pass_time(DAY)
        assert await degraded() == []

    play(scene)
