"""All routes, put together: `/api/v1`, its OpenAPI, and whether this process lives and can work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp

from allswell.domain.rules.bounds import check_look
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep
from allswell.domain.rules.query import Query
from allswell.domain.scopes import HEADER
from allswell.engine.backend import Records
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.interfaces.http import attempts, decisions, events, leases, status, tasks
from allswell.interfaces.http.leases import claimed
from allswell.interfaces.http.mcp import PATH as MCP_PATH
from allswell.interfaces.http.metrics import PATH as METRICS
from allswell.interfaces.http.metrics import Metrics
from allswell.interfaces.http.request_context import RequestContext, ServerState
from allswell.interfaces.http.routing import Route, answer_to, openapi_document, problem_of
from allswell.interfaces.http.security import KEY
from allswell.remote.wire import (
    CALLS,
    WAIT_MOST,
    Answering,
    CommandResult,
    CompareAndSet,
    EncodedCommand,
    Revise,
    heard,
)

# For watches that live elsewhere (`allswell.remote`): commands and looks as they are inside, by their names.
#
# Programs without Allswell use the other routes. What these two take and answer are rows and commands of this version.

_MOST = 1_000


class CommandsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Commands to be decided together; a claim may be waited for, if it comes alone."""

    commands: Annotated[list[EncodedCommand], Meta(min_length=1, max_length=_MOST)]
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MOST)] = 0


async def say_commands(call: RequestContext, given: CommandsParams) -> Answering:
    """Have commands decided together: for each an answer, or what went wrong."""
    commands = [_heard(one) for one in given.commands]
    kinds = {type(one) for one in commands}
    answers: list[object]
    if kinds == {Claim} and len(commands) == 1:
        return await _claimed(call, commands, given.wait_ms)
    if kinds == {Claim}:
        granted, _ = await call.backend.claim_each([one for one in commands if isinstance(one, Claim)])
        answers = list(granted)
    elif kinds == {CheckIn}:
        answers = await call.backend.check_in_many([one for one in commands if isinstance(one, CheckIn)])
    elif kinds == {RecordStep}:
        answers = [await _recorded(call, one) for one in commands if isinstance(one, RecordStep)]
    else:
        answers = await call.backend.do_many(commands)
    return Answering([_told(one) for one in answers])


def _heard(one: EncodedCommand) -> Command:
    try:
        command = heard(one)
    except msgspec.ValidationError as error:
        raise Refused("bad_command", f"{one.command} does not fit: {error}", where="commands") from None
    if command is None:
        raise Refused("unknown_command", f"there is no command {one.command[:60]!r} here", where="commands")
    return command


async def _claimed(call: RequestContext, commands: Sequence[Command], wait: int) -> Answering:
    (claim,) = [one for one in commands if isinstance(one, Claim)]
    began = asyncio.get_running_loop().time()
    try:
        got = await claimed(call, claim, wait)
    except Unavailable:
        raise
    except AllswellError as error:
        return Answering([_told(error)])
    return Answering([_told(got.granted)], max(0, int((got.sent - began) * 1000)))


async def _recorded(call: RequestContext, step: RecordStep) -> object:
    try:
        await call.backend.record(step)
    except AllswellError as error:
        return error
    return None


def _told(answer: object) -> CommandResult:
    if isinstance(answer, AllswellError):
        return CommandResult(error=problem_of(answer))
    return CommandResult(answer=Raw(msgspec.json.encode(answer)))


class LookParams(Struct, frozen=True):
    """What a look takes; its own arguments stand in its place."""


async def look_at(call: RequestContext, _: LookParams) -> Response:
    """Look at what is kept, by the name of a view; the answer is its value."""
    wanted = CALLS.get(call.named("view"))
    if wanted is None:
        raise Refused("unknown_view", f"there is no view {call.named('view')[:60]!r}", where="view")
    try:
        asked = msgspec.json.decode(await call.body() or b"{}", type=wanted.arguments)
    except msgspec.DecodeError as error:
        raise Refused("bad_body", f"{call.named('view')} does not take this: {error}", where="body") from None
    check_look(asked, call.named("view"))
    return Response(msgspec.json.encode(await _answer(call.backend.store, asked)), media_type="application/json")


async def _answer(store: Records, asked: Struct) -> object:
    match asked:
        case Query():
            return await store.view(asked)
        case CompareAndSet():
            return await store.compare_and_set(asked.key, asked.before, asked.after)
        case Revise():
            await store.revise(asked.changed, asked.gone)
            return None
        case _:
            raise Bug(f"nothing is done with {asked!r}")


RPC_ROUTES = (
    Route("POST", "/commands", say_commands, CommandsParams, (Answering,)),
    Route("POST", "/views/{view}", look_at, LookParams, ()),
)


log = logging.getLogger("allswell.http")
PREFIX = "/api/v1"
ROUTES: tuple[Route[Any], ...] = (
    *tasks.ROUTES,
    *leases.ROUTES,
    *decisions.ROUTES,
    *leases.REQUEST_ROUTES,
    *status.ROUTES,
    *attempts.ROUTES,
    *status.ADMIN_ROUTES,
    *events.ROUTES,
    *status.KEY_ROUTES,
    *RPC_ROUTES,
)
_READY_SECONDS = 2.0
_LATE = 10_000
"""Milliseconds that what is due may wait for a sweeper before this server is not ready."""


def api(house: Callable[[], ServerState], mcp: ASGIApp) -> ASGIApp:
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


def _endpoint(route: Route[Any], house: Callable[[], ServerState]) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        call = RequestContext(request, house(), request.scope[KEY])
        try:
            left = call.remaining
            async with asyncio.timeout(None if left is None else left / 1000):
                answer = await route.carried_out(call)
        except TimeoutError:
            text = "the time that the caller has is up; what was asked may have been done"
            return answer_to(Refused("out_of_time", text, where=HEADER))
        except AllswellError as error:
            return answer_to(error)
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
    left = [one.remaining_ms for one in leases_ if getattr(one, "remaining_ms", None) is not None]
    return {HEADER: str(max(0, min(left)))} if left else {}


async def _lives(_: Request) -> Response:
    return JSONResponse({"alive": True})


def _ready(house: Callable[[], ServerState]) -> Callable[[Request], Awaitable[Response]]:
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


def _scraped(house: Callable[[], ServerState]) -> Callable[[Request], Awaitable[Response]]:
    metrics = Metrics()

    async def scraped(request: Request) -> Response:
        try:
            return await metrics.answer(house(), request.scope.get(KEY))
        except AllswellError as error:
            return answer_to(error)

    return scraped


async def _described(_: Request) -> Response:
    return Response(msgspec.json.encode(openapi_document(ROUTES, PREFIX)), media_type="application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return answer_to(
            Refused("bad_method", f"{request.method} is not allowed for {request.url.path}", where="method")
        )
    hint = f"{PREFIX}/openapi.json lists what there is"
    return answer_to(Refused("no_route", f"there is nothing at {request.url.path[:200]}", where="path", hint=hint))
