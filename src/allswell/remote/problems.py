"""What a server says went wrong, as the error that it was there."""

from __future__ import annotations

import time

from msgspec import UNSET

from allswell.errors import AllswellError, BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable
from allswell.remote.wire import Problem


def error_of(problem: Problem) -> AllswellError:
    """The error that a problem tells of."""
    after = None if problem.retry_after_ms is UNSET else problem.retry_after_ms
    service = "" if problem.service is UNSET else problem.service
    reason = "" if problem.reason is UNSET else problem.reason
    match problem.kind:
        case "refused":
            refused = Refused(problem.code, problem.detail, where=problem.where, hint=problem.hint)
            refused.place = None if problem.place is UNSET else problem.place
            return refused
        case "lease_lost":
            task = "" if problem.task_id is UNSET else problem.task_id
            return LeaseLost(task, 0 if problem.token is UNSET else problem.token, reason)
        case "unavailable":
            return Unavailable(problem.detail, hint=problem.hint)
        case "service_parked":
            return ServiceParked(service, time.time_ns() // 1_000_000 + (after or 0), after or 0)
        case "breaker_open":
            return BreakerOpen(service, after, reason)
        case _:
            return Bug(f"the server failed: {problem.detail}")
