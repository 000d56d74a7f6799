"""A browser without a browser: calls to the page with its cookie and its token, over a real socket."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

from allswell.app import make_watch, store_for
from allswell.domain.access.answer_link import VALID_FOR
from allswell.domain.ids import QuestionId
from allswell.domain.notify.alert import AnswerButton
from allswell.engine.access.keys import LinkService, make_link
from tests.interfaces.http.served import Answer, Served


def link_for(served: Served, name: str) -> str:
    """A link for somebody with a key, as `allswell key link` makes it."""

    async def make() -> str:
        async with make_watch(store_for(served.store), sweeping=False) as watch:
            return await make_link(watch, name)

    return asyncio.run(make())


def answer_links(served: Served, question: str, *, origin: str = "", lasts: int = VALID_FOR) -> list[AnswerButton]:
    """The links that an alert about a question would have; with a time of their own."""

    async def make() -> list[AnswerButton]:
        async with make_watch(store_for(served.store), sweeping=False) as watch:
            links = LinkService(watch)
            return await links.sign_for(QuestionId(question), origin or served.url, "phone", "warning.0", lasts=lasts)

    return asyncio.run(make())


@dataclass
class Visit:
    """Somebody at the page."""

    served: Served
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""

    def get(self, path: str, **headers: str) -> Answer:
        """Look at something."""
        return self._call("GET", path, None, headers)

    def post(self, path: str, form: dict[str, str] | None = None, *, csrf: str | None = None, **headers: str) -> Answer:
        """Send a form, with the token of the page unless another is given."""
        token = self.csrf if csrf is None else csrf
        fields = {**({"csrf": token} if token else {}), **(form or {})}
        sent = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.served.url, **headers}
        return self._call("POST", path, urlencode(fields).encode(), sent)

    def _call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = self.served.connect()
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            answer = Answer(got.status, {name.lower(): value for name, value in got.getheaders()}, got.read())
        finally:
            connection.close()
        for one in SimpleCookie(answer.headers.get("set-cookie", "")).values():
            self.cookies[one.key] = one.value
        if (found := re.search(rb'name="csrf" value="([0-9a-f]{64})"', answer.body)) is not None:
            self.csrf = found[1].decode()
        return answer

    def jar(self) -> list[dict[str, Any]]:
        """Its cookies, for a real browser."""
        host = urlsplit(self.served.url).hostname
        return [{"name": name, "value": value, "domain": host, "path": "/"} for name, value in self.cookies.items()]


def logged_in(served: Served, name: str = "operator") -> Visit:
    """Somebody who has logged in with a key."""
    visit = Visit(served)
    answer = visit.post("/login", {"key": served.keys[name]})
    assert answer.status == 303, answer.body
    first = visit.get("/")
    assert first.status == 200, first.body[-2000:]
    return visit
