"""An attempt as a span: whose it is, and how it ended."""

from __future__ import annotations

from collections.abc import Coroutine

from allswell.domain.expense import usd
from allswell.domain.receipt import End
from allswell.domain.span_names import (
    AGENT_NAME,
    ATTEMPT,
    COST,
    EXIT_CODE,
    INVOKE_AGENT,
    OPERATION,
    OUTCOME,
    RUN,
    TASK,
    TASK_NAME,
    TOKENS_IN,
    TOKENS_OUT,
)
from allswell.engine.handle import Lease
from allswell.runtime.attempt.order import Outcome
from allswell.timing.tracing import traced


async def traced_life(lease: Lease, life: Coroutine[object, object, Outcome]) -> Outcome:
    """An attempt to its end, within its span; what it starts goes on with its trace."""
    about = {
        OPERATION: INVOKE_AGENT,
        AGENT_NAME: lease.agent,
        TASK: lease.task,
        TASK_NAME: lease.name,
        RUN: lease.run,
        ATTEMPT: lease.attempt,
    }
    with traced(INVOKE_AGENT, about, title=lease.agent) as seen:
        outcome = await life
        seen.note({OUTCOME: outcome.end.value, EXIT_CODE: outcome.exit_code})
        spent = outcome.expense
        if spent is not None:
            seen.note({COST: usd(spent.cost), TOKENS_IN: spent.given, TOKENS_OUT: spent.written})
        if outcome.end is not End.DONE:
            seen.failed(outcome.reason)
        return outcome
