"""What the work of a step came to, whichever kind of work it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from allswell.domain.receipt import Verification
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.snapshot import Snapshot
from allswell.domain.step_receipt import StepStatus, Tokens
from allswell.flows.run.timeouts import Cut


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one try."""

    status: StepStatus
    error: str | None = None
    failure: Failure | None = None
    """What the store is told, where it failed."""
    cut: Cut | None = None
    """Whose limit was reached, where it was one."""
    result: Any = None
    stdout: str = ""
    printed_more: bool = False
    exit_code: int | None = None
    streams: tuple[tuple[str, Path], ...] = ()
    """The files of what it printed, by stream; `llm` is what models were asked and answered."""
    tokens: Tokens | None = None
    """What was told of them; None: nothing."""
    snapshot: Snapshot | None = None
    recovery: Path | None = None
    said: bool = False
    """The agent has said its own last word, so that the lease is over."""
    verification: Verification | None = None
    """What came of the verification of its work, where the step wants one."""
    brought: bool = False
    """The agent has said itself what it brought, and that is verified: the lease goes on."""
    late: bool = False
    """It had ended by itself, after its lease was lost."""


class Doing(Protocol):
    """Work that runs and can be stopped."""

    async def run(self) -> Came:
        """Do it; never raises for what the work does."""
        ...

    def stop(self, reason: str, *, at_once: bool) -> None:
        """Order the stop; what there is is kept first."""
        ...

    def progress(self) -> str:
        """The last proof of progress, in words; empty where there was none."""
        ...


def failed(error: str, kind: ErrorClass = ErrorClass.VALIDATION) -> Came:
    """Work that cannot be done."""
    return Came(status=StepStatus.FAILED, error=error, failure=Failure(kind, error[:4_000]))
