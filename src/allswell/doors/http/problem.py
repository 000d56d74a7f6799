"""What went wrong, as RFC 9457 has it: the one shape of an error (`doors/shapes/error.py`) with a status of HTTP.

`type` names the code, `detail` is the message, and all our fields are extensions. A caller branches on `kind`.
"""

from __future__ import annotations

from math import ceil

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from allswell.doors.shapes.error import ErrorShape
from allswell.errors import BreakerOpen, LeaseLost, Refused, Unavailable
from allswell.remote.wire import Problem

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:allswell:error:"
_TITLES = {
    "refused": "It cannot be done",
    "lease_lost": "The lease is over",
    "unavailable": "The store cannot be reached",
    "service_parked": "A service asked everybody to wait",
    "breaker_open": "A service is left alone for a while",
    "bug": "A bug of Allswell's",
}
_STATUS = {
    "bad_key": 401,
    "no_key": 401,
    "bad_signature": 401,
    "no_signature": 401,
    "stale_delivery": 400,
    "key_expired": 401,
    "key_revoked": 401,
    "no_session": 401,
    "session_over": 401,
    "bad_link": 401,
    "link_used": 401,
    "link_expired": 401,
    "bad_form": 403,
    "not_allowed": 403,
    "foreign_host": 421,
    "foreign_origin": 403,
    "no_baseline": 404,
    "no_folder": 404,
    "no_log": 404,
    "no_route": 404,
    "bad_method": 405,
    "too_slow": 408,
    "ambiguous": 409,
    "id_taken": 409,
    "key_changed": 409,
    "key_exists": 409,
    "run_ended": 409,
    "too_big": 413,
    "not_json": 400,
    "bad_query": 400,
    "bad_body": 422,
    "too_many_calls": 429,
    "out_of_time": 504,
}
_RETRY_S = 2


def status_of(error: BaseException) -> int:
    """The status that goes with an error."""
    if isinstance(error, Refused):
        unknown = 404 if error.code.startswith("unknown_") else 422
        return _STATUS.get(error.code, unknown)
    if isinstance(error, LeaseLost):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def problem_of(error: BaseException) -> Problem:
    """An error as it is told."""
    told = ErrorShape.of(error).error
    reason = error.reason if isinstance(error, LeaseLost | BreakerOpen) else UNSET
    place = error.place if isinstance(error, Refused) and error.place is not None else UNSET
    return Problem(
        type=f"{_TYPE}{told.code}",
        title=_TITLES[told.kind],
        status=status_of(error),
        detail=told.message,
        kind=told.kind,
        code=told.code,
        where=told.where,
        hint=told.hint,
        task_id=told.task_id,
        token=told.token,
        reason=reason,
        service=told.service,
        retry_after_ms=told.retry_after_ms,
        place=place,
    )


def answer_to(error: BaseException, *, retry_s: float | None = None) -> Response:
    """The answer to a call that could not be carried out."""
    problem = problem_of(error)
    headers = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="allswell"'
    if problem.status in (429, 503):
        headers["Retry-After"] = str(max(1, ceil(_RETRY_S if retry_s is None else retry_s)))
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)
