"""Python flows: a program that holds its run while it works, and whose finished steps are finished tasks of that run.

A flow is a run, and in it one task that carries the flow's name. The process that runs the program holds that task by
a lease like any other, with a token that grows: that is what makes a second process wait and a stale one harmless. The
task is taken up by its id (taking_up.py), never claimed from the pool: no other agent could do the work. So it never
rests there either: whenever its holder is gone (died, failed, was interrupted, reached its limit), a human is asked.
The question says what happened and offers to call the flow off; running the program again withdraws it.

A step is not handed out: its process does it, and says so when it is done (step.py).
"""

from __future__ import annotations

from allswell.domain.case import Asked, Outcome, ask
from allswell.domain.names import Millis
from allswell.domain.question import FLOW_LEFT_OPTIONS

FLOW_ROLE = "flow"
FLOW_LEFT = "flow_left"
"""The kind of the question about a flow that nobody runs."""


def leave(out: Outcome, why: str, now: Millis) -> None:
    """Nobody runs the flow any more: say so to a human, who may run its program again or call it off."""
    task = out.case.task
    text = f"The flow {task.name} ({task.run}) has stopped: {why}. Run its program again to go on, or call it off."
    ask(out, Asked(FLOW_LEFT, text, FLOW_LEFT_OPTIONS), now)
