"""Which class an error is: real exceptions of the real libraries, made as they make them (F4, F7)."""

from __future__ import annotations

import errno
import json
import pickle
import socket
import ssl
import subprocess
import sys
from typing import Any
from urllib.error import HTTPError, URLError

import anthropic
import httpx
import httpx2
import msgspec
import openai
import pydantic
import pytest
import requests

from allswell.domain.ids import Millis
from allswell.domain.service.classify import STATUSES, class_of_answer, failure_of
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.errors import BreakerOpen, Bug, LeaseLost, Refused, ServiceParked, Unavailable

E = ErrorClass
REQUEST = httpx2.Request("POST", "http://provider/v1")


def openai_error(status: int, body: object, **headers: str) -> Exception:
    response = httpx2.Response(status, json=body, headers=headers, request=REQUEST)
    client = openai.OpenAI(api_key="k", http_client=CLIENT)
    return client._make_status_error_from_response(response)


def anthropic_error(status: int, body: object, **headers: str) -> Exception:
    response = httpx2.Response(status, json=body, headers=headers, request=REQUEST)
    client = anthropic.Anthropic(api_key="k", http_client=CLIENT)
    return client._make_status_error_from_response(response)


CLIENT = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200)))


def of_openai(code: str | None = None, kind: str = "some_error", message: str = "…") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def of_anthropic(kind: str = "api_error", message: str = "…", error_code: str | None = None) -> dict[str, Any]:
    details = {} if error_code is None else {"details": {"error_code": error_code}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


SDKS: list[tuple[Exception, ErrorClass]] = [
    (openai_error(400, of_openai()), E.VALIDATION),
    (openai_error(401, of_openai("invalid_api_key")), E.AUTH),
    (openai_error(403, of_openai()), E.AUTH),
    (openai_error(404, of_openai("model_not_found")), E.NOT_FOUND),
    (openai_error(409, of_openai()), E.TRANSIENT),
    (openai_error(422, of_openai()), E.VALIDATION),
    (openai_error(429, of_openai("rate_limit_exceeded")), E.RATE_LIMIT),
    (openai_error(500, of_openai()), E.SERVER),
    (openai_error(503, of_openai()), E.SERVER),
    (openai_error(503, of_openai("slow_down")), E.OVERLOAD),
    (openai_error(429, of_openai("insufficient_quota", "insufficient_quota")), E.PERMANENT),
    (openai_error(429, of_openai("credit_balance_exhausted", "insufficient_quota")), E.PERMANENT),
    (openai_error(429, of_openai("project_spend_limit_exceeded")), E.PERMANENT),
    (openai_error(429, of_openai(message="You exceeded your current quota, please check your plan")), E.PERMANENT),
    (openai_error(401, of_openai("account_deactivated")), E.PERMANENT),
    (openai_error(400, of_openai("billing_hard_limit_reached")), E.PERMANENT),
    (openai_error(400, of_openai("context_length_exceeded")), E.CONTEXT_OVERFLOW),
    (openai_error(400, of_openai(message="This model's maximum context length is 8192 tokens.")), E.CONTEXT_OVERFLOW),
    (openai.APIConnectionError(request=REQUEST), E.NETWORK),
    (openai.APITimeoutError(request=REQUEST), E.NETWORK),
    (openai.APIError("in a stream", REQUEST, body={"type": "server_error", "code": None}), E.SERVER),
    (openai.APIError("in a stream", REQUEST, body={"code": "rate_limit_exceeded"}), E.RATE_LIMIT),
    (openai.APIError("in a stream", REQUEST, body=None), E.TRANSIENT),
    (openai.APIResponseValidationError(httpx2.Response(200, request=REQUEST), None), E.TRANSIENT),
    (openai.ContentFilterFinishReasonError(), E.VALIDATION),
    (anthropic_error(400, of_anthropic("invalid_request_error")), E.VALIDATION),
    (anthropic_error(401, of_anthropic("authentication_error")), E.AUTH),
    (anthropic_error(402, of_anthropic("billing_error")), E.PERMANENT),
    (anthropic_error(403, of_anthropic("permission_error")), E.AUTH),
    (anthropic_error(404, of_anthropic("not_found_error")), E.NOT_FOUND),
    (anthropic_error(413, of_anthropic("request_too_large")), E.VALIDATION),
    (anthropic_error(429, of_anthropic("rate_limit_error")), E.RATE_LIMIT),
    (anthropic_error(429, of_anthropic("rate_limit_error", error_code="enforced_spend_limit_reached")), E.PERMANENT),
    (anthropic_error(500, of_anthropic("api_error")), E.SERVER),
    (anthropic_error(529, of_anthropic("overloaded_error")), E.OVERLOAD),
    (anthropic_error(403, of_anthropic("permission_error", error_code="organization_on_hold")), E.PERMANENT),
    (
        anthropic_error(
            400, of_anthropic("invalid_request_error", "Your credit balance is too low to access the API.")
        ),
        E.PERMANENT,
    ),
    (anthropic_error(400, of_anthropic("invalid_request_error", "prompt is too long: 9 > 8")), E.CONTEXT_OVERFLOW),
    (
        anthropic_error(400, of_anthropic(message="input length and `max_tokens` exceed context limit: 9 + 9 > 8")),
        E.CONTEXT_OVERFLOW,
    ),
    (anthropic_error(200, of_anthropic("overloaded_error")), E.OVERLOAD),  # an error event in a stream
    (anthropic_error(200, of_anthropic("api_error")), E.SERVER),
    (anthropic_error(200, of_anthropic("rate_limit_error")), E.RATE_LIMIT),
    (anthropic_error(500, "<html>a proxy</html>"), E.SERVER),
    (anthropic_error(400, ["what?"]), E.VALIDATION),
    (anthropic.APIConnectionError(request=REQUEST), E.NETWORK),
    (anthropic.APITimeoutError(request=REQUEST), E.NETWORK),
    (anthropic.CredentialsError("no key"), E.AUTH),
    (anthropic.RetryableError("again"), E.TRANSIENT),
]


def of_requests(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response._content = b"{}"
    return requests.HTTPError(response=response)


LIBRARIES: list[tuple[BaseException, ErrorClass]] = [
    *(
        (kind("…"), E.NETWORK)
        for flavour in (httpx, httpx2)
        for kind in (
            flavour.ConnectTimeout,
            flavour.ReadTimeout,
            flavour.WriteTimeout,
            flavour.PoolTimeout,
            flavour.ConnectError,
            flavour.ReadError,
            flavour.CloseError,
            flavour.ProxyError,
            flavour.RemoteProtocolError,
        )
    ),
    (httpx.UnsupportedProtocol("…"), E.VALIDATION),
    (httpx.InvalidURL("…"), E.VALIDATION),
    (httpx.TooManyRedirects("…"), E.VALIDATION),
    (httpx.DecodingError("…"), E.TRANSIENT),
    (httpx.StreamConsumed(), E.BUG),
    (httpx.HTTPStatusError("…", request=Any, response=httpx.Response(502)), E.SERVER),  # type: ignore[arg-type]
    (requests.ConnectionError(), E.NETWORK),
    (requests.ConnectTimeout(), E.NETWORK),
    (requests.ReadTimeout(), E.NETWORK),
    (requests.exceptions.ChunkedEncodingError(), E.NETWORK),
    (requests.exceptions.InvalidURL(), E.VALIDATION),
    (requests.exceptions.MissingSchema(), E.VALIDATION),
    (requests.exceptions.JSONDecodeError("…", "", 0), E.TRANSIENT),
    (requests.TooManyRedirects(), E.VALIDATION),
    *((of_requests(status), meant) for status, meant in STATUSES.items()),
    (of_requests(500), E.SERVER),
    (of_requests(599), E.SERVER),
    (of_requests(418), E.TRANSIENT),
    (HTTPError("u", 503, "m", {}, None), E.SERVER),  # type: ignore[arg-type]
    (URLError(ConnectionRefusedError()), E.TRANSIENT),
]

PYTHON: list[tuple[BaseException, ErrorClass]] = [
    (ConnectionRefusedError(), E.NETWORK),
    (BrokenPipeError(), E.NETWORK),
    (TimeoutError(), E.NETWORK),
    (socket.gaierror(socket.EAI_AGAIN, "…"), E.NETWORK),
    (OSError(errno.ENETUNREACH, "…"), E.NETWORK),
    (OSError(errno.EHOSTUNREACH, "…"), E.NETWORK),
    (OSError(errno.ENOSPC, "…"), E.TRANSIENT),
    (ssl.SSLError("handshake"), E.NETWORK),
    (ssl.SSLCertVerificationError("self-signed"), E.PERMANENT),
    (FileNotFoundError(), E.NOT_FOUND),
    (PermissionError(), E.AUTH),
    (IsADirectoryError(), E.VALIDATION),
    (TypeError(), E.BUG),
    (AssertionError(), E.BUG),
    (AttributeError(), E.BUG),
    (NameError(), E.BUG),
    (KeyError(), E.BUG),
    (IndexError(), E.BUG),
    (ZeroDivisionError(), E.BUG),
    (NotImplementedError(), E.BUG),
    (RecursionError(), E.BUG),
    (ModuleNotFoundError(), E.BUG),
    (UnboundLocalError(), E.BUG),
    (ValueError(), E.TRANSIENT),
    (RuntimeError(), E.TRANSIENT),
    (json.JSONDecodeError("…", "", 0), E.TRANSIENT),
    (msgspec.ValidationError(), E.VALIDATION),
    (Refused("code", "…"), E.VALIDATION),
    (LeaseLost("t_1", 1, "…"), E.VALIDATION),
    (Unavailable("…"), E.NETWORK),
    (Bug(), E.BUG),
    (ServiceParked("s", 9, 5), E.RATE_LIMIT),
    (BreakerOpen("s", 5, "…"), E.OVERLOAD),
]


@pytest.mark.row("F4", "F7")
@pytest.mark.parametrize("error, meant", [*SDKS, *LIBRARIES, *PYTHON], ids=lambda one: getattr(one, "value", None))
def test_what_an_error_means(error: BaseException, meant: ErrorClass) -> None:
    assert failure_of(error).error is meant, repr(error)


def test_pydantics_validation_error_is_one() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    assert failure_of(caught.value).error is E.VALIDATION


@pytest.mark.row("F7")
def test_a_bad_certificate_is_permanent_however_it_is_wrapped() -> None:
    for outer in (httpx.ConnectError("…"), openai.APIConnectionError(request=REQUEST), requests.exceptions.SSLError()):
        outer.__cause__ = httpx.ConnectError("between")
        outer.__cause__.__cause__ = ssl.SSLCertVerificationError("self-signed")
        assert failure_of(outer).error is E.PERMANENT


def test_what_allswell_raised_below_an_sdk_is_found() -> None:
    wrapped = openai.APIConnectionError(request=REQUEST)
    wrapped.__cause__ = ServiceParked("s", 9, 5_000)
    assert failure_of(wrapped) == Failure(E.RATE_LIMIT, failure_of(wrapped).message, Millis(5_000), parked=True)


@pytest.mark.row("F5")
def test_retry_after_comes_from_the_answers_own_headers() -> None:
    for error in (
        openai_error(429, of_openai(), **{"retry-after": "7"}),
        anthropic_error(429, of_anthropic(), **{"Retry-After-Ms": "7000"}),
        anthropic_error(529, of_anthropic(), **{"retry-after": "7"}),
    ):
        assert failure_of(error).retry_after == 7_000
    dated = {"date": "Sun, 06 Nov 1994 08:49:37 GMT", "retry-after": "Sun, 06 Nov 1994 08:49:44 GMT"}
    assert failure_of(openai_error(429, of_openai(), **dated), now=5).retry_after == 7_000
    overloaded = failure_of(openai_error(503, of_openai(), **{"retry-after": "7"}))
    assert (overloaded.error, overloaded.retry_after) == (E.OVERLOAD, 7_000)


@pytest.mark.parametrize(
    "body", [None, "text", {}, {"error": None}, {"error": "invalid_grant"}, {"error": {"code": 7}}]
)
def test_every_status_has_a_class_whatever_its_body(body: object) -> None:
    for status in range(100, 600):
        unknown = E.SERVER if status >= 500 else E.TRANSIENT
        assert class_of_answer(status, body) is (STATUSES.get(status) or unknown)


def test_a_group_is_as_hopeless_as_the_worst_in_it() -> None:
    flaky = [ConnectionError("first"), TimeoutError()]
    assert failure_of(ExceptionGroup("of tasks", flaky)).error is E.NETWORK
    assert failure_of(ExceptionGroup("of tasks", [*flaky, ExceptionGroup("more", [TypeError()])])).error is E.BUG


class Hostile(Exception):
    """An exception that does not want to be looked at."""

    def __getattr__(self, name: str) -> object:
        raise OSError(name)

    def __str__(self) -> str:
        raise ValueError


class Endless(Exception):
    """An exception whose cause is itself."""


def test_looking_at_an_exception_never_raises() -> None:
    endless = Endless()
    endless.__cause__ = endless
    for error in (Hostile(), endless):
        assert failure_of(error).error is E.TRANSIENT


def test_an_unread_answer_is_not_read() -> None:
    """`requests` would go to the network for it, and wait there."""

    class Unread(requests.Response):
        def json(self, **_: object) -> object:
            raise AssertionError("it was read")

    response = Unread()
    response.status_code = 429
    assert failure_of(requests.HTTPError(response=response)).error is E.RATE_LIMIT


@pytest.mark.parametrize(
    "error", [ServiceParked("s", 9, 5), BreakerOpen("s", None, "why"), Refused("c", "m", where="w", hint="h")]
)
def test_errors_survive_a_pickle(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_none_of_these_libraries_is_imported_to_know_them() -> None:
    code = (
        "import sys, allswell; from allswell.runtime.guard import guard; guard('s')\n"
        "from allswell.domain.service.classify import failure_of; failure_of(OSError()); failure_of(ValueError())\n"
        "print([name for name in ('httpx', 'httpx2', 'requests', 'openai', 'anthropic') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
