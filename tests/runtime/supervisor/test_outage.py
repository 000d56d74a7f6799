"""The store goes away while agents are at work: what ended well is told when it is back, and is not done again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from allswell import Watch, make_watch
from allswell.app import store_for
from allswell.domain.agents.fleet import AgentSpec, Fleet
from allswell.domain.receipts.receipt import End
from allswell.domain.task.model import Attempt
from allswell.engine.timings import Timings
from allswell.errors import LeaseLost
from allswell.runtime.attempt import AttemptOutcome, report
from allswell.runtime.attempt.record import InFlightRecord
from allswell.runtime.process import EndCause, ProcessResult
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor import Supervisor, SupervisorPlan
from allswell.testing.faulty import FaultyStore
from tests import patience

WAITS = (
    "touch ready; echo $ALLSWELL_TASK >> begun; while [ ! -e go ]; do sleep 0.02; done; echo $ALLSWELL_ATTEMPT >> made"
)
PACE = Timings(store_patience=0.3, claim_poll=0.1)


class Outage:
    """A fleet of one agent on a store that can be taken away."""

    def __init__(self, folder: Path, watch: Watch, store: FaultyStore) -> None:
        self.folder = folder
        self.watch = watch
        self.store = store
        self.home = StateDir(folder / ".allswell")
        self.lines: list[str] = []

    @asynccontextmanager
    async def supervisor(
        self,
        script: str = WAITS,
        *,
        lease: int = 20_000,
        name: str = "main",
        grace: int = 200,
        slots: int = 1,
        host: str = "here",
    ) -> AsyncIterator[asyncio.Future[None]]:
        """A supervisor for as long as this lasts; it is stopped at once then."""
        spec = AgentSpec(name="sh", command=("sh", "-c", script), cwd=str(self.folder), grace=grace, concurrency=slots)
        fleet = Fleet({"sh": spec})
        plan = SupervisorPlan(fleet, self.home, name, host, lease=lease, stop=1_000, tell=self.lines.append)
        made = Supervisor(self.watch, plan)
        running = asyncio.ensure_future(made.run())
        try:
            yield running
        finally:
            for _ in range(0 if running.done() else 2):
                made.stop()
            async with asyncio.timeout(patience.SECONDS):
                await asyncio.gather(running, return_exceptions=True)

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until something in this process or in the folder is so."""
        async with asyncio.timeout(patience.SECONDS):
            while not reached():
                await asyncio.sleep(0.02)

    async def ended(self, task: str) -> list[Attempt]:
        """The attempts at a task, once it has ended."""
        async with asyncio.timeout(patience.SECONDS):
            while (row := await self.watch.task(task)) is None or row.task.ended_at is None:
                await asyncio.sleep(0.02)
        return await self.watch.attempts(task)

    def told(self, text: str) -> bool:
        """Whether the supervisor has said something."""
        return any(text in line for line in self.lines)

    def file(self, name: str) -> list[str]:
        """The lines of a file that agents write."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def notes(self) -> list[Path]:
        """The notes of attempts in flight."""
        return sorted(self.home.attempts.glob("*.json"))


def play(folder: Path, scene: Callable[[Outage], object], url: str = "", made: type[FaultyStore] = FaultyStore) -> None:
    """Play a scene on a store that can be taken away."""

    async def main() -> None:
        store = FaultyStore(store_for(url or f"sqlite:///{folder}/.allswell/allswell.db"))
        async with make_watch(store, pace=PACE) as watch:
            outage = Outage(folder, watch, store)
            outage.home.make()
            await scene(outage)  # type: ignore[misc]

    (folder / ".allswell").mkdir(exist_ok=True)
    asyncio.run(main())


def test_a_supervisor_says_that_the_store_is_away_though_it_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.runtime.supervisor.supervisor.PACE", 600)

    async def scene(outage: Outage) -> None:
        async with outage.supervisor():
            async with asyncio.timeout(patience.SECONDS):
                while not [one async for one in outage.watch.events() if one.event.kind == "supervisor_started"]:
                    await asyncio.sleep(0.02)
            outage.store.down = True
            await outage.until(lambda: outage.told("the store cannot be written: nothing new is begun"))
            outage.store.down = False
            await outage.until(lambda: outage.told("the store can be written again"))

    play(tmp_path, scene)


@pytest.mark.row("O10")
def test_what_ended_well_in_an_outage_is_told_when_the_store_is_back(tmp_path: Path) -> None:
    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with outage.supervisor():
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            (tmp_path / "go").touch()
            await outage.until(lambda: outage.told("the store does not answer"))
            (note,) = outage.notes()
            kept = msgspec.json.decode(note.read_bytes(), type=InFlightRecord)
            assert [one.command for one in kept.report] == ["Complete"]
            outage.store.down = False
            attempts = await outage.ended(task)
            await outage.until(lambda: not outage.notes())
        assert [one.outcome for one in attempts] == ["done"]
        assert await outage.watch.result(task) == {"exit_code": 0, "changed": 4}
        assert outage.file("made") == ["1"], "it was done twice"
        assert outage.told("sh has done “mend”")

    play(tmp_path, scene)


@pytest.mark.realtime
@pytest.mark.row("O10")
def test_past_its_lease_it_is_kept_as_late_and_the_next_attempt_is_the_task_s(tmp_path: Path) -> None:
    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend", verify=["true"])
        async with outage.supervisor(lease=3_000):
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            (tmp_path / "go").touch()
            await outage.until(lambda: outage.told("the store does not answer"))
            await asyncio.sleep(3.2)
            outage.store.down = False
            attempts = await outage.ended(task)
            await outage.until(lambda: not outage.notes())
        assert [one.outcome for one in attempts] == ["lease_lapsed", "done"]
        assert attempts[0].late == '{"exit_code":0,"changed":4}', "what the first one brought is lost"
        states = {one.receipt.attempt: one.receipt.status.value for one in outage.home.receipts.of_task(task)}
        assert states == {1: "lease_lost", 2: "done"}

    play(tmp_path, scene)


@pytest.mark.row("O10")
def test_a_supervisor_that_stops_in_an_outage_leaves_the_result_to_the_next(tmp_path: Path) -> None:
    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with outage.supervisor():
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            (tmp_path / "go").touch()
            await outage.until(lambda: outage.told("the store does not answer"))
        assert outage.told("the next `allswell up` or `allswell run` here sends it to the store")
        outage.store.down = False
        async with outage.supervisor(name="second"):
            attempts = await outage.ended(task)
        assert [one.outcome for one in attempts] == ["done"]
        assert (outage.file("made"), outage.notes()) == (["1"], [])
        assert outage.told("the store knows now how sh ended “mend”")

    play(tmp_path, scene)


@pytest.mark.row("O10")
@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_whose_outcome_is_unknown_is_settled_by_the_next_supervisor(tmp_path: Path, committed: bool) -> None:
    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with outage.supervisor():
            await outage.until((tmp_path / "ready").exists)
            outage.store.lose_event("task_completed", committed=committed)
            (tmp_path / "go").touch()
            await outage.until(lambda: outage.store.down)
            await outage.until(lambda: outage.told("the store does not answer"))
        outage.store.down = False
        async with outage.supervisor(name="second"):
            attempts = await outage.ended(task)
        assert [one.outcome for one in attempts] == ["done"]
        assert attempts[0].late is None
        assert (outage.file("made"), outage.notes()) == (["1"], [])

    play(tmp_path, scene)


@pytest.mark.row("O10")
def test_what_an_agent_says_in_an_outage_is_kept_and_it_is_told_so(tmp_path: Path) -> None:
    said = f"{sys.executable} -m allswell done '{{\"answer\": 42}}' > said; echo $? >> said; touch over"
    script = f"touch ready; while [ ! -e go ]; do sleep 0.02; done; {said}"

    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with outage.supervisor(script):
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            (tmp_path / "go").touch()
            await outage.until((tmp_path / "over").exists)
            outage.store.down = False
            attempts = await outage.ended(task)
        assert [one.outcome for one in attempts] == ["done"]
        assert await outage.watch.result(task) == {"answer": 42}
        told = (tmp_path / "said").read_text()
        assert told.endswith("\n0\n")
        assert "your report is kept and sent when the store is back" in told

    play(tmp_path, scene)


@pytest.mark.row("O10")
def test_on_postgresql(tmp_path: Path, pg_url: str) -> None:
    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with outage.supervisor():
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            (tmp_path / "go").touch()
            await outage.until(lambda: outage.told("the store does not answer"))
            outage.store.down = False
            assert [one.outcome for one in await outage.ended(task)] == ["done"]

    play(tmp_path, scene, pg_url)


def test_a_result_that_the_store_does_not_take_is_a_failure_and_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("async def work(work):\n    return 'x' * (2 << 20)\n")

    async def scene(outage: Outage) -> None:
        spec = AgentSpec(name="big", function="big:work", cwd=str(tmp_path))
        plan = SupervisorPlan(Fleet({"big": spec}), outage.home, tell=outage.lines.append, drain=True)
        task = await outage.watch.submit("mend")
        async with asyncio.timeout(patience.SECONDS):
            await Supervisor(outage.watch, plan).run()
        assert [one.outcome for one in await outage.watch.attempts(task)] == ["failed:validation"]

    play(tmp_path, scene)


BEATS = "trap '' TERM; touch ready; while :; do date +%s%3N >> beats; sleep 0.02; done"


@pytest.mark.realtime
@pytest.mark.row("O10")
def test_who_is_cut_off_has_killed_its_agents_before_the_store_gives_their_work_away(tmp_path: Path) -> None:
    """It ignores SIGTERM, and its grace is longer than the lease."""

    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        async with (
            make_watch(store_for(outage.store.url)) as other,
            outage.supervisor(BEATS, lease=5_000, grace=60_000),
        ):
            await outage.until((tmp_path / "ready").exists)
            outage.store.down = True
            async with asyncio.timeout(patience.SECONDS):
                taken = await other.claim(agent="other", task=task, wait="60s", lease="60s")
            assert taken is not None
            granted_at = taken.granted.lease.granted_at
            last = int(outage.file("beats")[-1])
            await asyncio.sleep(0.2)
            assert int(outage.file("beats")[-1]) == last, "it runs beside the next holder"
            assert last < granted_at
            assert await other.attempts(task)
            await taken.complete()
            outage.store.down = False

    play(tmp_path, scene)


@pytest.mark.row("O10")
def test_what_an_agent_brought_is_offered_also_where_the_store_has_not_said_that_its_lease_is_gone(
    tmp_path: Path,
) -> None:
    """A supervisor that stood still finds its agents ended and its leases over, and a store that is slow to say so."""

    async def scene(outage: Outage) -> None:
        task = await outage.watch.submit("mend")
        lease = await outage.watch.claim(agent="sh", lease="5m")
        assert lease is not None
        await outage.watch.held(lease.task, lease.token, lease.agent).release("taken from it")
        assert lease.lost is None
        came = AttemptOutcome(End.LEASE_LOST, "exit code 0, but too late", ProcessResult(EndCause.EXITED, 0, None))
        await report(lease, came)
        assert [one.late for one in await outage.watch.attempts(task)] == ['{"exit_code":0}']

    play(tmp_path, scene)


async def taken_over(outage: Outage, other: Outage) -> None:
    """A supervisor of the same name on another machine begins while the first is cut off; then that one is back."""
    first = [await outage.watch.submit(f"first {number}") for number in (1, 2)]
    async with outage.supervisor(name="main", slots=2) as running:
        await outage.until(lambda: len(outage.file("begun")) == 2)
        outage.store.down = True
        await asyncio.sleep(2.5)  # its name is free
        async with other.supervisor(name="main", slots=2, host="elsewhere"):
            await outage.until(lambda: other.told("what it holds is free when its leases lapse"))
            second = [await other.watch.submit(f"second {number}") for number in (1, 2)]
            await outage.until(lambda: len(other.file("begun")) == 2)
            more = [await other.watch.submit(f"more {number}") for number in (1, 2)]
            for task in first:
                assert await other.watch.attempts(task) == [], "a live lease was taken"
            outage.store.down = False
            async with asyncio.timeout(patience.SECONDS):
                with pytest.raises(LeaseLost, match="another supervisor has its name now"):
                    await running
            assert len(outage.file("begun")) == 2, "it has begun more under a name that it had lost"
            for task in (*second, *more):
                assert await other.watch.attempts(task) == []
            (other.folder / "go").touch()
            for task in (*first, *second, *more):
                assert [one.outcome for one in await other.ended(task)][-1] == "done"


@pytest.mark.realtime
@pytest.mark.row("O10")
def test_a_supervisor_of_the_same_name_elsewhere_takes_no_live_lease_and_the_first_claims_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allswell.runtime.supervisor.supervisor.PACE", 600)

    async def scene(outage: Outage) -> None:
        folder = tmp_path / "elsewhere"
        folder.mkdir()
        healthy = FaultyStore(store_for(outage.store.url))
        async with make_watch(healthy, pace=PACE) as watch:
            other = Outage(folder, watch, healthy)
            other.home.make()
            await taken_over(outage, other)

    play(tmp_path, scene)
