"""From whatever was raised to an error class: which of the rules in `retry` it falls under (F4, F7).

**No library is imported for this.** An exception is known by the names in its class's ancestry (`httpx.ReadTimeout` is
a `TimeoutException` of a package `httpx`), so a program that has no `requests` pays nothing for it, and a package that
lives on under a new name (`httpx`, `httpx2`) needs one more word here. What an exception carries (`status_code`,
`response`, `body`) is read by duck typing, and reading it never raises.

In order: what Allswell itself raised; an answer's status and body; what a name says; the operating system's errors;
what is plainly a bug. **What nobody knows is transient**, and so retried: giving up on an error because it is new would
be the worse mistake. An exception that only wraps another (`APIConnectionError` of an SDK) is judged by its cause where
that says more: a certificate that does not hold is no network trouble, however it is wrapped.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping

from allswell.domain.names import Millis
from allswell.domain.retry import RULES, ErrorClass, Failure
from allswell.domain.retry_after import asked_wait
from allswell.domain.status import class_of_answer
from allswell.errors import BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable

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
"""What a class of this name means, whoever wrote it."""

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
    """The error class of that name; `Refused` with all there are if it is none."""
    try:
        return ErrorClass(name)
    except ValueError:
        known = ", ".join(ErrorClass)
        raise Refused("bad_class", f"{name!r} is no error class; choose one of: {known}", where=where) from None


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
    """An attribute, or None: a property of somebody's exception may raise what it likes."""
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
    except Exception:  # noqa: BLE001 - a failure is told even if it cannot say what it is
        return type(error).__name__


def shortened(message: str) -> str:
    """A failure is recorded whatever it says: a long message keeps its start and its end, an odd one is escaped."""
    if not message.isascii() or "\0" in message:
        message = message.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if len(message) <= MESSAGE_KEPT:
        return message
    half = MESSAGE_KEPT // 2
    return f"{message[:half]}\n… {len(message) - 2 * half} characters left out …\n{message[-half:]}"
