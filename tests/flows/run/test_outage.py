"""The store goes away while a step is at work: what it brought is kept on disk and told when the store is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from allswell import Watch, make_watch
from allswell.app import store_for
from allswell.domain.receipts.step import FlowSummary, RunVerdict
from allswell.engine.timings import Timings
from allswell.errors import Unavailable
from allswell.flows.run.folder import FlowEvent, RunBase
from allswell.flows.run.plan import given_inputs
from allswell.flows.run.resume import free_dead, go_on, settle_dead
from allswell.flows.run.runner import FlowStart, Runner, begin, make_site
from allswell.flows.run.state import look as look_at
from allswell.flows.schema import load_flow
from allswell.runtime.deadlines import use_limits
from allswell.settings import look
from allswell.testing.faulty import FaultyStore
from allswell.timing.clock import SystemClock
from tests import patience
from tests.flows.run.stage import allswell_limits

WAITS = "echo made >> $1; touch ready; while [ ! -e go ]; do sleep 0.02; done; echo said"
FLOW = f"""
name: chain
steps:
- {{id: first, run: [sh, -c, '{WAITS}', sh, first]}}
- {{id: second, needs: first, run: [sh, -c, 'echo "$1" >> second', sh, '{{{{ steps.first.stdout }}}}']}}
"""


@dataclass
class Outage:
    """A flow of two steps, on a store that can be taken away."""

    folder: Path
    watch: Watch
    store: FaultyStore
    base: RunBase
    runner: Runner
    told: list[FlowEvent] = field(default_factory=list)

    def file(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def notes(self) -> list[Path]:
        return list((self.folder / ".allswell" / "attempts").glob("*.json"))

    async def until(self, reached: Callable[[], object]) -> None:
        async with asyncio.timeout(patience.SECONDS):
            while not reached():
                await asyncio.sleep(0.02)

    async def kept(self) -> asyncio.Future[FlowSummary]:
        """Run it; the first step ends while the store is away, and waits to be told."""
        running = asyncio.ensure_future(self.runner.run())
        await self.until((self.folder / "ready").exists)
        self.store.down = True
        (self.folder / "go").touch()
        await self.until(lambda: any(line.event == "store_away" for line in self.told))
        assert len(self.notes()) == 1
        return running


def play(folder: Path, scene: Callable[[Outage], Awaitable[None]]) -> None:
    """Play a scene in the middle of a flow."""

    async def main() -> None:
        store = FaultyStore(store_for(f"sqlite:///{folder}/.allswell/allswell.db"))
        settings = look(folder, environ={})
        flow, _ = load_flow(FLOW, "f.yaml", settings)
        use_limits(allswell_limits(flow, settings.limits().hard_limits, 200))
        async with make_watch(store, pace=Timings(store_patience=0.3, claim_poll=0.1)) as watch:
            beginning = FlowStart(flow, FLOW.encode(), "", folder / ".allswell", folder, given_inputs(flow, {}))
            run, policy = watch.new_run(), settings.policy_for("")
            base = await begin(watch, beginning, run, policy, SystemClock())
            outage = Outage(folder, watch, store, base, Runner(await make_site(watch, base, run), run))
            outage.runner.site.heard = outage.told.append
            await scene(outage)

    (folder / ".allswell").mkdir()
    try:
        asyncio.run(main())
    finally:
        use_limits(None)


@pytest.mark.row("F11", "O10")
def test_a_step_that_ended_in_an_outage_is_told_when_the_store_is_back_and_the_flow_goes_on(tmp_path: Path) -> None:
    async def scene(outage: Outage) -> None:
        running = await outage.kept()
        calls = outage.store.calls
        await outage.until(lambda: outage.store.calls > calls + 1)  # it goes on trying, past its patience
        outage.store.down = False
        async with asyncio.timeout(patience.SECONDS):
            summary = await running
        assert summary.verdict is RunVerdict.DONE
        assert (outage.file("first"), outage.file("second")) == (["made"], ["said"])
        assert outage.notes() == []

    play(tmp_path, scene)


@pytest.mark.row("F11", "O10")
def test_a_runner_that_is_stopped_in_an_outage_leaves_the_result_for_the_one_that_resumes(tmp_path: Path) -> None:
    async def scene(outage: Outage) -> None:
        running = await outage.kept()
        outage.runner.interrupt("a human stopped it")
        with pytest.raises(Unavailable):
            await running
        assert len(outage.notes()) == 1
        outage.store.down = False
        watch, base, said = outage.watch, outage.base, list[str]()
        await settle_dead(watch, base, SystemClock().wall(), {}, said.append)
        assert any("the store knows now how" in text for text in said), said
        standing = await look_at(watch, base)
        assert set(standing.done) == {"first"}
        await free_dead(watch, standing)
        settings = look(tmp_path, environ={})
        flow, _ = load_flow(FLOW, "f.yaml", settings)
        base, run = await go_on(watch, base, flow, FLOW.encode(), settings.policy_for(""))
        summary = await Runner(await make_site(watch, base, run), run).run()
        assert summary.verdict is RunVerdict.DONE
        assert (outage.file("first"), outage.file("second")) == (["made"], ["said"])
        assert outage.notes() == []

    play(tmp_path, scene)
