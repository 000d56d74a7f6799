"""What a guard costs when nothing goes wrong: a guarded call of a coroutine that answers at once, beside its peers.

    python bench/guards.py            # a few seconds
    python bench/guards.py --full     # more rounds

The guard has a scope, retries and a breaker, in memory. Beside it: stamina + pybreaker + asyncio.timeout together, as
one would put them together to have about the same, and each peer by itself. All run in one process, in interleaved
rounds; what is compared is the median of the rounds, less the bare call.

The peers are installed into an environment of this script's own, in the user's cache folder, never into the project's.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path

PEERS = ("stamina", "pybreaker", "tenacity", "purgatory", "hyx", "aiobreaker", "anyio")
ROOT = Path(__file__).parents[1]
AIM = 1 / 3

Call = Callable[[], Awaitable[object]]


async def answer() -> int:
    """What is called."""
    return 1


# --- the contenders ---------------------------------------------------------------------------------------------------


def ours() -> dict[str, Call]:
    """Guards, in the spellings that a call can have."""
    import allswell

    guard = allswell.guard("bench")

    async def block() -> object:
        async with guard:
            return await answer()

    async def loop() -> object:
        async for attempt in guard:
            async with attempt:
                return await answer()
        return None

    return {
        "allswell: await guard.call(f)": lambda: guard.call(answer),
        "allswell: @guard": guard(answer),
        "allswell: async with guard": block,
        "allswell: async for attempt in guard": loop,
    }


def together() -> dict[str, Call]:
    """What one would put together."""
    import pybreaker
    import stamina

    breaker = pybreaker.CircuitBreaker(fail_max=3, reset_timeout=30)

    @stamina.retry(on=Exception, attempts=4)
    async def call() -> object:
        with breaker.calling():
            async with asyncio.timeout(120):
                return await answer()

    return {"stamina + pybreaker + asyncio.timeout": call}


def of_stamina() -> dict[str, Call]:
    """Retries alone."""
    import stamina

    return {"stamina": stamina.retry(on=Exception, attempts=4)(answer)}


def of_tenacity() -> dict[str, Call]:
    """Retries alone."""
    import tenacity

    return {"tenacity": tenacity.retry(stop=tenacity.stop_after_attempt(4))(answer)}


def of_pybreaker() -> dict[str, Call]:
    """A breaker alone."""
    import pybreaker

    breaker = pybreaker.CircuitBreaker(fail_max=3, reset_timeout=30)

    async def call() -> object:
        with breaker.calling():
            return await answer()

    return {"pybreaker": call}


def of_aiobreaker() -> dict[str, Call]:
    """A breaker alone."""
    import aiobreaker

    return {"aiobreaker": aiobreaker.CircuitBreaker(fail_max=3)(answer)}


def of_purgatory() -> dict[str, Call]:
    """A breaker alone."""
    from purgatory import AsyncCircuitBreakerFactory

    breakers = AsyncCircuitBreakerFactory(default_threshold=3, default_ttl=30)
    return {"purgatory": breakers("bench")(answer)}


def of_hyx() -> dict[str, Call]:
    """Retries, a breaker and a timeout of one family."""
    from hyx.circuitbreaker import consecutive_breaker
    from hyx.retry import retry
    from hyx.timeout import timeout

    inner = consecutive_breaker(failure_threshold=3, recovery_time_secs=30)(timeout(max_delay_secs=120)(answer))
    return {"hyx: retry + breaker + timeout": retry(on=Exception, attempts=3)(inner)}


def of_timeouts() -> dict[str, Call]:
    """Deadlines alone."""
    import anyio

    from allswell.timing.scopes import within

    async def scope() -> object:
        async with within(120_000):
            return await answer()

    async def stdlib() -> object:
        async with asyncio.timeout(120):
            return await answer()

    async def of_anyio() -> object:
        with anyio.fail_after(120):
            return await answer()

    return {"a bare scope of ours": scope, "asyncio.timeout": stdlib, "anyio.fail_after": of_anyio}


CONTENDERS = (
    ours,
    together,
    of_stamina,
    of_tenacity,
    of_pybreaker,
    of_aiobreaker,
    of_purgatory,
    of_hyx,
    of_timeouts,
)


# --- measuring --------------------------------------------------------------------------------------------------------


async def measure(calls: dict[str, Call], rounds: int, count: int) -> dict[str, float]:
    """Microseconds per call of each, the median of interleaved rounds."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            gc.collect()
            gc.disable()
            began = time.perf_counter_ns()
            for _ in range(count):
                await call()
            taken[name].append((time.perf_counter_ns() - began) / count / 1_000)
            gc.enable()
    return {name: statistics.median(times) for name, times in taken.items()}


async def main(rounds: int, count: int) -> dict[str, float]:
    """Measure all that can be had, and print it."""
    calls: dict[str, Call] = {"the bare call": answer}
    for make in CONTENDERS:
        try:
            made = make()
            for call in made.values():
                await call()
        except Exception as error:  # noqa: BLE001 - a peer that does not work here is left out, and named
            print(f"  left out: {make.__name__} ({type(error).__name__}: {error})")
        else:
            calls |= made
    figures = await measure(calls, rounds, count)
    bare = figures["the bare call"]
    for name, taken in figures.items():
        print(f"  {name:<45} {taken:8.2f} µs {taken - bare:+8.2f}")
    peers = figures.get("stamina + pybreaker + asyncio.timeout")
    if peers is not None:
        share = (figures["allswell: await guard.call(f)"] - bare) / (peers - bare)
        print(f"  a guarded call costs {share:.2f} of stamina + pybreaker + asyncio.timeout (aim: at most {AIM:.2f})")
        figures["share"] = share
    return figures


def environment() -> Path:
    """The python of an environment with the peers, made when it is first asked for."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "allswell-bench" / f"guards-{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin" / "python"
    stamp = place / "peers.json"
    if not stamp.exists() or json.loads(stamp.read_text()) != list(PEERS):
        print(f"installing {', '.join(PEERS)} into {place}")
        venv.create(place, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        for peer in PEERS:  # one by one: one that cannot be had does not keep us from the others
            subprocess.run([*pip, peer], check=False)
        subprocess.run([*pip, "msgspec"], check=True)
        stamp.write_text(json.dumps(PEERS))
    return python


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--here", action="store_true", help="in this environment, with the peers that it has")
    chosen = parser.parse_args()
    if not chosen.here:
        path = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        sys.exit(subprocess.run([environment(), __file__, "--here", *sys.argv[1:]], env=path, check=False).returncode)
    found = asyncio.run(main(*((31, 20_000) if chosen.full else (11, 5_000))))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
