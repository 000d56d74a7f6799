"""An attempt that ended before its agent began: it has changed nothing, and leaves a receipt like any other.

Its agent could not be started, or it was told to stop while it was being prepared: its task was called off, taken back,
or its supervisor stops. Whoever looks for what became of an attempt finds it in one place, however early it ended.
"""

from __future__ import annotations

from allswell.domain.evidence import Standing
from allswell.domain.fleet import AgentSpec
from allswell.domain.names import Millis
from allswell.domain.receipt import End
from allswell.domain.snapshot import Limits
from allswell.engine.handle import Lease
from allswell.errors import AllswellError
from allswell.runtime.attempt import Flight, Outcome
from allswell.runtime.attempt.keeping import Ended, Keeping
from allswell.runtime.receipts import Home
from allswell.timing.clock import Clock


def unstarted(
    spec: AgentSpec, lease: Lease, home: Home, clock: Clock, error: Exception, stopped: tuple[str, End] | None = None
) -> Outcome:
    """The outcome of an attempt that never began, with its receipt; `stopped` says why, where that was an order."""
    reason, end = stopped or (str(error), End.NOT_STARTED)
    flight = Flight(
        task=lease.task,
        name=lease.name,
        attempt=lease.attempt,
        token=lease.token,
        agent=lease.agent,
        run=lease.run,
        argv=spec.command or (spec.function,),
        cwd=spec.cwd,
        began_at=Millis(clock.wall()),
    )
    keeping = Keeping(flight, home, Limits(), clock)
    ended = Ended(end, reason, standing=Standing(clock.monotonic()))
    receipt = keeping.write(ended, partial=False)
    known = error if isinstance(error, AllswellError) else None
    return Outcome(end, reason, receipt=receipt, receipt_path=keeping.path, error=known, warnings=keeping.warnings)
