"""How fast a large flow is loaded and run: a matrix of 10,000 members, each a function that does nothing.

    .venv/bin/python bench/flows.py [--members 10000] [--jobs 64]

Every step leaves its receipt, written and flushed, before the store is told; the store is SQLite with FULL. For
comparison: how often this disk replaces and flushes such a file, in as many threads, alone.

Between two runs let a minute pass: an ext4 without a journal does not give out again what was deleted in the last
minute, and looks at all of it for every new file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from allswell.app import make_watch, store_for
from allswell.flows.run.runner import FlowStart, Runner, RunVerdict, begin, make_site
from allswell.flows.schema import load_flow
from allswell.runtime.workspace.files import Files
from allswell.settings import look
from allswell.timing.clock import SystemClock


def text(members: int) -> str:
    """A flow of so many members, in two axes."""
    side = ", ".join(map(str, range(100)))
    other = ", ".join(map(str, range(-(-members // 100))))
    return f"steps:\n- {{id: s, python: 'nothing:at_all', matrix: {{a: [{side}], b: [{other}]}}}}\n"


async def main(members: int, jobs: int, folder: Path) -> None:
    """Load, submit and run it."""
    (folder / "nothing.py").write_text("def at_all(): pass\n")
    settings = look(folder, environ={})
    began = time.perf_counter()
    flow, _ = load_flow(text(members), "flow.yaml", settings)
    count = sum(1 for step in flow.steps for _ in step.members())
    loaded = time.perf_counter() - began
    home = folder / ".allswell"
    async with make_watch(store_for(f"sqlite:///{home}/allswell.db")) as watch:
        run = watch.new_run()
        beginning = FlowStart(flow, text(members).encode(), "", home, folder, {})
        base = await begin(watch, beginning, run, settings.policy_for(""), SystemClock())
        runner = Runner(await make_site(watch, base, run), run, jobs=jobs)
        began = time.perf_counter()
        summary = await runner.run()
        took = time.perf_counter() - began
    assert summary.verdict is RunVerdict.DONE
    assert len(list(base.receipts.iterdir())) == count
    print(
        f"{count:,} steps loaded in {loaded:.2f} s, run in {took:.1f} s: {count / took:,.0f} steps/s ({jobs} at once)"
    )
    files, path = Files(), base.flow / "raw"
    path.mkdir()
    began = time.perf_counter()
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: files.replace(path / f"{number}.json", b"x" * 900), range(2_000)))
    print(f"the disk alone: {2_000 / (time.perf_counter() - began):,.0f} files/s replaced and flushed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=64)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        asyncio.run(main(chosen.members, chosen.jobs, Path(place)))
