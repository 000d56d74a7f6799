"""From whatever was raised to an error class: which of the rules in `retry` it falls under (F4, F7).

**No library is imported for this.** An exception is known by the names in its class's ancestry (`httpx.ReadTimeout` is
a `TimeoutException` of a package `httpx`), so a program that has no `requests` pays nothing for it, and a package that
lives on under a new name (`httpx`, `httpx2`) needs one more word here. What an exception carries (`status_code`,
`response`, `body`) is read by duck typing, and reading it never raises.

In order: what Allswell itself raised; an answer's status and body; what a name says; the operating system's errors;
what is plainly a bug. **An unknown error is transient**, and so retried: giving up on an error because it is new would
be the worse mistake. An exception that only wraps another (`APIConnectionError` of an SDK) is judged by its cause where
that says more: a certificate that does not hold is no network trouble, however it is wrapped.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping

from allswell.domain.ids import Millis
from allswell.domain.service.retry import RULES, ErrorClass, Failure
from allswell.errors import BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable

# What an answer's status and body mean for the next step: the error class of an HTTP answer (F4, F7).
#
# A status alone misleads: a used-up quota comes as 429 or 400, a prompt that is too long as 400 or 413, an overload
# inside a stream that began with 200. So the body is asked first for the few things that change the verdict (`CODES`,
# then `WORDS`, for providers that say it in prose only), the status second, and the general type in the body last.
#
# The codes are those of the openai and anthropic SDKs and of the providers' own pages; wording is matched only where
# no code exists, and only on answers that already blame the request or the account.

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
    "quota exceeded. check your plan": ErrorClass.PERMANENT,
    "please run /login": ErrorClass.AUTH,
    "missing environment variable": ErrorClass.AUTH,
    "invalid api key": ErrorClass.AUTH,
    "api key not valid": ErrorClass.AUTH,
    "failed to authenticate": ErrorClass.AUTH,
    "oauth token has expired": ErrorClass.AUTH,
    "prompt is too long": ErrorClass.CONTEXT_OVERFLOW,
    "input is too long": ErrorClass.CONTEXT_OVERFLOW,
    "exceed context limit": ErrorClass.CONTEXT_OVERFLOW,
    "maximum context length": ErrorClass.CONTEXT_OVERFLOW,
    "exceeds the context window": ErrorClass.CONTEXT_OVERFLOW,
    "ran out of room in the model's context window": ErrorClass.CONTEXT_OVERFLOW,
    "currently experiencing high demand": ErrorClass.OVERLOAD,
    "hit your usage limit": ErrorClass.RATE_LIMIT,
    "unable to connect to api": ErrorClass.NETWORK,
    "stream disconnected before completion": ErrorClass.NETWORK,
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
        return [], body[:4_000].lower().replace("’", "'")
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


# Reading how long a provider asks to wait: `Retry-After` in seconds or as a date, `retry-after-ms` (F5).
#
# Dates are read here, by hand, because a moment of a header is arithmetic and no clock: the core may not know the time,
# and the standard library's readers either know it or accept what is no HTTP date. `now` comes in as the *provider's*
# own `Date` header wherever there is one, so that two machines' clocks are not compared; only without it is it ours.
#
# What cannot be read is `None`, which the rules take for "60 s": a number with an underscore, digits of other scripts,
# `1e400`, and any wait beyond `LONGEST_READ`, which is no limit that a provider means but a broken header (a moment
# written where a length belongs), and would park a service for years.

LONGEST_READ = 31 * 86_400_000
"""The longest wait that is believed: quotas are reset once a month."""

_NUMBER = re.compile(r"([+-]?)(\d{1,20})(?:\.(\d{1,20}))?", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = (
    # Sun, 06 Nov 1994 08:49:37 GMT, as every sender must write it
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<day>\d\d) (?P<month>{_MONTH}) (?P<year>\d{{4}}) {_CLOCK} GMT", re.ASCII),
    # Sunday, 06-Nov-94 08:49:37 GMT, and Sun Nov  6 08:49:37 1994, as old ones may
    re.compile(rf"[A-Z][a-z]+day, (?P<day>\d\d)-(?P<month>{_MONTH})-(?P<year>\d\d) {_CLOCK} GMT", re.ASCII),
    re.compile(rf"[A-Z][a-z]{{2}} (?P<month>{_MONTH}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})", re.ASCII),
)


def asked_wait(headers: Mapping[str, str], now: int) -> Millis | None:
    """How long an answer's headers ask to wait; `None` where they say nothing that can be read.

    `headers` are looked up by their lower-case names; `now` is the wall clock, used where the answer has no `Date`.
    """
    wait = _number(headers.get("retry-after-ms"), 1)
    if wait is None:
        said = headers.get("retry-after")
        wait = _number(said, 1_000)
        if wait is None and said is not None:
            there = moment(headers.get("date") or "", now)
            here = now if there is None else there
            until = moment(said, here)
            wait = None if until is None else until - here
    if wait is None or wait > LONGEST_READ:
        return None
    return Millis(max(wait, 0))


def _number(text: str | None, unit: int) -> int | None:
    """A plain decimal number of units, in whole milliseconds, never rounded down to an early return."""
    found = None if text is None else _NUMBER.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    sign, whole, part = found.groups(default="")
    parts: int = 10 ** len(part)
    scaled = -(-int(whole + part) * unit // parts)
    return -scaled if sign == "-" else scaled


def moment(text: str, now: int) -> int | None:
    """Milliseconds since 1970 of an HTTP date in any of its three forms; `None` if it is not one.

    `now` only says which century a year of two digits belongs to: never more than 50 years ahead.
    """
    found = next((date for form in _DATES if (date := form.fullmatch(text.strip(" \t")))), None)
    if found is None:
        return None
    year, month, day = int(found["year"]), _MONTHS.index(found["month"]) + 1, int(found["day"])
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    if len(found["year"]) == 2:
        this_year = 1970 + now // 31_556_952_000
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    if not (1 <= day <= _days_in(year, month) and hour < 24 and minute < 60 and second <= 60):
        return None
    return ((_days_before(year, month) + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000


def _days_before(year: int, month: int) -> int:
    """Days from 1970 to the first of a month. The year is counted from March, so that February's end is the year's."""
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)
    leap_days = years // 4 - years // 100 + years // 400
    return years * 365 + leap_days + (153 * months + 2) // 5 - 719_468


def _days_in(year: int, month: int) -> int:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    return _days_before(*following) - _days_before(year, month)


Classifier = Callable[[BaseException], "ErrorClass | Failure | str | None"]
"""A user's own: a class, a whole failure, or None for "I do not know it"."""

