"""Keys: what a caller from elsewhere shows, whose it is, how long it holds, and what it allows.

A key is a text, `awk_NAME_SECRET`. The secret is 256 random bits and is shown once, when the key is made; the store has
its SHA-256 alone. Nothing slower is needed: what was drawn by chance cannot be guessed from a list of likely words.
A name has one key at a time, so that "who was it" has one answer; the name of a key that is over can be given again.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.task.submit import check_name
from allswell.domain.values import nearest
from allswell.errors import Refused

PREFIX = "key."
"""Keys are kept among the watch's own words, each under this and its name."""
ANY_ROLE = "*"
SECRET_BYTES = 32
MARK = "awk"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_MOST = 100


HOOKS = "hook."
"""What comes before the name of a hook where it signs what it has done, as a key does."""
LINKS = "link."
"""What comes before the name of a sink where a link that it has sent signs an answer."""


class Right(StrEnum):
    """What a key is for; rights.py says what each of them allows."""

    VIEWER = "viewer"
    """Looks at everything."""
    SUBMITTER = "submitter"
    """Hands work over, and looks at what it knows the id of."""
    AGENT = "agent"
    """Claims tasks of its roles, and speaks for the leases that it has."""
    SUPERVISOR = "supervisor"
    """What an agent may; and where it says that work was verified, that counts."""
    OPERATOR = "operator"
    """Looks, hands over, answers, calls off, tries again."""
    ADMIN = "admin"
    """All of it, and the keys."""


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key as it is kept: all but its secret."""

    name: str
    hash: str
    rights: tuple[Right, ...]
    created_at: Millis
    by: str = ""
    """Who made it."""
    roles: tuple[str, ...] = ()
    """Of an agent's key: the roles whose tasks it may claim."""
    agents: tuple[str, ...] = ()
    """Of an agent's key: the names under which it may hold tasks."""
    expires_at: Millis | None = None
    revoked_at: Millis | None = None
    revoked_by: str = ""


def new_key(  # noqa: PLR0913 - each has a name
    name: str,
    secret: str,
    rights: Sequence[str],
    now: Millis,
    *,
    roles: Sequence[str] = (),
    agents: Sequence[str] = (),
    lasts: int | None = None,
    by: str = "",
) -> Key:
    """A key for this secret; `lasts` is how long it holds, in milliseconds. `Refused` for what makes no sense."""
    if not _NAME.fullmatch(name):
        text = f"{name!r} cannot name a key: use small letters, digits, dots and dashes, at most 63"
        raise Refused("bad_name", text, where="name")
    for prefix, what in ((HOOKS, "a hook"), (LINKS, "a link")):
        if name.startswith(prefix):
            raise Refused("bad_name", f"{prefix}… signs what came by {what}, and cannot name a key", where="name")
    meant = tuple(dict.fromkeys(_right(one) for one in rights))
    if not meant:
        raise Refused("no_right", f"what may it do? name a right: {', '.join(Right)}", where="rights")
    agent = Right.AGENT in meant or Right.SUPERVISOR in meant
    if agent and not roles:
        text = f"an agent's key names the roles that it may claim for; {ANY_ROLE} means all"
        raise Refused("no_role", text, where="roles")
    if not agent and (roles or agents):
        text = "roles and agents go with the right `agent` or `supervisor`"
        raise Refused("bad_role", text, where="roles" if roles else "agents")
    for what, given in (("role", roles), ("agent", agents)):
        if len(given) > _MOST:
            raise Refused("too_many", f"at most {_MOST} {what}s", where=f"{what}s")
        for one in given:
            if one or what == "agent":  # the empty role is that of tasks that have none
                check_name(one, what)
    if lasts is not None and lasts <= 0:
        raise Refused("bad_duration", "a key must hold for a while", where="expires")
    return Key(
        name,
        hash_of(secret),
        meant,
        now,
        by,
        tuple(dict.fromkeys(roles)),
        tuple(dict.fromkeys(agents or [name])) if agent else (),
        None if lasts is None else Millis(now + lasts),
    )


def _right(given: str) -> Right:
    try:
        return Right(given)
    except ValueError:
        like = nearest(given, Right)
        hint = f"; did you mean {like}?" if like else f"; there are: {', '.join(Right)}"
        raise Refused("bad_right", f"{given!r} is not a right{hint}", where="rights") from None


def revoked(key: Key, now: Millis, by: str = "") -> Key:
    """A key that holds no longer."""
    if key.revoked_at is not None:
        raise Refused("key_revoked", f"the key {key.name} was revoked already", where="name")
    return replace(key, revoked_at=now, revoked_by=by)


