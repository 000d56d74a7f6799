"""Links that answer a question: what one stands for, how it is signed, and which options have one (ADR 82).

An alert carries a link for each option that may be chosen so. A link works without a login, so whoever can read the
alert can use it, and it is worth as little as possible: one option of one question, for a day, and none that allows a
call, accepts or ends work, or changes a limit or what may be spent.

Nothing is kept of a link. What it stands for is in it, signed with a secret of the store; the question itself, which is
answered once, makes it work once. A new secret is the end of all links that were sent before.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from hmac import compare_digest, digest
from urllib.parse import urlsplit

import msgspec

from allswell.domain.access.key import LINKS, Key, Right
from allswell.domain.agents.evidence import AGENT_REPEATS
from allswell.domain.ids import Millis, QuestionId
from allswell.domain.lease.cost import BUDGET
from allswell.domain.question import ALLOW_ONCE, AnswerAction, Option, OptionInput, Question, in_order, takes
from allswell.domain.task.submit import NAME_MAX

PATH = "/answer/"
"""Where a link leads, before its token."""
LINK_SECRET = "links.secret"  # noqa: S105 - a name, not the secret
"""The name of the secret among the values that the store keeps for Allswell itself; no API key can read it."""
VALID_FOR = 24 * 3_600_000
"""Milliseconds for which a link works, from when its alert is sent."""
TOKEN_MOST = 1_024
WORDS_MOST = 4_000
"""Characters that can be sent with an option that takes words."""
_SIGNED_FOR = b"allswell answer link 1\0"
"""What comes before all that is signed: nothing else that a secret may sign one day can be taken for a link."""
_MAC = 32
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")

BY_LINK = frozenset(
    (
        AnswerAction.RETRY,
        AnswerAction.CLARIFY,
        AnswerAction.REPLY,
        AnswerAction.REFUSE,
        AnswerAction.PROBE,
        AnswerAction.WAIT,
        AnswerAction.QUIET,
        AnswerAction.RETRY_MESSAGE,
    )
)
"""What a link may do: the work goes on, with or without words, or waits. A new act is barred until it is named here."""
_BARRED_IN: dict[str, frozenset[AnswerAction]] = {
    BUDGET: frozenset((AnswerAction.PROBE,)),  # it would let the same amount be spent again
    AGENT_REPEATS: frozenset((AnswerAction.RETRY,)),  # it would let the repeated calls count as progress
}
"""Acts that no link may do in questions of a kind, because there they change a limit or what may be spent."""
_BARRED_OPTIONS = (ALLOW_ONCE.key,)
"""Options that no link may choose although their act is harmless by itself: they allow an agent's tool call."""


class LinkSecret(msgspec.Struct, frozen=True):
    """What signs links; `by` is who has made it."""

    secret: str
    made_at: Millis
    by: str = ""


class AnswerLink(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a link stands for, and how it was sent."""

    question: QuestionId
    option: str
    expires_at: Millis
    sink: str
    route: str
    """The target of the sink, such as `critical.2`: a severity, and the number of the route among that severity's."""

    @property
    def key(self) -> Key:
        """The key in whose name the answer is given. It exists only here: nobody can present it as an API key."""
        return Key(f"{LINKS}{self.sink}", "", (Right.OPERATOR,), Millis(0))

    @property
    def by(self) -> str:
        """Who has answered, beside the key."""
        return f"a link sent to {self.route}"[:NAME_MAX]


_decode = msgspec.msgpack.Decoder(AnswerLink).decode
_encode = msgspec.msgpack.Encoder().encode


def options_by_link(question: Question) -> list[Option]:
    """The options of a question that a link may choose, as they are offered."""
    barred = _BARRED_IN.get(question.kind, frozenset())
    allowed = BY_LINK - barred
    return [
        option for option in in_order(question.options) if option.act in allowed and option.key not in _BARRED_OPTIONS
    ]


def takes_words(option: Option) -> bool:
    """Whether an option cannot be chosen without words."""
    return takes(option.act) is OptionInput.WORDS


def signed(link: AnswerLink, secret: str) -> str | None:
    """The token of a link; None if it would be longer than tokens may be."""
    payload = _encode(link)
    token = urlsafe_b64encode(_mac(payload, secret) + payload).rstrip(b"=").decode()
    return token if len(token) <= TOKEN_MOST else None


def read_token(token: str, secret: str) -> AnswerLink | None:
    """What a token stands for; None if this secret has not signed exactly this text."""
    if len(token) > TOKEN_MOST:
        return None
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (NotBase64, ValueError):
        return None
    ours = _mac(raw[_MAC:], secret)
    same = compare_digest(ours, raw[:_MAC])
    # What decodes to the same bytes is not the same text: another alphabet, padding, or bits that are not used.
    exact = compare_digest(urlsafe_b64encode(raw).rstrip(b"="), token.encode("utf-8", "surrogatepass"))
    if not same or not exact:
        return None
    try:
        return _decode(raw[_MAC:])
    except msgspec.DecodeError:
        return None  # of another version


def _mac(payload: bytes, secret: str) -> bytes:
    return digest(secret.encode(), _SIGNED_FOR + payload, sha256)


def option_of_link(link: AnswerLink, question: Question | None, now: Millis) -> Option | None:
    """The option that a link still offers; None where it has expired or the question is not open any more."""
    if question is None or question.id != link.question or question.closed_at is not None or now >= link.expires_at:
        return None
    return next((option for option in options_by_link(question) if option.key == link.option), None)


def https_origin(url: str) -> str | None:
    """The origin that links begin with; None unless the address is https, a host and perhaps a port, and no path."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return None
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    if parts.scheme != "https" or parts.path not in ("", "/") or parts.query or parts.fragment:
        return None
    host = host.lower()
    return (f"https://{host}" + ("" if port in (None, 443) else f":{port}")) if _HOST.fullmatch(host) else None