MESSAGE_KEPT = 4_000
_DEEPEST = 8  # causes looked at, one inside the other

_HTTPX = ("httpx", "httpx2", "httpcore", "httpcore2")
_SDKS = ("openai", "anthropic")
NAMES: Mapping[tuple[str, str], ErrorClass] = {
    **{
        (package, name): ErrorClass.NETWORK
        for package in _HTTPX
        for name in ("TimeoutException", "NetworkError", "ProxyError", "RemoteProtocolError")
    },
    **{
        (package, name): ErrorClass.VALIDATION
        for package in _HTTPX
        for name in ("UnsupportedProtocol", "LocalProtocolError", "TooManyRedirects", "InvalidURL")
    },
    **{(package, "StreamError"): ErrorClass.BUG for package in _HTTPX},  # read twice, or after it was closed
    **{(package, "APIConnectionError"): ErrorClass.NETWORK for package in _SDKS},
    **{(package, "APIResponseValidationError"): ErrorClass.TRANSIENT for package in _SDKS},  # 200, and not what it says
    ("anthropic", "CredentialsError"): ErrorClass.AUTH,
    ("openai", "LengthFinishReasonError"): ErrorClass.VALIDATION,
    ("openai", "ContentFilterFinishReasonError"): ErrorClass.VALIDATION,
    ("openai", "InvalidWebhookSignatureError"): ErrorClass.VALIDATION,
    **{
        ("requests", name): ErrorClass.NETWORK
        for name in ("ConnectionError", "Timeout", "ChunkedEncodingError", "RetryError")
    },
    **{
        ("requests", name): ErrorClass.VALIDATION
        for name in ("InvalidURL", "InvalidSchema", "MissingSchema", "InvalidHeader", "URLRequired", "TooManyRedirects")
    },
    ("requests", "InvalidJSONError"): ErrorClass.TRANSIENT,
    ("requests", "ContentDecodingError"): ErrorClass.TRANSIENT,
    ("requests", "StreamConsumedError"): ErrorClass.BUG,
    ("requests", "UnrewindableBodyError"): ErrorClass.BUG,
    **{
        ("urllib3", name): ErrorClass.NETWORK
        for name in ("TimeoutError", "ProtocolError", "ProxyError", "MaxRetryError")
    },
    ("aiohttp", "ClientConnectionError"): ErrorClass.NETWORK,
    ("aiohttp", "ClientPayloadError"): ErrorClass.NETWORK,
    ("ssl", "SSLCertVerificationError"): ErrorClass.PERMANENT,  # no retry mends a certificate; a human may
    ("ssl", "SSLError"): ErrorClass.NETWORK,
    ("socket", "gaierror"): ErrorClass.NETWORK,
    ("json", "JSONDecodeError"): ErrorClass.TRANSIENT,
    ("allswell", "ExitCalled"): ErrorClass.BUG,  # `sys.exit` in a function: the same call would do the same again
}
"""What an ancestor says, by its top-level package and its name; the nearest ancestor counts."""

