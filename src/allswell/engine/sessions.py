"""The sessions of browsers, as a gate keeps them: links made and used, sessions opened, known again, and closed.

What holds is decided in `domain/session.py`. A record changes only by a swap with what was read: when somebody else was
faster, it is read and decided once more. Whoever is asked for at every call is remembered for a second, as keys are.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from allswell.domain.access import Act, check_act
from allswell.domain.event import Event
from allswell.domain.key import SECRET_BYTES, Key, check_holds, secret_of
from allswell.domain.names import Millis
from allswell.domain.session import (
    LINK_BYTES,
    LINK_MARK,
    PREFIX,
    SESSION_MARK,
    Sessions,
    check_session,
    closed,
    exchanged,
    opened,
    parts_of,
    shown,
    with_link,
)
from allswell.engine.keyring import Keyring
from allswell.engine.watch import Watch
from allswell.errors import Refused, Unavailable

REMEMBERED = 1_000
"""Milliseconds."""
_MOST = 1_000
_TRIES = 20
_decode = msgspec.json.Decoder(Sessions).decode


class LoggedIn(msgspec.Struct, frozen=True):
    """Who is at a browser: whose key it is, and the secret of the session."""

    key: Key
    secret: str


async def make_link(watch: Watch, name: str, by: str = "") -> str:
    """A link for somebody with a key, as the text to be shown; the one before works no longer."""
    key = check_holds(await Keyring(watch).named(name), await watch.now())
    check_act(key, Act.LOOK)
    secret = secret_of(os.urandom(LINK_BYTES))
    now = await watch.now()
    await _change(watch, name, lambda before: with_link(before, secret, now))
    await watch.notice(Event("link_made", data={"name": name, "by": by}))
    return shown(LINK_MARK, name, secret)


class SessionDesk:
    """Where browsers log in and out."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._keyring = Keyring(watch)
        self._known: dict[str, tuple[LoggedIn, Sessions, int]] = {}
        """By what the browser showed: who it is, and when that was looked up, on this process's own clock."""

    async def enter(self, link: str) -> str:
        """Use a link up; what the browser is to show from now on."""
        parts = parts_of(LINK_MARK, link)
        if parts is None:
            raise Refused("bad_link", "this is no link of Allswell's; was it copied whole?", where="link")
        name, link_secret = parts
        now, secret = await self._watch.now(), secret_of(os.urandom(SECRET_BYTES))
        key = check_holds(await self._keyring.find(name), now)
        check_act(key, Act.LOOK)
        await _change(self._watch, name, lambda before: exchanged(before, link_secret, secret, key, now))
        return await self._told(key, secret, "link")

    async def log_in(self, key: Key) -> str:
        """Open a session for a key that was shown; what the browser is to show from now on."""
        check_act(key, Act.LOOK)
        now, secret = await self._watch.now(), secret_of(os.urandom(SECRET_BYTES))
        await _change(self._watch, key.name, lambda before: opened(before, secret, key, now))
        return await self._told(key, secret, "key")

    async def _told(self, key: Key, secret: str, how: str) -> str:
        await self._watch.notice(Event("session_opened", data={"name": key.name, "how": how}))
        return shown(SESSION_MARK, key.name, secret)

    async def known(self, cookie: str) -> LoggedIn:
        """Who shows this; `Refused` for whoever is not, or no longer, logged in."""
        clock = self._watch.clock
        met = self._known.get(cookie)
        if met is not None and clock.monotonic() - met[2] < REMEMBERED:
            who, sessions, _ = met
            now = Millis(clock.wall())
            check_session(sessions, who.secret, check_holds(who.key, now), now)
            return who
        parts = parts_of(SESSION_MARK, cookie)
        if parts is None:
            raise Refused("no_session", "log in first", where="cookie")
        name, secret = parts
        now = await self._watch.now()
        key = check_holds(await self._keyring.find(name), now)
        sessions = await _read(self._watch, name)
        check_session(sessions, secret, key, now)
        if len(self._known) >= _MOST:
            self._known.clear()
        who = LoggedIn(key, secret)
        self._known[cookie] = (who, sessions, clock.monotonic())
        return who

    async def log_out(self, cookie: str) -> None:
        """End a session; one that is over already is no mistake."""
        self._known.pop(cookie, None)
        parts = parts_of(SESSION_MARK, cookie)
        if parts is not None:
            name, secret = parts
            await _change(self._watch, name, lambda before: closed(before, secret))

    def forget(self, name: str) -> None:
        """Look the sessions of this key up again: it was changed here."""
        self._known = {cookie: met for cookie, met in self._known.items() if met[0].key.name != name}


async def _read(watch: Watch, name: str) -> Sessions:
    kept = await watch.recall(PREFIX + name)
    return Sessions() if kept is None else _decode(kept)


async def _change(watch: Watch, name: str, decide: Callable[[Sessions], Sessions]) -> None:
    for _ in range(_TRIES):
        kept = await watch.recall(PREFIX + name)
        before = Sessions() if kept is None else _decode(kept)
        after = decide(before)
        if after == before or await watch.swap(PREFIX + name, kept, msgspec.json.encode(after).decode()):
            return
    raise Unavailable("too many log in at once", hint="try again")
