"""Allswell, the night watch for agents: nothing hangs silently, nothing is lost."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; `typing` is imported once the command line minds Ctrl-C

if TYPE_CHECKING:
    from allswell.app import make_watch, open  # noqa: A004 - `allswell.open` is how one says it
    from allswell.domain.ids import QuestionId, RunId, TaskId
    from allswell.domain.question import Option, Question
    from allswell.domain.rules.event import Position
    from allswell.domain.service.breaker import BreakerPolicy
    from allswell.domain.service.guard import GuardPolicy, RetryBudget
    from allswell.domain.service.retry import ErrorClass, Failure, RetryPolicy
    from allswell.domain.task.model import Policy, State, TaskFilter
    from allswell.engine.lease import Lease
    from allswell.engine.sync import SyncLease, SyncWatch
    from allswell.engine.watch import Watch
    from allswell.errors import AllswellError, BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable
    from allswell.runtime.agents.function import SyncWork, Work
    from allswell.runtime.deadlines import flow, llm_call, run, step, tool
    from allswell.runtime.guard import Guard, guard
    from allswell.runtime.propagation import (
        deadline_environment,
        handover,
        inherit_deadline,
        inherit_remaining,
        remaining_headers,
        remaining_meta,
    )
    from allswell.runtime.run_tool import Output, ToolCancelled, ToolResult, ToolTimeout, run_tool, run_tool_sync
    from allswell.timing.scopes import Scope, ScopeTimeout, check_deadline, pause, remaining_ms, within

_HOMES = {
    "app": ("make_watch", "open"),
    "domain.service.breaker": ("BreakerPolicy",),
    "domain.service.guard": ("GuardPolicy", "RetryBudget"),
    "domain.ids": ("QuestionId", "RunId", "TaskId"),
    "domain.question": ("Option", "Question"),
    "domain.service.retry": ("ErrorClass", "Failure", "RetryPolicy"),
    "domain.task.model": ("Policy", "State", "TaskFilter"),
    "domain.rules.event": ("Position",),
    "engine.lease": ("Lease",),
    "engine.sync": ("SyncLease", "SyncWatch"),
    "engine.watch": ("Watch",),
    "errors": ("AllswellError", "BreakerOpen", "Bug", "LeaseLost", "Refused", "ServiceParked", "Unavailable"),
    "runtime.agents.function": ("SyncWork", "Work"),
    "runtime.guard": ("Guard", "guard"),
    "runtime.run_tool": ("Output", "ToolCancelled", "ToolResult", "ToolTimeout", "run_tool", "run_tool_sync"),
    "runtime.deadlines": ("flow", "llm_call", "run", "step", "tool"),
    "runtime.propagation": (
        "deadline_environment",
        "handover",
        "inherit_deadline",
        "inherit_remaining",
        "remaining_headers",
        "remaining_meta",
    ),
    "timing.scopes": ("Scope", "ScopeTimeout", "check_deadline", "pause", "remaining_ms", "within"),
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
    "Output",
    "Policy",
    "Position",
    "Question",
    "QuestionId",
    "Refused",
    "RetryBudget",
    "RetryPolicy",
    "RunId",
    "Scope",
    "ScopeTimeout",
    "ServiceParked",
    "State",
    "SyncLease",
    "SyncWatch",
    "SyncWork",
    "TaskFilter",
    "TaskId",
    "ToolCancelled",
    "ToolResult",
    "ToolTimeout",
    "Unavailable",
    "Watch",
    "Work",
    "check_deadline",
    "deadline_environment",
    "flow",
    "guard",
    "handover",
    "inherit_deadline",
    "inherit_remaining",
    "llm_call",
    "make_watch",
    "open",
    "pause",
    "remaining_headers",
    "remaining_meta",
    "remaining_ms",
    "run",
    "run_tool",
    "run_tool_sync",
    "step",
    "tool",
    "within",
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
