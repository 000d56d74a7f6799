"""The JSON frames of AgentChat, as far as we need them: what is read strictly, and what is written."""

from __future__ import annotations

import re

import msgspec

from allswell.domain.build.heard import Heard
from allswell.domain.names import Millis

_AGENT = re.compile(r"@[A-Za-z0-9_-]{1,64}", re.ASCII)
_KEYED = re.compile(r"@[0-9a-f]{16}", re.ASCII)
CHANNEL = re.compile(r"#[A-Za-z0-9_-]{1,31}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
_ID = re.compile(r"[!-~]{1,100}", re.ASCII)
_LATEST = 1 << 53
SERVER = "@server"
"""Under this name the server itself talks, for people."""


class Frame(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """A frame from the server. Which fields it has follows from its type; those that we never use are left out."""

    type: str
    agent_id: str = ""
    challenge_id: str = ""
    nonce: str = ""
    channel: str = ""
    from_: str = ""
    to: str = ""
    content: str = ""
    ts: int = 0
    msg_id: str = ""
    replay: bool = False
    code: str = ""
    message: str = ""
    reason: str = ""


_DECODER = msgspec.json.Decoder(Frame)


def read_frame(raw: str | bytes) -> Frame | None:
    """A frame; None where this is none."""
    try:
        return _DECODER.decode(raw)
    except msgspec.MsgspecError:
        return None


def heard_in(frame: Frame) -> Heard | None:
    """What somebody said; None if the server gives nobody's name, or its own, or a moment that cannot be one.

    An id that is no plain word is none: it would have to be kept, in stores that do not take every character.
    """
    if frame.from_ == SERVER or not _AGENT.fullmatch(frame.from_) or not 0 <= frame.ts <= _LATEST:
        return None
    keyed = _KEYED.fullmatch(frame.from_) is not None
    id_ = frame.msg_id if _ID.fullmatch(frame.msg_id) else ""
    return Heard(frame.from_, frame.content, Millis(frame.ts), id_, frame.replay, keyed)


def write_frame(type_: str, **fields: object) -> str:
    """A frame to the server."""
    return msgspec.json.encode({"type": type_, **fields}).decode()
