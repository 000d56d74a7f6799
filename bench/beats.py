"""What a check-in costs: bytes of WAL for one, and the share of a core for many leases kept alive.

WAL is read as the distance that the insert position moves over some rounds of check-ins on the same leases. The first
round after a checkpoint is not counted: it writes whole pages, which is the server's price for a checkpoint and not
ours for a beat. The share of a core is processor time, of this process and of the server, over a window of wall time
in which the watch does what it always does for leases with a length: renew them at a third of it, and sweep.
"""

from __future__ import annotations

import asyncio
import time

import psycopg
from processes import cpu_of_family

from allswell.app import make_watch, store_for
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.testing.postgres import Cluster

_CHUNK = 500


async def wal_per_checkin(cluster: Cluster, *, leases: int = 1_000, rounds: int = 10) -> dict[str, float]:
    """Bytes of WAL for each check-in, in batches of 1, 100 and 500."""
    figures = {}
    url = cluster.create_database()
    with psycopg.connect(cluster.admin_url(), autocommit=True) as admin:

        def position() -> int:
            row = admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
            assert row is not None
            return int(row[0])

        async with make_watch(store_for(url)) as watch:
            held = await _hold(watch, leases, length=None)
            for batch in (1, 100, 500):
                some = held if batch > 1 else held[: leases // 10]
                admin.execute("CHECKPOINT")
                await _beat(watch, some, batch)
                before = position()
                for _ in range(rounds):
                    await _beat(watch, some, batch)
                figures[f"WAL bytes of a check-in, batches of {batch}"] = round(
                    (position() - before) / rounds / len(some), 1
                )
    cluster.drop_database(url)
    return figures


async def share_of_a_core(
    url: str, *, server: int | None, leases: int = 10_000, every: float = 10.0, window: float = 60.0
) -> dict[str, float]:
    """Percent of one core for so many leases renewed every `every` seconds, this process and the server's."""
    async with make_watch(store_for(url)) as watch:
        held = await _hold(watch, leases, length=int(every * 3_000))
        await asyncio.sleep(every * 1.5)  # past the claims' own cost, into the steady state
        own, start = time.process_time(), time.monotonic()
        theirs = 0.0 if server is None else cpu_of_family(server)
        await asyncio.sleep(window)
        took = time.monotonic() - start
        own = time.process_time() - own
        theirs = 0.0 if server is None else cpu_of_family(server) - theirs
        lost = sum(lease.lost is not None for lease in held)
        assert lost == 0, f"{lost} leases lapsed although they were renewed"
        assert len([row for row in await watch.tasks() if row.lease is not None]) > 0
    name = f"{leases:,} leases renewed every {every:g} s"
    return {
        f"{name}: our process, % of a core": round(own / took * 100, 1),
        f"{name}: the server, % of a core": round(theirs / took * 100, 1),
        f"{name}: both, % of a core": round((own + theirs) / took * 100, 1),
    }


async def _hold(watch: Watch, count: int, *, length: int | None) -> list[Lease]:
    held: list[Lease] = []
    while len(held) < count:
        await watch.submit_many([{"name": "x"}] * _CHUNK)
        held += await watch.claim_many(_CHUNK, agent="bench", lease=length)
    return held


async def _beat(watch: Watch, leases: list[Lease], batch: int) -> None:
    for first in range(0, len(leases), batch):
        await watch.checkin_many(leases[first : first + batch])
