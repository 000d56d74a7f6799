"""The folder of a flow's run, with what its steps left there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from allswell.domain.capture import TimeoutLine
from allswell.doors.shapes.step import StepShape

if TYPE_CHECKING:
    from allswell.flows.run.base import RunBase


class FlowShape(Struct, frozen=True):
    """Where it is, which runs it had, and each attempt at a step."""

    flow: str
    base: str
    folder: str
    file: str | None
    inputs: dict[str, Any]
    run_ids: tuple[str, ...]
    receipts: list[StepShape]
    timeouts: list[TimeoutLine]

    @classmethod
    def of(cls, base: RunBase) -> FlowShape:
        """What lies in a run's folder."""
        record = base.record
        return cls(
            flow=record.flow,
            base=str(base.path),
            folder=record.folder,
            file=record.file or None,
            inputs=record.inputs,
            run_ids=record.runs,
            receipts=[StepShape.of(one) for one in base.all_receipts()],
            timeouts=list(base.all_timeouts()),
        )
