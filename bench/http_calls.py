"""What a call over HTTP costs: one caller, one call after another on a kept connection, and the same calls elsewhere.

    python bench/http_calls.py [--rounds 7] [--calls 300]

Claims and completions on SQLite, three ways in turns: on the store in this process, by `allswell serve` in another one,
and by a bare handler of Starlette's in another one that makes the same calls on a watch (no key, no limits, no rules of
access, no shapes). The figure is the median of the ratios of each round: ours is at least 0.4 of the store, or at least
0.8 of the bare handler.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from allswell.app import make_watch, store_for
from allswell.engine.access.keys import Keyring

ROLE = "bench"
BARE = Path(__file__).parent / "http_bare.py"


async def prepare(url: str, tasks: int) -> str:
    """Tasks to claim, and an agent's key."""
    async with make_watch(store_for(url)) as watch:
        await watch.submit_many([{"name": f"n{number}", "role": ROLE} for number in range(tasks)])
        return (await Keyring(watch).create("bench", ["agent"], roles=[ROLE]))[1]


async def on_the_store(url: str, calls: int) -> float:
    """Claims and completions a second, in one process."""
    async with make_watch(store_for(url), sweeping=False) as watch:
        began = time.perf_counter()
        for number in range(calls):
            lease = await watch.claim(agent="bench", roles=[ROLE], command=f"s{began}.{number}")
            assert lease is not None
            await lease.complete({"n": number})
        return calls / (time.perf_counter() - began)


class Caller:
    """One kept connection."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def call(self, path: str, body: object, id_: str) -> dict[str, object]:
        """One call."""
        self._connection.request("POST", path, json.dumps(body), {**self._headers, "Idempotency-Key": id_})
        answer = self._connection.getresponse()
        read = answer.read()
        assert answer.status == 200, (answer.status, read)
        told: dict[str, object] = json.loads(read)
        return told

    def ours(self, calls: int) -> float:
        """By our own routes."""
        began = time.perf_counter()
        for number in range(calls):
            id_ = f"{began}.{number}"[:60]
            (claim,) = self.call("/api/v1/claims", {"roles": [ROLE]}, f"c{id_}")["claims"]  # type: ignore[misc]
            task, token = claim["task"]["task_id"], claim["token"]
            about = {"result": {"n": number}, "agent_id": "bench"}
            self.call(f"/api/v1/tasks/{task}/leases/{token}/done", about, f"d{id_}")
        return calls / (time.perf_counter() - began)

    def bare(self, calls: int) -> float:
        """By the bare handler."""
        began = time.perf_counter()
        for number in range(calls):
            id_ = f"{began}.{number}"[:60]
            claim = self.call("/claim", {"roles": [ROLE]}, f"c{id_}")
            self.call("/done", {"task": claim["task"], "token": claim["token"], "result": {"n": number}}, f"d{id_}")
        return calls / (time.perf_counter() - began)


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; its address, which is the first thing it says, and its process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().removeprefix("serving ").partition(";")[0].strip(), process.pid
        finally:
            process.terminate()


def used(process: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, and say whether it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=300)
    given = parser.parse_args()
    tasks = (given.rounds + 1) * given.calls + 10
    with tempfile.TemporaryDirectory() as folder:
        urls = {way: f"sqlite:///{folder}/{way}/.allswell/allswell.db" for way in ("store", "ours", "bare")}
        keys = {way: asyncio.run(prepare(url, tasks)) for way, url in urls.items()}
        ours = ["-m", "allswell", "serve", "--listen", "127.0.0.1:0", "--store", urls["ours"]]
        with serving(ours) as (here, one), serving([str(BARE), urls["bare"]]) as (there, two):
            caller, other = Caller(here, keys["ours"]), Caller(there, keys["bare"])
            ways: dict[str, Callable[[int], float]] = {
                "store": lambda calls: asyncio.run(on_the_store(urls["store"], calls)),
                "ours": caller.ours,
                "bare": other.bare,
            }
            for way in ways.values():
                way(given.calls)  # warm
            before = used(one), used(two)
            rounds = [{name: way(given.calls) for name, way in ways.items()} for _ in range(given.rounds)]
            pairs = given.rounds * given.calls
            busy = [(after - then) / pairs * 1e6 for after, then in zip((used(one), used(two)), before, strict=True)]
    for name in urls:
        print(f"{name:6} {statistics.median(one[name] for one in rounds):8.0f} claims and completions a second")
    of_store = statistics.median(one["ours"] / one["store"] for one in rounds)
    of_bare = statistics.median(one["ours"] / one["bare"] for one in rounds)
    print(f"of the store: {of_store:.2f} (at least 0.40), of a bare handler: {of_bare:.2f} (at least 0.80)")
    print(f"processor of the server for each pair: ours {busy[0]:.0f} µs, the bare handler's {busy[1]:.0f} µs")
    if of_store < 0.4 and of_bare < 0.8:
        sys.exit(1)


if __name__ == "__main__":
    main()
