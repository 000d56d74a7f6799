"""The page's routes: who is let in, what they are shown, and the headers of each answer.

The doorkeeper has checked Host and Origin before. Here a cookie stands for a key; without one there is nothing but the
log in and the files that pages load. A GET changes nothing; a POST has the token of its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from allswell.domain.access.answer_link import PATH
from allswell.domain.access.key import LINK_MARK, SESSION_LASTS, check_csrf, csrf_of, session_parts_of
from allswell.domain.access.rights import Operation, may
from allswell.domain.rules.event import Entry, Position
from allswell.engine.access.gate import Gate
from allswell.engine.access.keys import LoggedIn
from allswell.engine.lookup import find_question, find_task
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.interfaces.http.request_context import RequestContext, ServerState, read_body
from allswell.interfaces.http.routing import problem_of, status_of
from allswell.interfaces.http.security import KEY, AllowedHosts, RequestLimits
from allswell.interfaces.web import admin, agents, questions, runs, tasks
from allswell.interfaces.web.answer import LinkedAnswers
from allswell.interfaces.web.screen import STATIC, TEMPLATES, PageScreen

# Screens as they change: the block `screen` of a page that is open, sent again as Server-Sent Events.
#
# Each message is the whole screen as it is now, so a connection that was lost needs no place to go on from: the first
# message after it tells everything. The journal is read once for all (`interfaces/http/events.py`); a screen that many
# have open is drawn once for all who have the same rights, and one that takes long to draw is drawn less often.

LEAST = 0.4
"""Seconds between two drawings of one screen, at least."""
MOST = 2.0
"""And at most, however long one takes."""
PULSE = 4.0
"""Seconds after which a page is sent a sign of life, however rarely its screen is drawn: at 35 it gives us up."""
_SHARE = 5
_AGAIN = 1.0
_KEPT = 200
BEAT = b"event: beat\ndata: still here\n\n"

Draw = Callable[[], Awaitable[str]]


class ScreenCache:
    """The last drawing of each screen, for all who look at it at the same time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Position, float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, name: str, at: Position, fresh: float, draw: Draw) -> tuple[str, float]:
        """The drawing of a screen, as it is since this place in the journal, and how many seconds it took.

        One that is younger than `fresh` seconds and has seen the same events is shared.
        """
        if len(self._locks) > _KEPT:
            self._last.clear()
            self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        async with self._locks.setdefault(name, asyncio.Lock()):
            begun = time.monotonic()
            kept = self._last.get(name)
            if kept is not None and kept[0] >= at and begun - kept[1] < fresh:
                return kept[2], 0.0
            drawn = await draw()
            self._last[name] = (at, begun, drawn)
            return drawn, time.monotonic() - begun


def message(drawn: str) -> bytes:
    """A drawing as one event."""
    return b"".join(b"data: %s\n" % line.encode() for line in drawn.split("\n")) + b"\n"


async def frames(
    call: RequestContext,
    drawn: Callable[[Position], Awaitable[tuple[str, float]]],
    fits: Callable[[Entry], bool],
    beat: float,
    holds: Callable[[], Awaitable[object]],
) -> AsyncIterator[bytes]:
    """The screen now, and whenever it may have changed, until the server stops or the session is over."""
    closing: asyncio.Future[Any] = asyncio.ensure_future(call.house.closing.wait())
    journal, last = call.house.journal, ""
    try:
        while not closing.done():
            try:
                at = await journal.end()
                text, took = await drawn(at)
                yield message(text) if text != last else BEAT
                last = text
                await _pause(closing, max(LEAST, min(took * _SHARE, MOST)))
                waited = 0.0
                while (
                    not await _news(call, at, fits, min(PULSE, beat - waited), closing)
                    and (waited := waited + PULSE) < beat
                ):
                    await holds()
                    yield BEAT
                await holds()
            except Unavailable:  # the reader hears nothing, and gets the screen when the store is back
                await _pause(closing, _AGAIN)
            except Refused:
                return  # it is told why when it comes again
    finally:
        closing.cancel()


