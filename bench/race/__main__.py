"""`make race`: Allswell and its peers, the same no-op tasks on the same server, in one interleaved run.

    make race                             everything, at most 40 minutes
    make race ARGS="--quick"              smaller sizes, about 5 minutes
    make race ARGS="--only allswell,pgq"  some contestants
    make race ARGS="--parts steps,agents" some parts: race, pickup, beats, growth, steps, agents

Each contestant is a small adapter (`contestants/`) in an environment of its own from PyPI, at its own best documented
settings (`entries.py`). Rounds are interleaved and their order rotates; figures are medians. The table, the JSON and
the plots go to `bench/results/`, with versions and conditions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
from conditions import RESULTS, conditions, keep, told

from allswell.testing.postgres import Cluster
from race import measures, venvs
from race.entries import ENTRIES, POSTGRES, REDIS, Entry
from race.plots import bars, lines
from race.racer import Broken, interpreter
from race.redis_server import RedisServer, find_server
from race.standings import Standing, ratios, table

PARTS = ("race", "pickup", "beats", "growth", "steps", "agents")
BENCH = Path(__file__).parents[1]
"""Where the benches are that two of the parts begin as they are: durable steps beside DBOS, and a fleet of agents."""


class Size(msgspec.Struct, frozen=True):
    """How much of everything."""

    rounds: int
    scale: float
    pickup_rounds: int
    samples: int
    """Tasks to be picked up in a round, within so many `seconds`."""
    seconds: float
    finished: tuple[int, ...]
    growth_rounds: int
    agents_seconds: int


FULL = Size(
    rounds=5,
    scale=1.0,
    pickup_rounds=5,
    samples=50,
    seconds=8.0,
    finished=(0, 100_000, 1_000_000),
    growth_rounds=3,
    agents_seconds=120,
)
QUICK = Size(
    rounds=2,
    scale=0.2,
    pickup_rounds=2,
    samples=15,
    seconds=4.0,
    finished=(0, 50_000),
    growth_rounds=1,
    agents_seconds=20,
)


class Course:
    """The servers, and a fresh place on them for every turn."""

    def __init__(self, stack: ExitStack, where: Path) -> None:
        self._stack = stack
        self.cluster = stack.enter_context(Cluster())
        self.redis = find_server(where)
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="allswell-race-")))
        self._numbers = itertools.count(1)

    def at(self, entry: Entry, do: Callable[[str], object]) -> object:
        """Do something at a fresh place, which is gone afterwards."""
        if entry.on == REDIS:
            assert self.redis is not None
            with RedisServer(self.redis) as server:
                return do(str(server.socket))
        if entry.on == POSTGRES:
            url = self.cluster.create_database()
            try:
                return do(url)
            finally:
                self.cluster.drop_database(url)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            return do(f"sqlite:///{folder}/race.db")

    def version(self) -> str:
        """The server's version."""
        with psycopg.connect(self.cluster.admin_url()) as admin:
            return str(admin.info.server_version // 10_000) + "." + str(admin.info.server_version % 10_000)


class Race:
    """One run: who takes part, and what was found so far."""

    def __init__(self, course: Course, pythons: dict[str, Path], standings: list[Standing], size: Size) -> None:
        self._course = course
        self._pythons = pythons
        self.standings = standings
        self._size = size
        self._began = time.monotonic()

    def _turn(self, standing: Standing, what: str, do: Callable[[Entry, Path, str], str]) -> None:
        entry = standing.entry
        try:
            said = self._course.at(entry, lambda place: do(entry, self._pythons[entry.script], place))
        except Broken as error:
            standing.broken = str(error)
            said = "broke off: " + str(error).strip().splitlines()[-1]
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"  {minutes:2d}:{seconds:02d}  {what:<10} {standing.title:<30} {said}", flush=True)

    def run(self, parts: tuple[str, ...]) -> None:
        """All rounds of all parts."""
        if "race" in parts:
            for number, standing in self._rounds(self._size.rounds):
                self._turn(standing, f"round {number}", lambda *at, s=standing: self._race(s, *at))
        if "pickup" in parts:
            for number, standing in self._rounds(self._size.pickup_rounds):
                if standing.entry.pickup:
                    self._turn(standing, f"pick-up {number}", lambda *at, s=standing: self._pick_up(s, *at))
        for standing in self.standings:
            if "beats" in parts and standing.entry.beats:
                self._turn(standing, "heartbeat", lambda *at, s=standing: self._beat(s, *at))
        for standing in self.standings:
            if "growth" in parts and standing.entry.growth:
                self._turn(standing, "growth", lambda *at, s=standing: self._growth(s, *at))

    def _rounds(self, count: int) -> Iterator[tuple[int, Standing]]:
        """Everybody's turn in each round, another one first every time: a bad minute of the machine hits all."""
        for number in range(count):
            first = number % len(self.standings)
            for standing in self.standings[first:] + self.standings[:first]:
                yield number + 1, standing

    def _race(self, standing: Standing, entry: Entry, python: Path, place: str) -> str:
        tasks = max(200, int(entry.tasks * self._size.scale))
        enqueue, drain = measures.race(entry, python, place, tasks)
        standing.tasks = tasks
        standing.enqueue.append(enqueue)
        standing.drain.append(drain)
        return f"enqueue {enqueue:>9,.0f}/s   drain {drain:>9,.0f}/s   ({tasks:,} tasks)"

    def _pick_up(self, standing: Standing, entry: Entry, python: Path, place: str) -> str:
        found = measures.pick_up(entry, python, place, samples=self._size.samples, seconds=self._size.seconds)
        standing.pickup.append(found)
        return f"p50 {standing.p50:.1f} ms   p99 {standing.p99:.1f} ms   ({len(standing.pickup)} rounds so far)"

    def _beat(self, standing: Standing, entry: Entry, python: Path, place: str) -> str:
        standing.beat_us, standing.beat_wal = measures.heartbeat(entry, python, place, self._course.cluster)
        return f"{standing.beat_us:.0f} µs, {standing.beat_wal:.0f} bytes of WAL"

    def _growth(self, standing: Standing, entry: Entry, python: Path, place: str) -> str:
        steps = list(self._size.finished)
        standing.growth = measures.growth(entry, python, place, steps, self._size.growth_rounds)
        return ", ".join(f"{step:,}: {took * 1000:.0f} ms" for step, took in standing.growth.items())


