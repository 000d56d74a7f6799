"""What the attempts of one supervisor share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from allswell.domain.usage import Usage
from allswell.runtime.attempt import Tower
from allswell.runtime.supervisor.telling import Voice


@dataclass(frozen=True)
class Shared:
    """What the attempts of one supervisor share."""

    tower: Tower
    starting: asyncio.Semaphore
    """So many are being started at a time: two hundred at once would keep the supervisor from renewing its leases."""
    gauged: Callable[[str, Usage | None], None]
    """Takes what an agent reports of its own usage; nothing, once it has ended."""
    voice: Voice
