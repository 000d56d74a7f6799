"""Following for all sinks at once, for as long as a process lives."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from allswell.doors.sinks.follower import Follower
from allswell.doors.sinks.sink import Sink
from allswell.engine.watch import Watch
from allswell.runtime.durable.process import this_process
from allswell.timing.nursery import Nursery


async def run_sinks(watch: Watch, sinks: Sequence[Sink]) -> None:
    """Follow for these sinks until cancelled; for each, whenever no other process does."""
    marker = f"{secrets.token_hex(4)} {this_process()}"
    try:
        async with Nursery() as nursery:
            for sink in sinks:
                nursery.start(Follower(watch, sink, marker).run(), name=f"sink {sink.name}")
    finally:
        for sink in sinks:
            await sink.close()
