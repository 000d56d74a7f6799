"""What can go wrong in a storm. Each misfortune strikes, lasts a while and is over when it returns.

It returns the moment (monotonic, ns) at which the server or the disk was back, where it was away: from then on work
must go on. Where only one process was hit (stopped, cut off, killed) there is no such moment: the others never stopped.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg

from allswell.testing.postgres import Cluster
from allswell.testing.proxy import Proxy, Way
from tests.crash.disk import SmallDisk
from tests.crash.fleet import Worker, some
from tests.support.history import Scribe

WORKERS = 3


class Sky(msgspec.Struct):
    """What a storm rages over."""

    url: str
    clock: Path
    """Of whoever looks at the store from outside the storm."""
    workers: list[Worker]
    misfortunes: tuple[Misfortune, ...]
    cluster: Cluster | None = None
    disk: SmallDisk | None = None


Misfortune = Callable[[Sky, random.Random, Scribe], int | None]


# --- of processes -----------------------------------------------------------------------------------------------------


def worker_killed(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """SIGKILL; a new process takes its place."""
    for worker in some(chance, sky.workers):
        worker.kill()


def worker_stopped(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """SIGSTOP for longer than a lease: when it goes on, it believes in leases that others have."""
    worker = chance.choice(sky.workers)
    worker.stop()
    time.sleep(chance.uniform(2.5, 4.0))
    worker.resume()


def clock_jumped(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """A wall clock is set: one client's before a server, everybody's where the machine's clock is the store's."""
    by = chance.choice((-7_000, 8_000, 60_000))
    scribe.note("clock_jump", by_ms=by)
    chance.choice(sky.workers).clock.jump(by)


# --- of the server ----------------------------------------------------------------------------------------------------


def server_restarted(sky: Sky, chance: random.Random, scribe: Scribe) -> int:
    """Stopped as an operator does, and started after a while."""
    return _away(sky, chance, lambda cluster: cluster.stop(chance.choice(("fast", "immediate"))))


def server_killed(sky: Sky, chance: random.Random, scribe: Scribe) -> int:
    """SIGKILL of every process of the server; it recovers from its log."""
    return _away(sky, chance, Cluster.kill)


def _away(sky: Sky, chance: random.Random, end: Callable[[Cluster], None]) -> int:
    assert sky.cluster is not None
    end(sky.cluster)
    time.sleep(chance.uniform(0, 3))
    sky.cluster.start()
    return time.monotonic_ns()


def backends_terminated(sky: Sky, chance: random.Random, scribe: Scribe) -> int:
    """pg_terminate_backend for some of our sessions, or all."""
    assert sky.cluster is not None
    share = chance.choice((0.3, 1.0))
    with psycopg.connect(sky.cluster.admin_url(), autocommit=True) as admin:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND random() < %s"
        admin.execute(query, (Cluster.role, share))
    return time.monotonic_ns()


# --- of the network ---------------------------------------------------------------------------------------------------


def network_slow(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """Everything takes longer, each way."""
    hit = _proxies(sky, chance)
    for proxy in hit:
        proxy.delay = chance.uniform(0.01, 0.15)
    time.sleep(chance.uniform(1, 2))
    for proxy in hit:
        proxy.delay = 0.0


def cut_to_server(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """The server no longer hears us."""
    _cut(sky, chance, "to_server")


def cut_to_client(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """The server hears us, and we do not hear it: commits whose answers are lost."""
    _cut(sky, chance, "to_client")


def cut_both_ways(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """Nothing passes."""
    _cut(sky, chance, "to_server", "to_client")


def connections_reset(sky: Sky, chance: random.Random, scribe: Scribe) -> None:
    """Every connection ends with a reset; for a while new ones are refused."""
    hit = _proxies(sky, chance)
    for proxy in hit:
        proxy.refusing = chance.random() < 0.5
        proxy.reset()
    time.sleep(chance.uniform(0, 1.5))
    for proxy in hit:
        proxy.refusing = False


def _proxies(sky: Sky, chance: random.Random) -> list[Proxy]:
    return [worker.proxy for worker in some(chance, sky.workers) if worker.proxy is not None]


def _cut(sky: Sky, chance: random.Random, *ways: Way) -> None:
    hit = _proxies(sky, chance)
    for proxy in hit:
        proxy.cut(*ways)
    time.sleep(chance.uniform(0.5, 4))
    for proxy in hit:
        if chance.random() < 0.5:
            proxy.reset()  # a connection that did not survive it
        proxy.mend()


# --- of the disk ------------------------------------------------------------------------------------------------------


def disk_full(sky: Sky, chance: random.Random, scribe: Scribe) -> int:
    """No room to write, until somebody makes some."""
    assert sky.disk is not None
    processes = [worker.process.pid for worker in sky.workers]
    sky.disk.fill(processes)
    time.sleep(chance.uniform(0.5, 2))
    sky.disk.free(processes)
    return time.monotonic_ns()


# --- skies ------------------------------------------------------------------------------------------------------------


@contextmanager
def postgres_sky(folder: Path, chance: random.Random) -> Iterator[Sky]:
    """A server of its own, and a proxy for each process."""
    del chance
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        url = cluster.create_database()
        parts = urlsplit(url)
        workers = []
        for number in range(WORKERS):
            proxy = stack.enter_context(Proxy(str(parts.hostname), int(parts.port or 0)))
            workers.append(Worker(number, proxy.before(url), folder, folder / f"clock-{number}", proxy))
        yield Sky(url, folder / "clock", workers, (*_PROCESSES, *_SERVER, *_NETWORK), cluster=cluster)


@contextmanager
def sqlite_sky(folder: Path, chance: random.Random) -> Iterator[Sky]:
    """A database on a disk that can be full, and one clock for all, as on one machine."""
    del chance
    disk = SmallDisk(folder / "disk")
    try:
        url, clock = f"sqlite:///{disk.folder / 'watch.db'}", folder / "clock"
        workers = [Worker(number, url, folder, clock, None) for number in range(WORKERS)]
        yield Sky(url, clock, workers, (*_PROCESSES, disk_full), disk=disk)
    finally:
        disk.close()


_PROCESSES: tuple[Misfortune, ...] = (worker_killed, worker_stopped, clock_jumped)
_SERVER: tuple[Misfortune, ...] = (server_restarted, server_killed, backends_terminated)
_NETWORK: tuple[Misfortune, ...] = (network_slow, cut_to_server, cut_to_client, cut_both_ways, connections_reset)