ANYONES: Mapping[str, ErrorClass] = {
    "ValidationError": ErrorClass.VALIDATION,
    "AuthenticationError": ErrorClass.AUTH,
}
"""What a class of this name means, in any library."""

_BUGS = (
    TypeError,
    AssertionError,
    AttributeError,
    NameError,
    LookupError,
    ArithmeticError,
    NotImplementedError,
    RecursionError,
    ImportError,
    SyntaxError,
    Bug,
)
_NETWORK_ERRNOS = frozenset(
    {
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENOTCONN,
    }
)


def failure_of(error: BaseException | str | Failure, *, now: int = 0) -> Failure:
    """A failure from whatever the holder has at hand; `now` is the wall clock, for a Retry-After that is a date."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure(ErrorClass.TRANSIENT, shortened(error))
    message = shortened(_told(error))
    for one in _chain(error):
        if isinstance(one, ServiceParked):
            return Failure(ErrorClass.RATE_LIMIT, message, Millis(one.retry_after), parked=True)
        if isinstance(one, BreakerOpen):
            wait = None if one.retry_after is None else Millis(one.retry_after)
            return Failure(ErrorClass.OVERLOAD, message, wait)
    if isinstance(error, BaseExceptionGroup):
        return min((failure_of(one, now=now) for one in error.exceptions), key=lambda one: RULES[one.error].retries)
    meant, status, wait = _meaning(error, now)
    return Failure(meant, message, wait, status=status)


def classified(error: BaseException, classifier: Classifier | None, *, now: int = 0) -> Failure:
    """The failure as the user's own classifier sees it; where it does not know, as we do.

    A classifier that raises, or that answers with no error class, is the caller's bug: its own error is raised.
    """
    if classifier is None:
        return failure_of(error, now=now)
    said = classifier(error)
    if said is None:
        return failure_of(error, now=now)
    if isinstance(said, Failure):
        return said
    ours = failure_of(error, now=now)
    return Failure(
        named_class(said, "classifier"), ours.message, ours.retry_after, ours.services, ours.status, ours.parked
    )


def named_class(name: str, where: str) -> ErrorClass:
    """The error class of that name; `Refused`, with a list of all, if there is no such class."""
    try:
        return ErrorClass(name)
    except ValueError:
        known = ", ".join(ErrorClass)
        raise Refused("bad_class", f"{name!r} is not an error class; choose one of: {known}", where=where) from None


# --- one exception ----------------------------------------------------------------------------------------------------


def _meaning(error: BaseException, now: int) -> tuple[ErrorClass, int | None, Millis | None]:
    status = _status(error)
    if status is not None and (status >= 400 or _is_named(error, "APIStatusError")):
        wait = asked_wait(_headers(error), now)
        return class_of_answer(status, _body(error), says_when=wait is not None), status, wait
    if any(_is_bad_certificate(one) for one in _chain(error, contexts=True)):
        return ErrorClass.PERMANENT, None, None
    for ancestor in type(error).__mro__:
        package = ancestor.__module__.partition(".")[0]
        named = NAMES.get((package, ancestor.__name__)) or ANYONES.get(ancestor.__name__)
        if named is not None:
            return named, status, None
        if package in _SDKS and ancestor.__name__ == "APIError":  # an error inside a stream that had begun well
            return class_of_answer(status, _body(error)), status, None
    return _of_python(error), status, None


def _of_python(error: BaseException) -> ErrorClass:
    """What Python's and Allswell's own exceptions mean."""
    if isinstance(error, _BUGS):
        return ErrorClass.BUG
    if isinstance(error, ConnectionError | TimeoutError):
        return ErrorClass.NETWORK
    if isinstance(error, Refused | LeaseLost):
        return ErrorClass.VALIDATION  # by their own words, repeating the call will not help
    if isinstance(error, Unavailable):
        return ErrorClass.NETWORK
    if isinstance(error, FileNotFoundError):
        return ErrorClass.NOT_FOUND
    if isinstance(error, PermissionError):
        return ErrorClass.AUTH
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError):
        return ErrorClass.VALIDATION
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS:
        return ErrorClass.NETWORK
    return ErrorClass.TRANSIENT


def _chain(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """The error and what it was raised from (or while), at most so deep: a chain can be made to bite its tail."""
    one: BaseException | None = error
    for _ in range(_DEEPEST):
        if one is None:
            return
        yield one
        one = one.__cause__ or (one.__context__ if contexts and not one.__suppress_context__ else None)


def _is_named(error: BaseException, name: str) -> bool:
    return any(ancestor.__name__ == name for ancestor in type(error).__mro__)


def _is_bad_certificate(error: BaseException) -> bool:
    return any(one.__name__ == "SSLCertVerificationError" and one.__module__ == "ssl" for one in type(error).__mro__)


# --- what an exception carries ----------------------------------------------------------------------------------------


def carried(owner: object, name: str) -> object:
    """An attribute, or None: a property of a foreign exception may raise anything."""
    try:
        value: object = getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - it is not ours, and we only ask
        return None
    return value


def _status(error: BaseException) -> int | None:
    """The HTTP status that an exception reports: its own, or its answer's."""
    for owner in (error, carried(error, "response")):
        for name in ("status_code", "status", "code"):
            value = carried(owner, name)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return int(value)
    return None


