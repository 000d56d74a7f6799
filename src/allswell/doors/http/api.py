"""All routes, put together: `/api/v1`, its OpenAPI, and whether this process lives and can work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp

from allswell.domain.carried import HEADER
from allswell.doors.http import attempts, deciding, events, keys, leases, looking, mesh, tasks, upkeep, wired
from allswell.doors.http.call import Call, House
from allswell.doors.http.doorkeeper import KEY
from allswell.doors.http.mcp import PATH as MCP_PATH
from allswell.doors.http.metrics import PATH as METRICS
from allswell.doors.http.metrics import Metrics
from allswell.doors.http.openapi import document
from allswell.doors.http.problem import answer_to
from allswell.doors.http.route import Route
from allswell.errors import AllswellError, Refused

log = logging.getLogger("allswell.http")
PREFIX = "/api/v1"
ROUTES: tuple[Route[Any], ...] = (
    *tasks.ROUTES,
    *leases.ROUTES,
    *deciding.ROUTES,
    *mesh.ROUTES,
    *looking.ROUTES,
    *attempts.ROUTES,
    *upkeep.ROUTES,
    *events.ROUTES,
    *keys.ROUTES,
    *wired.ROUTES,
)
_READY_SECONDS = 2.0
_LATE = 10_000
"""Milliseconds that what is due may wait for a sweeper before this server is not ready."""


def api(house: Callable[[], House], mcp: ASGIApp) -> ASGIApp:
    """The routes of a server; the house is there once it is open."""
    routes = [
        HttpRoute(MCP_PATH, mcp),
        HttpRoute("/healthz", _lives, methods=["GET"]),
        HttpRoute("/readyz", _ready(house), methods=["GET"]),
        HttpRoute(METRICS, _scraped(house), methods=["GET"]),
        HttpRoute(f"{PREFIX}/openapi.json", _described, methods=["GET"]),
        *(HttpRoute(PREFIX + one.path, _endpoint(one, house), methods=[one.method]) for one in ROUTES),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})


def _endpoint(route: Route[Any], house: Callable[[], House]) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        call = Call(request, house(), request.scope[KEY])
        try:
            left = call.remaining
            async with asyncio.timeout(None if left is None else left / 1000):
                answer = await route.carried_out(call)
        except TimeoutError:
            text = "the time that the caller has is up; what was asked may have been done"
            return answer_to(Refused("out_of_time", text, where=HEADER))
        except AllswellError as error:
            return answer_to(error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:
            log.exception("a call of %s failed", route.path)
            return answer_to(error)
        if isinstance(answer, Response):
            return answer
        body = msgspec.json.encode(answer)
        return Response(body, route.status, _remaining(answer), "application/json")

    return answered


def _remaining(answer: msgspec.Struct) -> dict[str, str]:
    """What the lease that is answered about still has; of several, the one that ends first."""
    leases_ = getattr(answer, "claims", None) or [answer]
    left = [one.remaining_ms for one in leases_ if hasattr(one, "remaining_ms")]
    return {HEADER: str(max(0, min(left)))} if left else {}


async def _lives(_: Request) -> Response:
    return JSONResponse({"alive": True})


def _ready(house: Callable[[], House]) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        why = "the store does not answer"
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                agenda = await house().gate.watch.views.view_agenda()
            late = 0 if agenda.next_due is None else agenda.now - agenda.next_due
            if late < _LATE and not house().closing.is_set():
                return JSONResponse({"ready": True, "why": None})
            why = "the server stops" if late < _LATE else f"what is due has waited for {late // 1000} s"
        return JSONResponse({"ready": False, "why": why}, 503, {"Retry-After": "2"})

    return ready


def _scraped(house: Callable[[], House]) -> Callable[[Request], Awaitable[Response]]:
    metrics = Metrics()

    async def scraped(request: Request) -> Response:
        try:
            return await metrics.answer(house(), request.scope.get(KEY))
        except AllswellError as error:
            return answer_to(error)

    return scraped


async def _described(_: Request) -> Response:
    return Response(msgspec.json.encode(document(ROUTES, PREFIX)), media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return answer_to(Refused("bad_method", f"{request.method} is not done at {request.url.path}", where="method"))
    hint = f"{PREFIX}/openapi.json lists what there is"
    return answer_to(Refused("no_route", f"there is nothing at {request.url.path[:200]}", where="path", hint=hint))
