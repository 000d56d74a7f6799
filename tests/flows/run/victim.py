"""A runner that is killed where it is told: `python victim.py FLOW CUT`, in the folder in which the flow runs.

A cut is `STEP:PLACE`. Inside its work a step kills its runner by itself (see `test_kill.py`); the other places are
between what the runner writes: before and after a receipt, before and after the store is told.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allswell.engine.lease import Lease
from allswell.flows.run.attempt import StepAttempt
from allswell.flows.run.folder import RunBase
from allswell.interfaces.cli.app import run


def die() -> None:
    """As a power failure would have it."""
    os.kill(os.getpid(), signal.SIGKILL)


def cut(owner: type, name: str, step: str, which: Callable[[Any, tuple[Any, ...]], str], *, after: bool) -> None:
    """Have the process die before, or after, a method is called for this step."""
    real = getattr(owner, name)

    def sync(self: Any, *args: Any) -> Any:  # noqa: ANN401 - stands in for any method
        if which(self, args) != step:
            return real(self, *args)
        if not after:
            die()
        answer = real(self, *args)
        die()
        return answer

    async def later(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401
        if which(self, args) != step:
            return await real(self, *args, **more)
        if not after:
            die()
        answer = await real(self, *args, **more)
        die()
        return answer

    setattr(owner, name, later if owner in (Lease, StepAttempt) else sync)


def main(flow: str, where: str) -> int:
    """Run the flow, and die on the way."""
    Path("victim.pid").write_text(str(os.getpid()))
    Path("cut").write_text(where)
    step, _, place = where.partition(":")
    match place:
        case "begin":
            cut(StepAttempt, "_begin", step, lambda self, _: str(self.job.id), after=False)
        case "finalize":
            cut(RunBase, "keep_receipts", step, lambda _, args: str(args[0][0].step_id), after=False)
        case "receipt":
            cut(RunBase, "keep_receipts", step, lambda _, args: str(args[0][0].step_id), after=True)
        case "route":
            cut(Lease, "complete", step, lambda self, _: str(self.name), after=False)
        case "boundary":
            cut(Lease, "complete", step, lambda self, _: str(self.name), after=True)
        case _:
            pass
    return run(["run", flow, "--json"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