def _headers(error: BaseException) -> Mapping[str, str]:
    """The headers of an exception's answer, under lower-case names."""
    headers = carried(carried(error, "response"), "headers") or carried(error, "headers")
    items = carried(headers, "items")
    if not callable(items):
        return {}
    try:
        return {str(name).lower(): str(value) for name, value in items()}
    except Exception:  # noqa: BLE001
        return {}


def _body(error: BaseException) -> object:
    """The decoded body that an exception carries: the SDK's, or what its answer has already read."""
    body = carried(error, "body")
    if body is not None:
        return body
    response = carried(error, "response")
    read = carried(response, "json")
    # `requests` would go and read the rest from the network, which may take for ever.
    if not callable(read) or carried(response, "_content_consumed") is False:
        return None
    try:
        decoded: object = read()
    except Exception:  # noqa: BLE001 - not read yet, or no JSON
        return None
    return decoded


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a failure is reported even if it cannot say what it is
        return type(error).__name__


def shortened(message: str) -> str:
    """A failure is recorded whatever it says: a long message keeps its start and its end, an odd one is escaped."""
    if not message.isascii() or "\0" in message:
        message = message.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if len(message) <= MESSAGE_KEPT:
        return message
    half = MESSAGE_KEPT // 2
    return f"{message[:half]}\n… {len(message) - 2 * half} characters left out …\n{message[-half:]}"
