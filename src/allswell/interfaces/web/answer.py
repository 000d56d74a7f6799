"""`/answer/TOKEN`: where the links in alerts lead (ADR 82). They work without a login, and open nothing else.

Programs look at addresses in advance: those that preview links, and those that scan mail. So a GET shows what the link
would do, and a POST of the form there does it. A link that is forged, has expired, was used or revoked is answered in
the same words, after the same look at the store: an attacker learns nothing from it.

Calls with a forged link are counted by address and all together, calls with a link that our secret signed by its
question: trying links does not keep a true one from working.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import IPv6Address, ip_address
from math import ceil
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from allswell.actions.operator import Operator
from allswell.domain.access.answer_link import WORDS_MOST, AnswerLink, takes_words
from allswell.engine.access.keys import OfferedAnswer
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.interfaces.http.request_context import ServerState, read_body
from allswell.interfaces.http.security import RequestLimits
from allswell.interfaces.web.screen import TEMPLATES

log = logging.getLogger("allswell.page")
FORM_MOST = 32 << 10
"""Bytes of the form: the longest words, as browsers write them."""
_AT_A_TIME = 32
EVERYBODY = ""
CONFIRMED = "yes"
NO_HEADERS: Mapping[str, str] = {}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cache-Control": "no-store",
    # Never the path, which has the token; with `no-referrer` browsers would post the form with `Origin: null`.
    "Referrer-Policy": "strict-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}


class LinkScreen(Struct, frozen=True):
    """What the template shows."""

    title: str
    text: str = ""
    hint: str = ""
    """A command that shows more."""
    wrong: str = ""
    offered: OfferedAnswer | None = None
    now: int = 0
    words: bool = False
    most: int = WORDS_MOST


REFUSED = LinkScreen(
    "This link does not work",
    "It may have expired or been used, the question may have been answered, or the links were revoked.",
    hint="allswell questions",
)
TOO_OFTEN = LinkScreen("Too many requests", "Try again in a minute.")
AWAY = LinkScreen("The store cannot be reached", "Nothing was answered. Try again in a minute.")


class LinkedAnswers:
    """Serves `/answer/TOKEN`: shows what a link would answer, and answers."""

    def __init__(self, house: Callable[[], ServerState], seconds: Callable[[], float]) -> None:
        self._house = house
        self._by_address = RequestLimits(seconds, rate=1, spare=60, at_a_time=_AT_A_TIME)
        self._strangers = RequestLimits(seconds, rate=20, spare=300, at_a_time=_AT_A_TIME)
        self._questions = RequestLimits(seconds, rate=1, spare=60, at_a_time=_AT_A_TIME)

    async def show(self, request: Request) -> Response:
        """Show what a link would do; nothing is changed."""
        return await self._answered(request, self._shown)

    async def choose(self, request: Request) -> Response:
        """Do what a link is for."""
        return await self._answered(request, self._chosen)

    async def _answered(
        self, request: Request, does: Callable[[Request, OfferedAnswer], Awaitable[Response]]
    ) -> Response:
        links = self._house().gate.links
        try:
            token = str(request.path_params["token"]) if self._house().settings.public_origin else ""
            link = await links.read(token)
            with self._counted(request, link) as wait:
                if wait is not None:
                    return _drawn(TOO_OFTEN, 429, {"Retry-After": str(max(1, ceil(wait)))})
                offered = await links.offered(token)
                return _drawn(REFUSED, 404) if offered is None else await does(request, offered)
        except Unavailable:
            return _drawn(AWAY, 503, {"Retry-After": "60"})
        except AllswellError:
            return _drawn(REFUSED, 404)
        except Exception:
            log.exception("an answer link failed")  # without its address, which has the token
            return _drawn(AWAY, 500)

    @contextmanager
    def _counted(self, request: Request, link: AnswerLink | None) -> Iterator[float | None]:
        """Count a call while it runs; yields None, or the seconds to wait if there are too many."""
        if link is None:
            counts = [(self._by_address, _address(request)), (self._strangers, EVERYBODY)]
        else:
            counts = [(self._questions, link.question)]
        with ExitStack() as inside:
            wait = None
            for limits, name in counts:
                wait = limits.enter(name)
                if wait is not None:
                    break
                inside.callback(limits.leave, name)
            yield wait

    async def _shown(self, request: Request, offered: OfferedAnswer, wrong: str = "") -> Response:
        del request
        screen = LinkScreen(
            "A question",
            wrong=wrong,
            offered=offered,
            now=await self._house().gate.watch.now(),
            words=takes_words(offered.option),
        )
        return _drawn(screen, 422 if wrong else 200)

    async def _chosen(self, request: Request, offered: OfferedAnswer) -> Response:
        form = _fields(await read_body(request, FORM_MOST))
        words = form.get("words", "").strip() if takes_words(offered.option) else ""
        if form.get("answer") != CONFIRMED:
            return await self._shown(request, offered, "Nothing was answered: use the button.")
        if takes_words(offered.option) and not 0 < len(words) <= WORDS_MOST:
            return await self._shown(request, offered, f"Nothing was answered: write 1 to {WORDS_MOST:,} characters.")
        watch = self._house().gate.watch_for(offered.link.key)
        await Operator(watch, offered.link.by).answer(offered.question.id, offered.option.key, words)
        return _drawn(LinkScreen("Answered", words, offered=offered), 200)


def _address(request: Request) -> str:
    """The key that calls are counted by: an IPv4 address, or the /64 network of an IPv6 address."""
    host = "" if request.client is None else request.client.host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(int(address) >> 64) if isinstance(address, IPv6Address) and address.ipv4_mapped is None else host


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10))
    except (UnicodeDecodeError, ValueError):
        raise Refused("bad_body", "this is not a form of a page", where="body") from None


def _drawn(screen: LinkScreen, status: int, headers: Mapping[str, str] = NO_HEADERS) -> Response:
    text = TEMPLATES.get_template("answer.html").render(it=screen)
    return HTMLResponse(text, status, {**_HEADERS, **headers})
