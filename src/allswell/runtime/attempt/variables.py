"""What an agent finds in its environment about its own attempt, and needs to speak for it."""

from __future__ import annotations

import time

from allswell.domain.carried import VARIABLE as DEADLINE
from allswell.domain.carried import write_instant
from allswell.engine.handle import Lease
from allswell.runtime.boot import boot_id
from allswell.runtime.speaking.client import SECRET, VARIABLE
from allswell.timing.tracing import trace_environment


def about(lease: Lease, remaining: int, socket: str, secret: str) -> dict[str, str]:
    """The variables of an attempt that has so many milliseconds left; without a socket, there is no secret to say."""
    end = write_instant(boot_id(), time.monotonic_ns() + remaining * 1_000_000)
    return {
        **trace_environment(),
        "ALLSWELL_TASK": lease.task,
        "ALLSWELL_TOKEN": str(lease.token),
        "ALLSWELL_AGENT": lease.agent,
        "ALLSWELL_ATTEMPT": str(lease.attempt),
        DEADLINE: end,
        **({VARIABLE: socket, SECRET: secret} if socket else {}),
    }