async def _pause(closing: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait([closing], timeout=seconds)


async def _news(
    call: RequestContext, after: Position, fits: Callable[[Entry], bool], beat: float, closing: asyncio.Future[Any]
) -> bool:
    """Until an event comes that fits, the beat is over, or the server stops; whether it is not just the beat."""

    async def come() -> None:
        async for entries in call.house.journal.follow(after, call.views, beat):
            if any(fits(entry) for entry in entries):
                return

    coming: asyncio.Future[Any] = asyncio.ensure_future(come())
    try:
        await asyncio.wait([coming, closing], timeout=beat, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            await coming
        return coming.done() or closing.done()
    finally:
        coming.cancel()
        with contextlib.suppress(asyncio.CancelledError, AllswellError):
            await coming


# What can be done from the page: each a form that is posted, and the call of the watch that it is made into.
#
# Forms are a session's own (`csrf`), and say by a field `back` where the page goes on for a browser without scripts.
# What is wrong with them is told as everywhere: by the rule that refuses.

Form = Mapping[str, str]


@dataclass(frozen=True)
class Action:
    """One thing that can be done; `does` answers with a sentence about what was done."""

    path: str
    does: Callable[[RequestContext, Form], Awaitable[str]]


async def answer(call: RequestContext, form: Form) -> str:
    """Decide a question: the button that was pressed is the option, and what it takes stands beside it."""
    option = form.get("option", "")
    words = form.get(f"words-{option}", "")
    return (await call.operator().answer_as_typed(call.named("question"), option, words)).says


async def dismiss_question(call: RequestContext, _: Form) -> str:
    """Say that a question was seen."""
    return (await call.operator().dismiss(await find_question(call.views, call.named("question")))).says


async def dismiss_task(call: RequestContext, _: Form) -> str:
    """Say that the end of a task was seen."""
    return (await call.operator().dismiss(await find_task(call.views, call.named("task")))).says


async def retry_task(call: RequestContext, form: Form) -> str:
    """Hand an ended task over again."""
    return (await call.operator().retry(call.named("task"), dependents="with_dependents" in form)).says


async def cancel_task(call: RequestContext, form: Form) -> str:
    """Call a task off."""
    id_ = await find_task(call.views, call.named("task"))
    return (await call.operator().cancel(id_, form.get("reason", ""))).says


DEEDS = (
    Action("/questions/{question}/answer", answer),
    Action("/questions/{question}/dismiss", dismiss_question),
    Action("/tasks/{task}/dismiss", dismiss_task),
    Action("/tasks/{task}/retry", retry_task),
    Action("/tasks/{task}/cancel", cancel_task),
)


# Logging in and out: by a link that works once, or by a key; then a cookie stands for the key.
#
# The link shows a button, and the button's POST uses it up: a program that looks at addresses in advance takes nothing
# away. The cookie can be read by no script (`HttpOnly`), is sent by no other site (`SameSite=Strict`), and over TLS by
# no open connection (`Secure`). Cookies of one host are shared by all its ports, so its name has the port.

_BACK = re.compile(r"/(?![/\\])[\x21-\x7e]{0,500}")


def back_to(given: str) -> str:
    """Where somebody came from, if that is a place of this server; otherwise the first screen."""
    return given if _BACK.fullmatch(given) and "\\" not in given else "/"


def cookie_name(request: Request, *, secure: bool) -> str:
    """What the cookie is called at this server."""
    if secure:
        return "__Host-allswell"
    port = request.url.port
    return "allswell" if port is None else f"allswell-{port}"


def name_in(link: str) -> str | None:
    """Whose link it is, by what it says of itself; None if it is no link at all."""
    parts = session_parts_of(LINK_MARK, link)
    return None if parts is None else parts[0]


async def entered(gate: Gate, form: dict[str, str]) -> str:
    """The cookie for whoever has shown a link or a key; otherwise `Refused`."""
    if "link" in form:
        return await gate.sessions.enter(form["link"].strip())
    return await gate.sessions.log_in(await gate.admit(form.get("key", "").strip()))


def let_in(request: Request, cookie: str, back: str, *, secure: bool) -> Response:
    """The answer to a log in."""
    answer = RedirectResponse(back_to(back), status_code=303)
    name = cookie_name(request, secure=secure)
    lasts = SESSION_LASTS // 1000
    answer.set_cookie(name, cookie, max_age=lasts, path="/", secure=secure, httponly=True, samesite="strict")
    return answer


def let_out(request: Request, *, secure: bool) -> Response:
    """The answer to a log out."""
    answer = RedirectResponse("/login", status_code=303)
    name = cookie_name(request, secure=secure)
    answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
    return answer


# All screens, put together; the navigation shows those that have a label, in this order.

_FOLLOWS = 2.0
"""Seconds between two looks at what an attempt prints: that is in no journal."""
_VERDICT = 4.0
"""Seconds between two looks at the whole watch: no journal tells that a supervisor has died, or that a disk is full."""
_RARELY = 60.0

SCREENS: tuple[PageScreen, ...] = (
    PageScreen("/", "front.html", questions.look_at_front, label="Now", beat=_VERDICT),
    PageScreen("/runs", "runs.html", runs.look_at_runs, label="Runs"),
    PageScreen("/runs/{run}", "run.html", runs.look_at_run, refreshes=runs.is_about),
    PageScreen("/tasks", "tasks.html", tasks.look_at_tasks, label="Tasks"),
    PageScreen("/tasks/{task}", "task.html", tasks.look_at_task, refreshes=tasks.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/log", "log.html", tasks.look_at_log, refreshes=tasks.is_about, beat=_FOLLOWS),
    PageScreen("/tasks/{task}/diff", "diff.html", tasks.look_at_changes, refreshes=tasks.is_about, beat=_RARELY),
    PageScreen("/agents", "agents.html", agents.look_at_agents, label="Agents"),
    PageScreen("/agents/{agent:path}", "agent.html", agents.look_at_agent),
    PageScreen("/messages", "messages.html", agents.look_at_messages, label="Messages", refreshes=agents.is_message),
    PageScreen("/builds", "builds.html", runs.look_at_builds, label="Builds"),
    PageScreen("/builds/{run}", "build.html", runs.look_at_build, refreshes=runs.is_about),
    PageScreen("/worker", "worker.html", admin.look_at_worker, label="Worker"),
    PageScreen("/journal", "journal.html", admin.look_at_journal, label="Journal"),
    PageScreen(
        "/settings", "settings.html", admin.look_at_settings, label="Settings", refreshes=admin.never, beat=_RARELY
    ),
)


log = logging.getLogger("allswell.page")
LIVE = "/live"
LOGIN_MOST = 4_096
"""Bytes of a form that comes before its sender is known: a link or a key."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Referrer-Policy": "same-origin",  # with none at all, browsers post our own forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FORM_MOST = 2 << 20
"""Bytes of a form of somebody who is logged in: the longest words there can be, as browsers write them."""
_FIELDS_MOST = 100
_KEPT_FOR_EVER = "public, max-age=31536000, immutable"

Answered = Callable[[Request], Awaitable[Response]]


class Page:
    """The page of a server."""

    def __init__(self, house: Callable[[], ServerState], limits: RequestLimits, hosts: AllowedHosts) -> None:
        self._house = house
        self._limits = limits
        self._hosts = hosts
        self._links = LinkedAnswers(house, time.monotonic)
        self._drawings = ScreenCache()
        self._csrf_mark = f"csrf-{secrets.token_hex(16)}"
        """Stands in a drawing, which many share, where each has its own token; no text of an agent's can contain it."""
        routes = [
            HttpRoute("/static/{name}", _file, methods=["GET"]),
            HttpRoute("/login", self._login, methods=["GET"]),
            HttpRoute("/enter", self._linked, methods=["GET"]),
            HttpRoute("/login", self._entered, methods=["POST"]),
            HttpRoute("/enter", self._entered, methods=["POST"]),
            HttpRoute("/logout", self._told(self._left), methods=["POST"]),
            HttpRoute(f"{PATH}{{token}}", self._links.show, methods=["GET"]),
            HttpRoute(f"{PATH}{{token}}", self._links.choose, methods=["POST"]),
        ]
        routes += [HttpRoute(deed.path, self._deed(deed), methods=["POST"]) for deed in DEEDS]
        for screen in SCREENS:
            routes.append(HttpRoute(screen.path, self._shown(screen), methods=["GET"]))
            routes.append(HttpRoute(LIVE + screen.path.rstrip("/"), self._followed(screen), methods=["GET"]))
        self._app = Starlette(routes=routes, exception_handlers={HTTPException: self._no_place})
        for screen in SCREENS:
            TEMPLATES.get_template(screen.template)  # the first reader need not wait until it is compiled
        self._heads = frozenset(one.path.split("/")[1] for one in routes)

    def owns(self, path: str) -> bool:
        """Whether this is a place of the page, by the first part of its path."""
        return path.split("/")[1] in self._heads if path.startswith("/") else False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call."""
        await self._app(scope, receive, send)

    # --- who is there -------------------------------------------------------------------------------------------------

    def _over_tls(self, request: Request) -> bool:
        return self._hosts.over_tls(request.headers.get("host", ""))

    def _cookie(self, request: Request) -> str:
        return request.cookies.get(cookie_name(request, secure=self._over_tls(request)), "")

    async def _who(self, request: Request) -> LoggedIn:
        who = await self._house().gate.sessions.known(self._cookie(request))
        request.scope[KEY] = who.key
        return who

    @contextmanager
    def _counted(self, who: LoggedIn) -> Iterator[None]:
        wait = self._limits.enter(who.key.name)
        if wait is not None:
            raise Refused("too_many_calls", "too many requests, or too many at a time", where="page")
        try:
            yield
        finally:
            self._limits.leave(who.key.name)

    # --- screens ------------------------------------------------------------------------------------------------------

    def _shown(self, screen: PageScreen) -> Answered:
        async def shown(request: Request) -> Response:
            who = await self._who(request)
            with self._counted(who):
                text = await self._draw(screen, RequestContext(request, self._house(), who.key), request, live=False)
            return _html(text.replace(self._csrf_mark, csrf_of(who.secret)))

        return self._told(shown)

    def _followed(self, screen: PageScreen) -> Answered:
        async def followed(request: Request) -> Response:
            try:
                who = await self._who(request)
            except AllswellError as error:
                return Response(problem_of(error).detail, status_of(error), _HEADERS, "text/plain")
            call = RequestContext(request, self._house(), who.key)
            name = f"{request.url.path}?{request.url.query} {' '.join(who.key.rights)}"

            async def drawn(at: Position) -> tuple[str, float]:
                text, took = await self._drawings.get(
                    name, at, screen.beat / 2, lambda: self._draw(screen, call, request, live=True)
                )
                return text.replace(self._csrf_mark, csrf_of(who.secret)), took

            lines = frames(
                call, drawn, lambda entry: screen.refreshes(call, entry), screen.beat, lambda: self._who(request)
            )
            return StreamingResponse(
                self._within(who, lines),
                headers={**_HEADERS, "X-Accel-Buffering": "no"},
                media_type="text/event-stream",
            )

        return followed

    async def _within(self, who: LoggedIn, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        with self._counted(who):
            async for line in lines:
                yield line

    async def _draw(self, screen: PageScreen, call: RequestContext, request: Request, *, live: bool) -> str:
        it = await screen.look(call)
        path = request.url.path.removeprefix(LIVE) if live else request.url.path
        query = f"?{request.url.query}" if request.url.query else ""
        return TEMPLATES.get_template(screen.template).render(
            it=it,
            layout="live.html" if live else "layout.html",
            key=call.key,
            decides=may(call.key, Operation.DECIDE),
            csrf=self._csrf_mark,
            screens=[one for one in SCREENS if one.label],
            screen=screen,
            here=(path or "/") + query,
            live=LIVE + path.rstrip("/") + query,
            store=call.store,
        )

    # --- deeds --------------------------------------------------------------------------------------------------------

    def _deed(self, deed: Action) -> Answered:
        async def done(request: Request) -> Response:
            who = await self._who(request)
            with self._counted(who):
                call = RequestContext(request, self._house(), who.key)
                async with self._limits.room_for(who.key.name, request.headers, request.receive) as receives:
                    form = _fields(await read_body(Request(request.scope, receives), FORM_MOST))
                check_csrf(who.secret, form.get("csrf", ""))
                told = await deed.does(call, form)
            if "hx-request" in request.headers:
                return _html(TEMPLATES.get_template("said.html").render(told=told, wrong=False, hint=None))
            return _headed(RedirectResponse(back_to(form.get("back", "/")), 303))

        return self._told(done)

    # --- in and out ---------------------------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        over = "You are no longer logged in." if "over" in request.query_params else None
        return self._door(200, over, back=back_to(request.query_params.get("back", "/")))

    async def _linked(self, request: Request) -> Response:
        link = request.query_params.get("link", "")
        name = name_in(link)
        if name is None:
            return self._door(200, "This is not a link of Allswell's; was it copied whole?")
        return _html(TEMPLATES.get_template("enter.html").render(link=link, name=name))

    async def _entered(self, request: Request) -> Response:
        try:
            form = _fields(await read_body(request, LOGIN_MOST))
            cookie = await entered(self._house().gate, form)
        except AllswellError as error:
            told = problem_of(error)
            return self._door(told.status, told.detail, told.hint)
        return _headed(let_in(request, cookie, form.get("back", "/"), secure=self._over_tls(request)))

    async def _left(self, request: Request) -> Response:
        who = await self._who(request)
        form = _fields(await read_body(request, LOGIN_MOST))
        check_csrf(who.secret, form.get("csrf", ""))
        await self._house().gate.sessions.log_out(self._cookie(request))
        return _headed(let_out(request, secure=self._over_tls(request)))

    def _door(self, status: int, wrong: str | None = None, hint: str | None = None, back: str = "/") -> Response:
        text = TEMPLATES.get_template("login.html").render(back=back, wrong=wrong, hint=hint)
        return _html(text, status)

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _told(self, answered: Answered) -> Answered:
        """The same, with whatever goes wrong told to the reader."""

        async def told(request: Request) -> Response:
            try:
                return await answered(request)
            except AllswellError as error:
                return self._wrong(request, error)
            except Exception as error:
                log.exception("the page at %s failed", request.url.path)
                return self._wrong(request, error)

        return told

    def _wrong(self, request: Request, error: Exception) -> Response:
        told = problem_of(error)
        if "hx-request" in request.headers:
            text = TEMPLATES.get_template("said.html").render(told=told.detail, wrong=True, hint=told.hint)
            return _html(text, told.status)
        if told.status == 401:
            if request.method == "GET":
                path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                again = "" if not self._cookie(request) else "over=1&"
                return _headed(RedirectResponse(f"/login?{again}back={quote(path, safe='/')}", 303))
            return self._door(401, told.detail, told.hint)
        text = TEMPLATES.get_template("wrong.html").render(problem=told)
        return _html(text, told.status)

    async def _no_place(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            return self._wrong(
                request, Refused("bad_method", f"method {request.method} is not allowed here", where="method")
            )
        return self._wrong(request, Refused("no_route", "there is nothing at this address", where="path"))


def _fields(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MOST)
    except (UnicodeDecodeError, ValueError):
        raise Refused("bad_body", "this is not a form of a page", where="body") from None
    return dict(fields)


async def _file(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return Response(found.body, 200, {**_HEADERS, "Cache-Control": _KEPT_FOR_EVER}, found.kind)


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, _HEADERS)


def _headed(answer: Response) -> Response:
    answer.headers.update(_HEADERS)
    return answer
