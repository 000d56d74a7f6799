"""Allswell, the night watch for agents: nothing hangs silently, nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allswell.app import make_watch, open  # noqa: A004 - `allswell.open` is how one says it
    from allswell.domain.breaker import BreakerPolicy
    from allswell.domain.guard import GuardPolicy, RetryBudget
    from allswell.domain.names import QuestionId, RunId, TaskId
    from allswell.domain.policy import Policy
    from allswell.domain.question import Option, Question
    from allswell.domain.retry import ErrorClass, Failure, RetryPolicy
    from allswell.domain.task import State
    from allswell.engine.handle import Lease
    from allswell.engine.watch import Watch
    from allswell.errors import AllswellError, BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable
    from allswell.runtime.guard import Guard, guard
    from allswell.store.port import Position, TaskFilter

_HOMES = {
    "app": ("make_watch", "open"),
    "domain.breaker": ("BreakerPolicy",),
    "domain.guard": ("GuardPolicy", "RetryBudget"),
    "domain.names": ("QuestionId", "RunId", "TaskId"),
    "domain.policy": ("Policy",),
    "domain.question": ("Option", "Question"),
    "domain.retry": ("ErrorClass", "Failure", "RetryPolicy"),
    "domain.task": ("State",),
    "engine.handle": ("Lease",),
    "engine.watch": ("Watch",),
    "errors": ("AllswellError", "BreakerOpen", "Bug", "LeaseLost", "Refused", "ServiceParked", "Unavailable"),
    "runtime.guard": ("Guard", "guard"),
    "store.port": ("Position", "TaskFilter"),
}
"""Where each public name lives. It is imported when it is first used, so that a part starts without the whole."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AllswellError",
    "BreakerOpen",
    "BreakerPolicy",
    "Bug",
    "ErrorClass",
    "Failure",
    "Guard",
    "GuardPolicy",
    "Lease",
    "LeaseLost",
    "Option",
    "Policy",
    "Position",
    "Question",
    "QuestionId",
    "Refused",
    "RetryBudget",
    "RetryPolicy",
    "RunId",
    "ServiceParked",
    "State",
    "TaskFilter",
    "TaskId",
    "Unavailable",
    "Watch",
    "guard",
    "make_watch",
    "open",
]


def __getattr__(name: str) -> object:
    """A public name, from where it lives."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
