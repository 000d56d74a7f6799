"""Planted bugs in durable flows: who may record a step, and what becomes of a flow that nobody runs."""

# ruff: noqa: ANN401 - a planted bug passes on whatever it was given

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from allswell.domain.lease import expiry, holder
from allswell.domain.run import lifecycle
from allswell.domain.task import aggregate
from allswell.domain.task.aggregate import requeue
from tests.sim.planting import everywhere, mutant


@mutant
def fence_is_ignored_on_steps() -> Iterator[None]:
    def lenient(*_: Any) -> None:
        return None

    with everywhere("fence", lenient, lifecycle):
        yield


@mutant
def flow_that_is_left_goes_to_the_pool() -> Iterator[None]:
    def careless(out: Any, why: str, now: Any) -> None:
        del why
        out.case = requeue(out.case, now)

    with everywhere("leave", careless, aggregate, holder, lifecycle, expiry):
        yield


@mutant
def step_is_recorded_without_its_result() -> Iterator[None]:
    with patch.object(lifecycle, "FinishedTask", lambda task, payload, _, attempt: _made(task, payload, attempt)):
        yield


def _made(task: Any, payload: str, attempt: Any) -> Any:
    from allswell.domain.task.model import FinishedTask

    return FinishedTask(task, payload, "null", attempt)
