"""All routes put together, and the server that has them: its gate and its port are opened, and closed in good order.

What goes wrong while it serves is logged to standard error, each kind once a minute with a count: a stranger who causes
the same trouble a thousand times a second must not fill a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp

from allswell.app import make_gate
from allswell.domain.access.key import Right, is_over
from allswell.domain.rules.bounds import check_look
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep
from allswell.domain.rules.query import Query
from allswell.domain.scopes import HEADER
from allswell.engine.access.gate import Gate
from allswell.engine.access.keys import make_link
from allswell.engine.backend import Records
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.interfaces.http import attempts, events, leases, status, tasks
from allswell.interfaces.http.events import Journal
from allswell.interfaces.http.leases import claimed
from allswell.interfaces.http.listener import ListenAddress, connections_for, listening, serve
from allswell.interfaces.http.mcp import PATH as MCP_PATH
from allswell.interfaces.http.mcp import McpRoute
from allswell.interfaces.http.metrics import PATH as METRICS
from allswell.interfaces.http.metrics import Metrics, ServerTally
from allswell.interfaces.http.request_context import RequestContext, ServerState
from allswell.interfaces.http.routing import Route, answer_to, openapi_document, problem_of
from allswell.interfaces.http.security import (
    AT_A_TIME,
    KEY,
    KEY_SHARE,
    OPEN,
    AllowedHosts,
    RequestLimits,
    SecurityMiddleware,
    host_name,
)
from allswell.interfaces.http.webhooks import Hooks, IncomingHook, make_hooks
from allswell.remote.discovery import noted
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
from allswell.runtime.host import raise_limit
from allswell.settings import Settings
from allswell.timing.moment import to_json

# All routes, put together: `/api/v1`, its OpenAPI, and whether this process lives and can work.

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
    *tasks.DECISION_ROUTES,
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
        body = to_json(answer)
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


FIRST = "browser"
"""The key that is made where there is none, an operator's; nobody is told its secret."""
LOG_SECONDS = 60.0
_KINDS_MOST = 1_000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Served:
    """What is served, and who hears what is worth saying."""

    url: str
    settings: Settings
    home: Path
    tell: Tell


def run(served: Served, address: ListenAddress) -> None:
    """Serve a store until a signal comes."""
    with listening(address) as (made, where):

        async def live() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            await serve_on(served, made, where, stop)
            served.tell("stopped")

        asyncio.run(live())


class OncePerMinute(logging.Filter):
    """Lets the first record of a kind pass, and the next one after a minute with the number of those left out."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}
        """When a record of each kind last passed, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this record is written; a kind is a logger, a level and the first line of a message's template."""
        kind = (record.name, record.levelno, str(record.msg).partition("\n")[0][:200])
        now = self._seconds()
        passed_at, left_out = self._seen.get(kind, (None, 0))
        if passed_at is not None and now - passed_at < LOG_SECONDS:
            self._seen[kind] = (passed_at, left_out + 1)
            return False
        if len(self._seen) >= _KINDS_MOST:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        if left_out and passed_at is not None:
            record.msg = f"{record.getMessage()} (and {left_out:,} more like it in the last {now - passed_at:.0f} s)"
            record.args = None
        return True


def log_to_stderr() -> None:
    """Write warnings and errors to standard error, unless the process has been told where to log."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.addFilter(OncePerMinute())
        root.addHandler(handler)


async def serve_on(served: Served, made: socket.socket, where: ListenAddress, stop: asyncio.Event) -> None:
    """Serve a store on a socket that listens, until `stop` is set."""
    log_to_stderr()
    hooks = make_hooks(served.settings.hooks)
    async with make_gate(served.url, served.settings, tell_of_wait=served.tell) as gate:
        house = ServerState(gate, served.url, served.settings, served.home, Journal(gate.watch), asyncio.Event())
        house.counting = ServerTally(gate.watch)
        mcp = McpRoute(lambda: house)
        with noted(served.home, where.url):
            await _say(gate, where, served.tell)
            reading = asyncio.gather(house.journal.read(), house.counting.count())
            mcp.start()
            try:
                await serve(app_of(house, where, mcp, hooks), made, where, stop.wait(), house.closing.set)
            finally:
                await mcp.end()
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading


def app_of(
    house: ServerState, where: ListenAddress, mcp: McpRoute, hooks: Mapping[str, IncomingHook]
) -> SecurityMiddleware:
    """The whole application, from the doorkeeper inward."""
    from allswell.interfaces.web.app import Page

    limits = RequestLimits(time.monotonic, at_a_time=min(AT_A_TIME, connections_for(raise_limit()) // KEY_SHARE))
    shown = (*OPEN, METRICS) if where.open_metrics else OPEN
    public = house.settings.public_origin
    name = None if public is None else host_name(urlsplit(public).netloc)
    hosts = AllowedHosts(where.hosts, where.secure, name, shown)
    page = Page(lambda: house, limits, hosts)
    inner = api(lambda: house, mcp)
    taken = Hooks(hooks, lambda: house, limits, lambda: time.time_ns() // 1_000_000)
    return SecurityMiddleware(inner, lambda: house.gate, hosts, limits, page=page, hooks=taken)


async def _say(gate: Gate, where: ListenAddress, tell: Tell) -> None:
    """Where it is; and on a store that nobody has a key for, a first one, for the browser of whoever started this."""
    tell(f"serving {where.url}; Ctrl-C stops")
    now = await gate.watch.now()
    if not all(is_over(key, now) for key in await gate.keyring.all()):
        tell("`allswell key link NAME` prints a link that opens the page, once")
        return
    if where.unix is not None:  # no browser opens that
        tell("there is no key yet: `allswell key create NAME --right operator` makes one")
        return
    with contextlib.suppress(Refused):  # another server has just made it
        await gate.keyring.create(FIRST, [Right.OPERATOR], by="allswell serve")
    link = await make_link(gate.watch, FIRST, by="allswell serve")
    tell(f"open {where.page}/enter?link={link} (it works once, for ten minutes; then `allswell key link {FIRST}`)")
