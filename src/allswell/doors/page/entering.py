"""Logging in and out: by a link that works once, or by a key; then a cookie stands for the key.

The link shows a button, and the button's POST uses it up: a program that looks at addresses in advance takes nothing
away. The cookie can be read by no script (`HttpOnly`), is sent by no other site (`SameSite=Strict`), and over TLS by no
open connection (`Secure`). Cookies of one host are shared by all its ports, so its name has the port.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allswell.domain.session import LINK_MARK, SESSION_LASTS, parts_of
from allswell.engine.gate import Gate

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
    parts = parts_of(LINK_MARK, link)
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
