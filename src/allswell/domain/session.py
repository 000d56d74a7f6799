"""Sessions of browsers: a person logs in with a key, or by a link that works once, and is known by a cookie afterwards.

Each key has one record among the watch's own words, under `PREFIX` and its name: the link that was made for it last,
and the sessions that are open. A session is bound to the very key that it was opened with: when that key runs out, is
revoked, or is made anew under the same name, the session is over too. Of every secret only the hash is kept, as of
keys.

A link is for the way from a terminal to a browser on the same desk: it is short-lived, works once, and a new one takes
the place of the one before. Using it and opening a session is one change of one record, so of two who use it at the
same moment one is refused.

The token against forged forms (CSRF) follows from the session's secret, which no other page can read.
"""

from __future__ import annotations

import re
from hmac import compare_digest

import msgspec
from msgspec.structs import replace

from allswell.domain.key import Key, hash_of
from allswell.domain.names import Millis
from allswell.errors import Refused

PREFIX = "session."
LINK_BYTES = 16
"""Of chance in a link: enough for ten minutes, and short enough for a line of a terminal."""
LINK_LASTS = 10 * 60_000
SESSION_LASTS = 7 * 24 * 3_600_000
SESSIONS_MOST = 20
"""Of one key; the oldest gives way."""
LINK_MARK, SESSION_MARK = "awl", "aws"
_SHOWN = re.compile(r"(aw[ls])_([a-z0-9][a-z0-9.-]{0,62})_([A-Za-z0-9_-]{1,100})")


class LoginLink(msgspec.Struct, frozen=True):
    """A link that was made for somebody with a key."""

    hash: str
    expires_at: Millis
    used: bool = False


class BrowserSession(msgspec.Struct, frozen=True):
    """A browser that is logged in."""

    hash: str
    key: str
    """The hash of the key that it was opened with."""
    opened_at: Millis
    expires_at: Millis


class Sessions(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is kept of one key's browsers."""

    link: LoginLink | None = None
    open: tuple[BrowserSession, ...] = ()


def shown(mark: str, name: str, secret: str) -> str:
    """A link's or a session's secret, as it is handed out."""
    return f"{mark}_{name}_{secret}"


def parts_of(mark: str, text: str) -> tuple[str, str] | None:
    """The key's name and the secret in what was shown; None if it is none of that kind."""
    found = _SHOWN.fullmatch(text)
    return None if found is None or found[1] != mark else (found[2], found[3])


def csrf_of(secret: str) -> str:
    """What every form of a session carries."""
    return hash_of(f"csrf.{secret}")


def check_csrf(secret: str, given: str) -> None:
    """Refuse a form that was not made by a page of this session."""
    if not compare_digest(csrf_of(secret), given if given.isascii() else ""):
        text = "this form was not made by this page, or you have logged in anew since; load the page again"
        raise Refused("bad_form", text, where="csrf")


def with_link(sessions: Sessions, secret: str, now: Millis) -> Sessions:
    """The record with a new link, which takes the place of the one before."""
    return replace(sessions, link=LoginLink(hash_of(secret), Millis(now + LINK_LASTS)))


def exchanged(sessions: Sessions, link: str, secret: str, key: Key, now: Millis) -> Sessions:
    """The link used up, and a session opened for it; otherwise `Refused`."""
    kept = sessions.link
    if kept is None or not compare_digest(hash_of(link), kept.hash):
        raise _no_link("bad_link", "this link is not known here, or a newer one has taken its place")
    if kept.used:
        raise _no_link("link_used", "this link was used already: it works once")
    if now >= kept.expires_at:
        raise _no_link("link_expired", "this link is too old: it works for ten minutes")
    return opened(replace(sessions, link=replace(kept, used=True)), secret, key, now)


def opened(sessions: Sessions, secret: str, key: Key, now: Millis) -> Sessions:
    """The record with a session more; those that are over are left out."""
    still = [one for one in sessions.open if _holds(one, key, now)]
    made = BrowserSession(hash_of(secret), key.hash, now, Millis(now + SESSION_LASTS))
    return replace(sessions, open=(*still[-(SESSIONS_MOST - 1) :], made))


def closed(sessions: Sessions, secret: str) -> Sessions:
    """The record without this session."""
    hashed = hash_of(secret)
    return replace(sessions, open=tuple(one for one in sessions.open if not compare_digest(one.hash, hashed)))


def check_session(sessions: Sessions, secret: str, key: Key, now: Millis) -> BrowserSession:
    """The session of this secret, if it holds; `key` is one that holds."""
    hashed = hash_of(secret)
    for one in sessions.open:
        if compare_digest(one.hash, hashed) and _holds(one, key, now):
            return one
    raise Refused("session_over", "you are not logged in any more", where="cookie", hint="log in again")


def _holds(session: BrowserSession, key: Key, now: Millis) -> bool:
    return now < session.expires_at and compare_digest(session.key, key.hash)


def _no_link(code: str, text: str) -> Refused:
    return Refused(code, text, where="link", hint="`allswell key link NAME` makes a new one, at the store")
