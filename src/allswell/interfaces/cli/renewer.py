"""Renews the lease of an `allswell run` that is stopped: `python -m …cli.renewer TASK TOKEN AGENT …`.

The warden starts it when it sees that the supervisor is stopped (`runtime/process/apart/stops.py`); it ends when that
goes on or is gone. Its last word is always that the attempt goes on: should the supervisor have said so while this was
still telling of the stop, the limit would stand for ever.
"""

from __future__ import annotations

from allswell.runtime.host import keep_to_ourselves

if __name__ == "__main__":
    keep_to_ourselves()

import asyncio
import contextlib
import signal
import sys

from allswell.app import watch_on
from allswell.domain.lease.suspension import LONGEST_STOP
from allswell.engine.lease import Held
from allswell.errors import AllswellError, LeaseLost
from allswell.runtime.process.apart.stops import is_stopped
from allswell.runtime.process.apart.tree import look, send
from allswell.settings.load import load
from allswell.timing.clock import SystemClock

_LOOK = 0.5
"""Seconds between two looks at the supervisor."""
_SELDOM = 60.0
"""Seconds between two renewals, at most."""
_AWAY = 2.0


async def renew_while_stopped(task: str, token: int, agent: str, length: int, supervisor: int) -> None:
    """Renew a lease as long as the supervisor is stopped, for at most a day; then continue it."""
    clock = SystemClock()
    seen, since = look(supervisor), clock.monotonic()
    if seen is None or not is_stopped(supervisor, seen.start):
        return
    settings = load()
    every = min(length / 3_000, _SELDOM) if length else _SELDOM
    async with watch_on(settings.store, pace=settings.pace(), policies=settings.policies(), sweeping=False) as watch:
        held = watch.held(task, token, agent)
        try:
            renewed_at = -1.0
            while is_stopped(supervisor, seen.start):
                if clock.monotonic() - since >= LONGEST_STOP:
                    send(supervisor, seen.start, signal.SIGCONT)
                elif renewed_at < 0 or asyncio.get_running_loop().time() - renewed_at >= every:
                    await _renew(held, ago=clock.monotonic() - since)
                    renewed_at = asyncio.get_running_loop().time()
                await asyncio.sleep(_LOOK)
        except LeaseLost:
            return
        with contextlib.suppress(AllswellError):
            await held.go_on()


async def _renew(held: Held, *, ago: int) -> None:
    """Tell of the stop, which does nothing where it was told, and renew."""
    try:
        await held.suspend("SIGSTOP", ago=ago)
        await held.renew()
    except LeaseLost:
        raise
    except AllswellError:  # the store is away: soon again
        await asyncio.sleep(_AWAY)


def main() -> None:
    """Be that process."""
    task, token, agent, length, supervisor = sys.argv[1:]
    asyncio.run(renew_while_stopped(task, int(token), agent, int(length), int(supervisor)))


if __name__ == "__main__":
    main()
