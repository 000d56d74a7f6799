"""A reader's walk: which modules a command passes through, and how often the reader changes layers on the way.

    python bench/walk.py                the table
    python bench/walk.py submit         the walk of one of them, call by call, on SQLite
    python bench/walk.py --update       the table, put into docs/architecture.md

It is counted from a trace of real calls, on a watch that is warm: everything imported, the rows' lane and policy known.
Only our own functions count, each call of one function to another once, however often it is made: so a figure says how
much there is to read, not how much there is to do, and it is the same in every run. (A supervised attempt takes as long
as it takes: what happens once a second is in it, or is not.) A jump is such a call from a module of one layer to a
module of another; layers are the folders of `src/allswell`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import CodeType, FrameType

import allswell
from allswell.app import make_watch
from allswell.domain.agents.fleet import AgentSpec, Fleet
from allswell.runtime.receipts import StateDir
from allswell.runtime.supervisor import Supervisor, SupervisorPlan
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import SystemClock

ROOT = Path(allswell.__file__).parent
COMMANDS = ("submit", "claim", "complete", "lapse", "attempt")
STORES = ("SQLite", "memory")
LEASE = 60_000
QUIET = 0.05
"""Seconds after which nothing is left to be done of a command that was answered."""
PATIENCE = 30.0
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- begin: python bench/walk.py --update -->", "<!-- end -->"


class Walk:
    """The calls of one function of ours to another, in the order in which they were first made."""

    def __init__(self) -> None:
        self._calls: dict[tuple[CodeType | None, CodeType], None] = {}

    def see(self, frame: FrameType) -> None:
        """Take note of a call, unless what is called is not ours; between two of ours, others may stand."""
        if not _is_ours(frame.f_code):
            return
        caller = frame.f_back
        while caller is not None and not _is_ours(caller.f_code):
            caller = caller.f_back
        self._calls.setdefault((None if caller is None else caller.f_code, frame.f_code))

    @property
    def calls(self) -> list[tuple[CodeType | None, CodeType]]:
        """Every call of one function to another; None has called what our own code did not."""
        return [(caller, called) for caller, called in self._calls if caller is not called]

    @property
    def modules(self) -> list[str]:
        """Every module, in the order in which it is come to."""
        return list(dict.fromkeys(module(called) for _, called in self.calls))

    @property
    def jumps(self) -> list[tuple[CodeType, CodeType]]:
        """The calls from one layer to another."""
        known = [(caller, called) for caller, called in self.calls if caller is not None]
        return [(caller, called) for caller, called in known if layer(caller) != layer(called)]


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{ROOT}/")


def module(code: CodeType) -> str:
    """The module of a function, as seen from `src/allswell`."""
    return str(Path(code.co_filename).relative_to(ROOT))


def layer(code: CodeType) -> str:
    """The layer of a function: the folder below `src/allswell`."""
    return module(code).split("/")[0]


class Tracer:
    """Follows every call in this thread, and in all that are started after it was made, while there is a walk."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, what: str, _: object) -> None:
        walk = self._walk
        if what == "call" and walk is not None:
            walk.see(frame)

    @contextlib.contextmanager
    def walk(self) -> Iterator[Walk]:
        """A walk through what is done in here."""
        self._walk = made = Walk()
        try:
            yield made
        finally:
            self._walk = None

    @contextlib.asynccontextmanager
    async def after_rest(self) -> AsyncIterator[Walk]:
        """The same, once what follows by itself from the command before is over."""
        await asyncio.sleep(QUIET)
        with self.walk() as walk:
            yield walk

    def close(self) -> None:
        """Follow no more."""
        sys.setprofile(None)
        threading.setprofile(None)


class Later(SystemClock):
    """This machine's clocks, moved on by hand."""

    def __init__(self) -> None:
        self.by = 0

    def wall(self) -> int:
        """The wall, moved on."""
        return super().wall() + self.by

    def monotonic(self) -> int:
        """The monotonic clock, moved on as far."""
        return super().monotonic() + self.by

    def boottime(self) -> int:
        """And the boottime."""
        return super().boottime() + self.by


