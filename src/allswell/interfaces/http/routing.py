"""How a route is declared: a method, a path, what it takes, what it answers, and the function that does it.

What a GET takes stands in its query, what a POST takes is a JSON object in its body; both are one Struct, so that
OpenAPI, decoding and the function's own type cannot disagree. The function's docstring is what OpenAPI says about it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil
from typing import Any, Generic, Literal, TypeVar, get_origin

import msgspec
from msgspec import UNSET, Struct
from starlette.datastructures import QueryParams
from starlette.responses import Response

from allswell.errors import BreakerOpen, LeaseLost, Refused, Unavailable, without_place
from allswell.interfaces.http.request_context import RequestContext
from allswell.remote.wire import WireProblem
from allswell.views.fields import ErrorShape

# What went wrong, as RFC 9457 has it: the one shape of an error (`views/fields.py`) with a status of HTTP.
#
# `type` names the code, `detail` is the message, and all our fields are extensions. A caller branches on `kind`.

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:allswell:error:"
_TITLES = {
    "refused": "It cannot be done",
    "lease_lost": "The lease is over",
    "unavailable": "The store cannot be reached",
    "service_parked": "A service asked to wait",
    "breaker_open": "A service is not called for a while",
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
    "over_quota": 429,
    "out_of_time": 504,
}
_RETRY_S = 2


def status_of(error: BaseException) -> int:
    """The status that goes with an error."""
    error = without_place(error)
    if isinstance(error, Refused):
        unknown = 404 if error.code.startswith("unknown_") else 422
        return _STATUS.get(error.code, unknown)
    if isinstance(error, LeaseLost):
        return 409
    return 503 if isinstance(error, Unavailable) else 500


def problem_of(error: BaseException) -> WireProblem:
    """An error as it is told."""
    error = without_place(error)
    told = ErrorShape.of(error).error
    reason = error.reason if isinstance(error, LeaseLost | BreakerOpen) else UNSET
    place = error.place if isinstance(error, Refused) and error.place is not None else UNSET
    return WireProblem(
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


T = TypeVar("T", bound=Struct)


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """For a route that takes nothing but its path."""


@dataclass(frozen=True)
class Route(Generic[T]):
    """One route under `/api/v1`."""

    method: Literal["GET", "POST"]
    path: str
    does: Callable[[RequestContext, T], Awaitable[Struct | Response]]
    takes: type[T]
    answers: tuple[type[Struct], ...]
    status: int = 200
    also: tuple[str, ...] = ()
    """What else it can answer with, beside JSON: `text/event-stream`, where it can be followed."""

    @property
    def says(self) -> str:
        """What it does, in a sentence or more."""
        return " ".join((self.does.__doc__ or "").split())

    @property
    def name(self) -> str:
        """What it is called in OpenAPI."""
        return self.does.__name__

    async def carried_out(self, call: RequestContext) -> Struct | Response:
        """The answer to a call."""
        return await self.does(call, self._asked(call.query) if self.method == "GET" else await self._taken(call))

    def _asked(self, query: QueryParams) -> T:
        kinds = {field.name: field.type for field in msgspec.structs.fields(self.takes)}
        given: dict[str, Any] = {}
        for name in query:
            many = get_origin(kinds.get(name)) is tuple
            given[name] = query.getlist(name) if many else query[name]
        try:
            return msgspec.convert(given, self.takes, strict=False)
        except msgspec.ValidationError as error:
            raise Refused("bad_query", f"the query does not fit: {error}", where="query") from None

    async def _taken(self, call: RequestContext) -> T:
        body = await call.body() or b"{}"
        try:
            return msgspec.json.decode(body, type=self.takes)
        except msgspec.ValidationError as error:
            raise Refused("bad_body", f"the body does not fit: {error}", where="body") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused("not_json", f"the body is not JSON: {error}", where="body") from None


# OpenAPI 3.1 of the routes, made from what they are declared with.

_PLACE = re.compile(r"\{(\w+)\}")
_SUFFIX = re.compile(r"(?<=[A-Za-z])Shape(?=\")")
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "An id of the caller's own for what it asks: sent twice, it counts once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
}
_REMAINING = {
    "name": "Allswell-Remaining-Ms",
    "in": "header",
    "description": "How many milliseconds the caller still has; nothing is waited for longer.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,11}$"},
}


def openapi_document(routes: Iterable[Route[Any]], prefix: str) -> dict[str, Any]:
    """The whole description."""
    routes = list(routes)
    shapes = list(dict.fromkeys([WireProblem, *(shape for one in routes for shape in (one.takes, *one.answers))]))
    refs, found = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    of = dict(zip(shapes, refs, strict=True))
    paths: dict[str, Any] = {}
    for one in routes:
        paths.setdefault(prefix + one.path, {})[one.method.lower()] = _operation(one, of, found)
    made = {
        "openapi": "3.1.0",
        "info": {"title": "Allswell", "version": version("allswell"), "description": "The night watch for agents."},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "awk_NAME_SECRET"}},
            "schemas": dict(sorted(found.items())),
        },
    }
    text = _SUFFIX.sub("", msgspec.json.encode(made).decode())
    told: dict[str, Any] = msgspec.json.decode(text)
    return told


def _operation(one: Route[Any], of: dict[Any, Any], found: dict[str, Any]) -> dict[str, Any]:
    said = one.says.partition(". ")[0].rstrip(".")
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PLACE.findall(one.path)
    ]
    told: dict[str, Any] = {"operationId": one.name, "summary": f"{said}.", "description": one.says}
    if one.method == "GET":
        parameters += _query(found[one.takes.__name__])
    else:
        parameters.append(_IDEMPOTENCY)
        if one.takes is not NoParams:
            told["requestBody"] = {"required": True, "content": {"application/json": {"schema": of[one.takes]}}}
    told["parameters"] = [*parameters, _REMAINING]
    content = {"application/json": {"schema": of[one.answers[0]] if one.answers else {}}}
    content |= {kind: {"schema": {"type": "string"}} for kind in one.also}
    problem = {"description": "What went wrong", "content": {MEDIA_TYPE: {"schema": of[WireProblem]}}}
    told["responses"] = {str(one.status): {"description": f"{said}.", "content": content}, "default": problem}
    return told


def _query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    needed = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": {key: value for key, value in about.items() if key != "description"},
            **({"description": about["description"]} if "description" in about else {}),
        }
        for name, about in schema.get("properties", {}).items()
    ]
