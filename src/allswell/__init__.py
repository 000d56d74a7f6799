"""Allswell, the night watch for agents: nothing hangs silently, nothing is lost."""

from allswell.app import make_watch, open  # noqa: A004 - `allswell.open` is how one says it
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.policy import Policy
from allswell.domain.question import Option, Question
from allswell.domain.retry import ErrorClass, Failure, RetryPolicy
from allswell.domain.task import State
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Bug, LeaseLost, Refused, Unavailable
from allswell.store.port import Position, TaskFilter

__all__ = [
    "AllswellError",
    "Bug",
    "ErrorClass",
    "Failure",
    "Lease",
    "LeaseLost",
    "Option",
    "Policy",
    "Position",
    "Question",
    "QuestionId",
    "Refused",
    "RetryPolicy",
    "RunId",
    "State",
    "TaskFilter",
    "TaskId",
    "Unavailable",
    "Watch",
    "make_watch",
    "open",
]
