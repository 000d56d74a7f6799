"""The durable flow in effect: what every task and thread that is started inside its block inherits."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allswell.runtime.durable.steps import Steps

in_flow: ContextVar[Steps | None] = ContextVar("allswell_flow", default=None)