async def walks_on(kind: str, folder: Path, *, attempt: bool = True) -> dict[str, Walk]:
    """Each command's walk on a store of this kind; a supervised attempt takes longest."""
    clock = Later()
    found: dict[str, Walk] = {}
    store: Store = MemoryStore(clock=clock, strict=False)
    if kind == "SQLite":
        store = SqliteStore(folder / "watch.db", clock=clock)
    tracer = Tracer()  # before the store's thread begins
    try:
        async with make_watch(store, clock=clock, sweeping=False) as watch:
            for _ in range(3):  # the third time round it is warm
                async with tracer.after_rest() as found["submit"]:
                    await watch.submit("warm", payload={"file": "notes.md"})
                async with tracer.after_rest() as found["claim"]:
                    lease = await watch.claim(agent="ada")
                assert lease is not None
                async with tracer.after_rest() as found["complete"]:
                    await lease.complete({"pages": 3})
                await watch.submit("lapses", timeout="1h")
                await watch.claim(agent="bob", lease=LEASE)
                clock.by += LEASE + 1
                async with tracer.after_rest() as found["lapse"]:
                    await watch.sweep_once()
                again = await watch.claim(agent="ada")
                assert again is not None
                assert again.attempt == 2, "it has lapsed"
                await again.complete()
            if attempt:
                found["attempt"] = await _attempt(watch, folder, tracer)
    finally:
        tracer.close()
    return found


async def _attempt(watch: allswell.Watch, folder: Path, tracer: Tracer) -> Walk:
    """One task done by a supervisor's agent, from the claim to its end."""
    home, ended = StateDir(folder / ".allswell"), asyncio.Event()
    home.make()
    agent = AgentSpec(name="agent", command=("true",), cwd=str(folder))

    def tell(line: str) -> None:
        if "done" in line:
            ended.set()

    supervisor = Supervisor(watch, SupervisorPlan(Fleet({"agent": agent}), home, tell=tell))
    running = asyncio.ensure_future(supervisor.run())
    walks: list[Walk] = []
    for _ in range(2):
        ended.clear()
        async with tracer.after_rest() as walk:
            walks.append(walk)
            await watch.submit("attempt")
            async with asyncio.timeout(PATIENCE):
                await ended.wait()
    supervisor.stop()
    await running
    return walks[-1]  # the second time it is warm


def walk_of_all() -> dict[str, dict[str, Walk]]:
    """For each store, each command's walk."""
    found = {}
    for kind in STORES:
        with tempfile.TemporaryDirectory(prefix="allswell-walk-") as folder:
            found[kind] = asyncio.run(walks_on(kind, Path(folder)))
    return found


def table(found: dict[str, dict[str, Walk]]) -> str:
    """The table, as Markdown."""
    lines = [
        "| | " + " | ".join(f"{kind}: modules | jumps | calls" for kind in STORES) + " |",
        "|---|" + "---:|" * 3 * len(STORES),
    ]
    for command in COMMANDS:
        figures = [found[kind][command] for kind in STORES]
        cells = [f"{len(walk.modules)} | {len(walk.jumps)} | {len(walk.calls)}" for walk in figures]
        lines.append(f"| {command} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def told(walk: Walk) -> str:
    """A walk, call by call; a jump is marked."""
    lines = []
    for caller, called in walk.calls:
        mark = "->" if (caller, called) in walk.jumps else "  "
        origin = "(outside)" if caller is None else f"{module(caller)} {caller.co_qualname}"
        lines.append(f"{mark} {origin}  >  {module(called)} {called.co_qualname}")
    return "\n".join([*lines, "", *walk.modules])


def main() -> None:
    """Print the table, or one walk."""
    parser = argparse.ArgumentParser(description="A reader's walk through a command.")
    parser.add_argument("command", nargs="?", choices=COMMANDS, help="show this walk, call by call")
    parser.add_argument("--store", choices=STORES, default="SQLite")
    parser.add_argument("--update", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    found = walk_of_all()
    if asked.update:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.partition(END)[2]}")
    print(told(found[asked.store][asked.command]) if asked.command else table(found))


if __name__ == "__main__":
    main()
