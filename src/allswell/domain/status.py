"""What an answer's status and body mean for the next step: the error class of an HTTP answer (F4, F7).

A status alone misleads: a used-up quota comes as 429 or 400, a prompt that is too long as 400 or 413, an overload
inside a stream that began with 200. So the body is asked first for the few things that change the verdict (`CODES`,
then `WORDS`, for providers that say it in prose only), the status second, and the general type in the body last.

The codes are those of the openai and anthropic SDKs and of the providers' own pages; wording is matched only where
no code exists, and only on answers that already blame the request or the account.
"""

from __future__ import annotations

from collections.abc import Mapping

from allswell.domain.retry import ErrorClass

NOT_THE_SERVICES_FAULT = frozenset({400, 401, 403, 404, 422, 429})
"""Statuses that say nothing against a service: they show that it answers (F8)."""

STATUSES: Mapping[int, ErrorClass] = {
    400: ErrorClass.VALIDATION,
    401: ErrorClass.AUTH,
    402: ErrorClass.PERMANENT,  # payment required: only a human can pay
    403: ErrorClass.AUTH,
    404: ErrorClass.NOT_FOUND,
    407: ErrorClass.AUTH,
    408: ErrorClass.NETWORK,
    410: ErrorClass.NOT_FOUND,
    422: ErrorClass.VALIDATION,
    429: ErrorClass.RATE_LIMIT,
    529: ErrorClass.OVERLOAD,
    # The same request will be refused the same way.
    **dict.fromkeys((405, 406, 411, 412, 413, 414, 415, 416, 417, 426, 428, 431, 451), ErrorClass.VALIDATION),
}
"""Statuses that mean something of their own. Other 5xx are the server's, everything else unknown is transient."""

_USED_UP = (
    "access_terminated",
    "account_deactivated",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "credit_balance_exhausted",
    "credit_balance_too_low",
    "enforced_spend_limit_reached",
    "insufficient_quota",
    "organization_on_hold",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "project_spend_limit_exceeded",
    "session_budget_exceeded",
    "usage_limit_exceeded",
)
CODES: Mapping[str, ErrorClass] = {
    **dict.fromkeys(_USED_UP, ErrorClass.PERMANENT),
    "context_length_exceeded": ErrorClass.CONTEXT_OVERFLOW,
    "model_context_window_exceeded": ErrorClass.CONTEXT_OVERFLOW,
    "overloaded_error": ErrorClass.OVERLOAD,
    "server_overloaded": ErrorClass.OVERLOAD,
    "slow_down": ErrorClass.OVERLOAD,
}
"""Codes and types in a body that outweigh the status."""

TYPES: Mapping[str, ErrorClass] = {
    "api_error": ErrorClass.SERVER,
    "authentication_error": ErrorClass.AUTH,
    "connection_failed": ErrorClass.NETWORK,
    "internal_error": ErrorClass.SERVER,
    "invalid_api_key": ErrorClass.AUTH,
    "invalid_request": ErrorClass.VALIDATION,
    "invalid_request_error": ErrorClass.VALIDATION,
    "not_found_error": ErrorClass.NOT_FOUND,
    "permission_error": ErrorClass.AUTH,
    "rate_limit_error": ErrorClass.RATE_LIMIT,
    "rate_limit_exceeded": ErrorClass.RATE_LIMIT,
    "request_timeout": ErrorClass.NETWORK,
    "resource_not_found": ErrorClass.NOT_FOUND,
    "server_error": ErrorClass.SERVER,
    "timeout_error": ErrorClass.NETWORK,
}
"""Codes and types in a body that count where no status does, as in a stream that had begun well."""

WORDS: Mapping[str, ErrorClass] = {
    "credit balance is too low": ErrorClass.PERMANENT,
    "exceeded your current quota": ErrorClass.PERMANENT,
    "reached your specified api usage limits": ErrorClass.PERMANENT,
    "organization has been disabled": ErrorClass.PERMANENT,
    "account has been suspended": ErrorClass.PERMANENT,
    "account is not active": ErrorClass.PERMANENT,
    "prompt is too long": ErrorClass.CONTEXT_OVERFLOW,
    "input is too long": ErrorClass.CONTEXT_OVERFLOW,
    "exceed context limit": ErrorClass.CONTEXT_OVERFLOW,
    "maximum context length": ErrorClass.CONTEXT_OVERFLOW,
    "exceeds the context window": ErrorClass.CONTEXT_OVERFLOW,
}
_BACKED_OFF = (ErrorClass.SERVER, ErrorClass.NETWORK, ErrorClass.TRANSIENT)
"""What is retried after pauses of our own, unless the answer says when."""
_SAID_IN_WORDS = frozenset({400, 401, 403, 413, 422, 429})


def class_of_answer(status: int | None, body: object = None, *, says_when: bool = False) -> ErrorClass:
    """The class of an answer that is an error; `status` is None (or 2xx) for one that came inside a stream.

    `says_when` tells that the answer carries a Retry-After. Whatever is retried and says when to come back (500, 502,
    503, 408, 425, …) is an overload, whose wait is honoured.
    """
    failed = status if status is not None and status >= 400 else None
    names, words = _said(body)
    for name in names:
        if name in CODES:
            return CODES[name]
    if failed is None or failed in _SAID_IN_WORDS:
        for phrase, meant in WORDS.items():
            if phrase in words:
                return meant
    if failed is None:
        return next((TYPES[name] for name in names if name in TYPES), ErrorClass.TRANSIENT)
    meant_by_status = STATUSES.get(failed) or (ErrorClass.SERVER if 500 <= failed < 600 else ErrorClass.TRANSIENT)
    return ErrorClass.OVERLOAD if says_when and meant_by_status in _BACKED_OFF else meant_by_status


def _said(body: object) -> tuple[list[str], str]:
    """The codes and types that an error body names, and its message in lower case.

    Both shapes are read: `{"type": "error", "error": {"type", "message", "details": {"error_code"}}}` (anthropic) and
    `{"error": {"message", "type", "param", "code"}}` (openai; its SDK keeps the inner part only).
    """
    if isinstance(body, str):
        return [], body[:4_000].lower()
    if not isinstance(body, Mapping):
        return [], ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return [inner.lower()], inner.lower()
    if not isinstance(inner, Mapping):
        return [], ""
    details = inner.get("details")
    named = [details.get("error_code") if isinstance(details, Mapping) else None, inner.get("code"), inner.get("type")]
    message = inner.get("message")
    return [name.lower() for name in named if isinstance(name, str)], str(message or "")[:4_000].lower()