def who(only: str | None, where: Path, *, redis: bool) -> tuple[list[Standing], dict[str, Path], list[str]]:
    """Who can take part, with what; and why some cannot."""
    starts = tuple((only or "").lower().split(","))
    standings, pythons, absent = [], {}, []
    for entry in ENTRIES:
        if not entry.name.lower().startswith(starts):
            continue
        python = None if entry.on == REDIS and not redis else interpreter(entry, where)
        if python is None:
            absent.append(f"{entry.name}: " + ("no Redis server" if entry.on == REDIS else "it cannot be installed"))
            continue
        pythons[entry.script] = python
        standings.append(Standing(entry))
    return standings, pythons, absent


def agents_share(agents: int, seconds: int) -> str:
    """The share of a core that a supervisor needs for so many agents, one in five of which misbehaves."""
    command = [
        sys.executable,
        "-m",
        "tests.runtime.supervisor.soak",
        "--agents",
        str(agents),
        "--seconds",
        str(seconds),
    ]
    done = subprocess.run(command, cwd=BENCH.parent, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return f"{agents} agents: broke off\n{done.stderr}"
    wrong = ", ".join(f"{found[what]} {what}" for what in ("lost", "duplicated", "orphans", "unfinished"))
    return f"{agents} agents: {found['cpu_share']:.1%} of a core, {found['memory_mb']:.0f} MB; {wrong}"


def plot(name: str, standings: list[Standing], finished: tuple[int, ...]) -> None:
    """The pictures: draining on each store, pick-up, growth."""
    for on in sorted({standing.entry.on for standing in standings}):
        raced = [standing for standing in standings if standing.drain and standing.entry.on == on]
        found = [(one.entry.name, statistics.median(one.drain), one.entry.ours) for one in raced]
        if found:
            bars(RESULTS / f"{name}-drain-{on.lower()}.svg", f"Tasks drained per second, {on}", found, "/s")
    waited = [(one.title, one.p50, one.entry.ours) for one in standings if one.pickup]
    if waited:
        bars(RESULTS / f"{name}-pickup.svg", "Idle pick-up in another process, median", waited, " ms")
    grown = [(one.title, list(one.growth.values()), one.entry.ours) for one in standings if one.growth]
    if grown:
        title = "Time to drain 1,000 tasks, beside so many finished ones (s)"
        lines(RESULTS / f"{name}-growth.svg", title, [f"{step:,}" for step in finished], grown)


def main() -> None:
    """Race, print, keep."""
    options = argparse.ArgumentParser(
        prog="race", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--quick", action="store_true", help="smaller sizes, about 5 minutes")
    options.add_argument("--only", help="some contestants, by the beginnings of their names")
    options.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    options.add_argument("--rounds", type=int, help="so many rounds of enqueue and drain")
    options.add_argument("--finished", type=int, help="so many finished tasks at the most (1,000,000)")
    options.add_argument("--venvs", type=Path, default=venvs.WHERE, help="where the environments are kept")
    chosen = options.parse_args()
    parts = tuple(chosen.parts.split(","))
    if unknown := set(parts) - set(PARTS):
        sys.exit(f"--parts knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    size = QUICK if chosen.quick else FULL
    if chosen.rounds:
        size = msgspec.structs.replace(size, rounds=chosen.rounds)
    if chosen.finished:
        steps = sorted({step for step in (*size.finished, chosen.finished) if step <= chosen.finished})
        size = msgspec.structs.replace(size, finished=tuple(steps))
    with ExitStack() as stack:
        course = Course(stack, chosen.venvs)
        standings, pythons, absent = who(chosen.only, chosen.venvs, redis=course.redis is not None)
        environments = {one.entry.environment for one in standings if one.entry.environment is not None}
        versions = {name: number for one in environments for name, number in one.versions(chosen.venvs).items()}
        under = {
            **conditions(),
            "postgresql": f"{course.version()}, fsync on, synchronous_commit on, shared_buffers 64MB",
            "redis": "as it comes: no fsync",
            "rounds": size.rounds,
        }
        print(told(under), flush=True)
        print(told(dict(sorted(versions.items()))), flush=True)
        run = Race(course, pythons, standings, size)
        run.run(parts)
    found = ratios(standings)
    lines_told = [
        table(standings),
        *[f"  did not start: {line}" for line in absent],
        *[f"\n{standing.broken}" for standing in standings if standing.broken],
        "",
        *[f"  {what:<88} {value}" for what, value in found.items()],
    ]
    text = "\n".join(lines_told)
    print(f"\n{text}")
    name = "race-quick" if chosen.quick else "race"
    rows = [standing.as_row() for standing in standings]
    content = {"conditions": under, "versions": versions, "standings": rows, "ratios": found, "absent": absent}
    if "steps" in parts:
        quick = ["--quick"] if chosen.quick else []
        subprocess.run([sys.executable, BENCH / "steps.py", "--venvs", chosen.venvs, *quick], check=False)
    if "agents" in parts:
        print(agents_share(200, size.agents_seconds), flush=True)
    if chosen.only is None and parts == PARTS:
        print(keep(name, content))
        heading = f"{told(under)}\n{told(dict(sorted(versions.items())))}"
        (RESULTS / f"{name}.txt").write_text(f"{heading}\n\n{text}\n")
        plot(name, standings, size.finished)
    if any(standing.broken for standing in standings):
        sys.exit(1)


if __name__ == "__main__":
    main()
