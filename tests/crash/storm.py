"""Ten minutes of bad weather over real processes, a real server and real disks; then everything must add up.

    python -m tests.crash.storm --minutes 10 --store both

Three processes with four agents each submit, hold, check in and end tasks, and write down every word (see
`tests.support.history`). Meanwhile one misfortune after another strikes, each of them at least once in every round.
In the end the weather clears, everything left is worked off, and the checker holds what everybody was told against what
the store says. The exit code is 0 if there is no anomaly and work always went on in time, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

import allswell
from allswell.app import make_watch
from tests.crash.crew import store_of
from tests.crash.fleet import Worker, recovery
from tests.crash.misfortunes import Misfortune, Sky, postgres_sky, sqlite_sky
from tests.crash.stormclock import StormClock
from tests.support.history import Fate, Found, Op, Scribe, Witness, Wrong, check, inspect, read

GO_ON = 5.0
"""Seconds within which work must go on after the server or the disk is back."""
PATIENCE = 60.0
DRAINERS = 8
ENDED = {"done", "failed", "cancelled", "skipped", "split"}


class Verdict(msgspec.Struct):
    """What a storm came to."""

    store: str
    seconds: float
    seed: int
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    asked: Counter[str] = msgspec.field(default_factory=Counter)
    recoveries: list[float] = msgspec.field(default_factory=list)
    """Seconds from the return of the server or the disk to the first acknowledgement, for each process each time."""
    troubles: list[str] = msgspec.field(default_factory=list)
    """Anomalies, processes that died or hung, and returns after which work did not go on in time."""
    anomalies: Counter[str] = msgspec.field(default_factory=Counter)

    def told(self) -> str:
        """The figures, for people."""
        slowest = max(self.recoveries, default=0.0)
        ordered = sorted(self.recoveries)
        middle = ordered[len(ordered) // 2] if ordered else 0.0
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        asked = ", ".join(f"{name} {count:,}" for name, count in sorted(self.asked.items()))
        counts = ", ".join(f"{wrong.name.lower()} {self.anomalies[wrong]}" for wrong in Wrong)
        lines = [
            f"{self.store}: {self.seconds:.0f} s of storm, seed {self.seed}",
            f"  faults    {faults}",
            f"  asked     {asked}",
            f"  anomalies {counts}",
            f"  went on   {len(ordered)} times, p50 {middle:.2f} s, at most {slowest:.2f} s after the return",
            *(f"  !! {trouble}" for trouble in self.troubles),
        ]
        return "\n".join(lines)


def storm(store: str, seconds: float, seed: int, folder: Path) -> Verdict:
    """One storm over one kind of store."""
    chance = random.Random(seed)
    verdict = Verdict(store, seconds, seed)
    with ExitStack() as stack:
        make = postgres_sky if store == "postgres" else sqlite_sky
        sky = stack.enter_context(make(folder, chance))
        scribe = Scribe(folder / "storm.jsonl", "storm")
        stack.callback(scribe.close)
        stack.enter_context(_ended(sky.workers))
        moment = time.monotonic_ns()
        _went_on("the beginning", sky.workers, moment, PATIENCE, verdict)
        verdict.recoveries.clear()
        _rage(sky, chance, scribe, time.monotonic() + seconds, verdict)
        for worker in sky.workers:
            verdict.troubles += filter(None, [worker.crashed() or worker.finish(PATIENCE)])
        found = asyncio.run(_settle(sky, folder))
    ops = read(folder.glob("*.jsonl"))
    anomalies = check(ops, found)
    verdict.asked = Counter(_word(op) for op in ops if op.process != "storm")
    verdict.anomalies = Counter(anomaly.wrong for anomaly in anomalies)
    verdict.troubles += [str(anomaly) for anomaly in anomalies[:50]]
    return verdict


@contextmanager
def _ended(workers: list[Worker]) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.communicate()


def _rage(sky: Sky, chance: random.Random, scribe: Scribe, until: float, verdict: Verdict) -> None:
    """One misfortune after another: each round all of them, in an order of its own."""
    deck: list[Misfortune] = []
    while time.monotonic() < until:
        if not deck:
            deck = list(sky.misfortunes)
            chance.shuffle(deck)
        misfortune = deck.pop()
        name = misfortune.__name__
        scribe.note("fault", name=name)
        at_work = [worker for worker in sky.workers if worker.at_work]
        returned = misfortune(sky, chance, scribe)
        verdict.faults[name] += 1
        if returned is not None:
            _went_on(name, at_work, returned, GO_ON, verdict)
        for worker in sky.workers:
            if (said := worker.crashed()) is not None:
                verdict.troubles.append(said)
                worker.kill()
        time.sleep(chance.uniform(0.2, 1.0))


def _went_on(name: str, workers: list[Worker], moment: int, patience: float, verdict: Verdict) -> None:
    """Whoever was at work before must be at work again in time; a process that was only starting is not judged."""
    for worker, took in recovery(workers, moment, max(patience, PATIENCE / 2)).items():
        if took is None or took > patience:
            text = "not at all" if took is None else f"after {took:.1f} s"
            verdict.troubles.append(f"{worker} went on {text} after {name}, not within {patience:g} s")
        if took is not None:
            verdict.recoveries.append(took)


async def _settle(sky: Sky, folder: Path) -> Found:
    """Work off what is left, then read all there is."""
    clock = StormClock(sky.clock)
    scribe = Scribe(folder / "drain.jsonl", "drain")
    async with make_watch(store_of(sky.url, clock), clock=clock) as watch:
        witness = Witness(watch, scribe)
        async with asyncio.timeout(PATIENCE * 3):
            await asyncio.gather(*(_drain(witness, f"drain.{number}") for number in range(DRAINERS)))
        found = await inspect(watch)
    scribe.close()
    return found


async def _drain(witness: Witness, agent: str) -> None:
    while (await witness.watch.counts()).keys() - ENDED:
        for question in await witness.watch.questions():
            try:
                await witness.watch.answer(question.id, "skip")
            except allswell.Refused:
                continue  # another of us was quicker
        held = await witness.claim(agent, wait="200ms")
        if held is not None:
            await held.complete({"by": agent, "token": held.lease.token})


def _word(op: Op) -> str:
    if op.fate is not Fate.DONE:
        return f"{op.verb} {op.fate}"
    return "claim in vain" if op.verb == "claim" and op.token is None else op.verb


def run(stores: list[str], seconds: float, seed: int, keep: Path | None, say: Callable[[str], object]) -> int:
    """Storm after storm; the exit code."""
    failed = False
    for store in stores:
        with tempfile.TemporaryDirectory(prefix="allswell-storm-") as name:
            verdict = storm(store, seconds, seed, Path(name))
            say(verdict.told())
            if verdict.troubles and keep is not None:
                shutil.copytree(name, keep / store, dirs_exist_ok=True, ignore=shutil.ignore_patterns("disk"))
            failed = failed or bool(verdict.troubles)
    return 1 if failed else 0


def main() -> int:
    """Read the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0, help="of bad weather, for each store")
    options.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--keep", type=Path, help="where the histories go if something is wrong")
    chosen = options.parse_args()
    stores = ["sqlite", "postgres"] if chosen.store == "both" else [chosen.store]
    return run(stores, chosen.minutes * 60, chosen.seed, chosen.keep, lambda text: print(text, flush=True))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