def is_over(key: Key, now: Millis) -> bool:
    """Whether it was revoked or has run out."""
    return key.revoked_at is not None or (key.expires_at is not None and now >= key.expires_at)


def secret_of(chance: bytes) -> str:
    """Random bytes as the text of a secret."""
    return urlsafe_b64encode(chance).rstrip(b"=").decode()


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def written(name: str, secret: str) -> str:
    """The key as its owner has it."""
    return f"{MARK}_{name}_{secret}"


def parts_of(text: str) -> tuple[str, str] | None:
    """The name and the secret of what was shown as a key; None if it is none."""
    mark, _, rest = text.partition("_")
    name, _, secret = rest.partition("_")
    return (name, secret) if mark == MARK and _NAME.fullmatch(name) and 0 < len(secret) <= 100 else None


def check_key(key: Key | None, secret: str, now: Millis) -> Key:
    """The key, if this is its secret and it holds; otherwise `Refused`. A stranger is told nothing about any name."""
    if not compare_digest(hash_of(secret), "" if key is None else key.hash) or key is None:
        raise Refused("bad_key", "this key is not known here", where="Authorization")
    return check_holds(key, now)


def check_holds(key: Key | None, now: Millis) -> Key:
    """The key, if there is one that was neither revoked nor has run out; otherwise `Refused`."""
    if key is None:
        raise Refused("bad_key", "this key is not known here", where="Authorization")
    if key.revoked_at is not None:
        raise Refused("key_revoked", f"the key {key.name} was revoked; ask for another one", where="Authorization")
    if is_over(key, now):
        raise Refused("key_expired", f"the key {key.name} has run out; ask for another one", where="Authorization")
    return key


# Sessions of browsers: a person logs in with a key, or by a link that works once, and is known by a cookie afterwards.
#
# Each key has one record among the watch's own words, under `PREFIX` and its name: the link that was made for it last,
# and the sessions that are open. A session is bound to the very key that it was opened with: when that key runs out, is
# revoked, or is made anew under the same name, the session is over too. Of every secret only the hash is kept, as of
# keys.
#
# A link is for the way from a terminal to a browser on the same desk: it is short-lived, works once, and a new one
# takes the place of the one before. Using it and opening a session is one change of one record, so of two who use it at
# the same moment one is refused.
#
# The token against forged forms (CSRF) follows from the session's secret, which no other page can read.

SESSION_PREFIX = "session."
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


def session_parts_of(mark: str, text: str) -> tuple[str, str] | None:
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


def exchanged(sessions: Sessions, link: str, secret: str, key: Key | None, now: Millis) -> Sessions:
    """The link used up, and a session opened for it; otherwise `Refused`.

    A stranger is told nothing about any name: how things stand with its key counts only behind its own link.
    """
    kept = sessions.link
    if kept is None or not compare_digest(hash_of(link), kept.hash):
        raise _no_link("bad_link", "this link is not known here, or a newer one has taken its place")
    if kept.used:
        raise _no_link("link_used", "this link was used already: it works once")
    if now >= kept.expires_at:
        raise _no_link("link_expired", "this link is too old: it works for ten minutes")
    return opened(replace(sessions, link=replace(kept, used=True)), secret, check_holds(key, now), now)


def opened(sessions: Sessions, secret: str, key: Key, now: Millis) -> Sessions:
    """The record with a session more; those that are over are left out."""
    still = [one for one in sessions.open if _holds(one, key, now)]
    made = BrowserSession(hash_of(secret), key.hash, now, Millis(now + SESSION_LASTS))
    return replace(sessions, open=(*still[-(SESSIONS_MOST - 1) :], made))


def closed(sessions: Sessions, secret: str) -> Sessions:
    """The record without this session."""
    hashed = hash_of(secret)
    return replace(sessions, open=tuple(one for one in sessions.open if not compare_digest(one.hash, hashed)))


def check_session(sessions: Sessions, secret: str, key: Key | None, now: Millis) -> BrowserSession:
    """The session of this secret, if it and its key hold. A stranger is told nothing about any name."""
    hashed = hash_of(secret)
    for one in sessions.open:
        if compare_digest(one.hash, hashed) and _holds(one, check_holds(key, now), now):
            return one
    raise Refused("session_over", "you are not logged in any more", where="cookie", hint="log in again")


def _holds(session: BrowserSession, key: Key, now: Millis) -> bool:
    return now < session.expires_at and compare_digest(session.key, key.hash)


def _no_link(code: str, text: str) -> Refused:
    return Refused(code, text, where="link", hint="`allswell key link NAME` makes a new one, at the store")
