"""How an agent and its supervisor speak: what can be said, and the agent's side of the socket.

Apart from the rest of the attempt, so that `allswell checkin` starts at once.
"""

from __future__ import annotations

import os
import socket
from typing import Literal

import msgspec

from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.lease.model import check_progress
from allswell.domain.mesh.request import InboxItem
from allswell.domain.question import Option, Question
from allswell.domain.service.retry import Failure
from allswell.domain.task.model import RequestAnswer
from allswell.errors import AllswellError, Bug, LeaseLost, Refused, Unavailable

# What is said through an attempt's socket: one JSON object a line, and one line in answer.
#
# A word says the attempt's secret, and may name the task and the token it is meant for; one that names another lease
# than the socket's is refused. What comes from an agent is data: it is decoded into these shapes or refused, and no
# message may be larger than `LONGEST`.

KEPT = "kept"
"""The state after a last word that could not be told to the store yet: it is on disk, and told when that is back."""
LONGEST = 4 << 20
"""Bytes of one message; a result may have 1 MiB, and JSON may need several bytes for one."""


class AgentMessage(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True, omit_defaults=True
):
    """Something that an agent says."""

    task: str | None = None
    token: int | None = None
    secret: str = ""
    """The attempt's, from `ALLSWELL_SECRET`."""


class CheckInMessage(AgentMessage, frozen=True, tag="checkin"):
    """It has made progress."""

    note: str = ""
    progress: float | None = None


class DoneMessage(AgentMessage, frozen=True, tag="done"):
    """The task is done; `result` is JSON."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class FailMessage(AgentMessage, frozen=True, tag="fail"):
    """It could not do it."""

    failure: Failure


class ReleaseMessage(AgentMessage, frozen=True, tag="release"):
    """It gives the task back."""

    reason: str = "released"
    delay: int = 0


class AskMessage(AgentMessage, frozen=True, tag="ask"):
    """It asks a human; with `hold` it goes on meanwhile."""

    text: str
    options: tuple[Option, ...] = ()
    hold: bool = False


class RequestMessage(AgentMessage, frozen=True, tag="request"):
    """It hands a focused request to an expert, and goes on."""

    role: str
    name: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout: int | None = None


class AskAgentMessage(AgentMessage, frozen=True, tag="ask_agent"):
    """It asks another agent, and goes on; where nobody answers, it is ended and its task waits for the answer."""

    to: str
    kind: str
    """Empty: what is meant is read off whom it is for."""
    summary: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout: int | None = None
    retries: int | None = None
    again: int | None = None
    role: str = ""
    kept: int | None = None
    key: str | None = None
    """Under the same key its task asks it once."""
    blocks: bool = True
    """Whether it is ended for it where nobody answers."""


class InboxMessage(AgentMessage, frozen=True, tag="inbox"):
    """It wants to know what its agent is asked; with `mesh`, what others are asked and it may answer."""

    mesh: bool = False


class RespondMessage(AgentMessage, frozen=True, tag="respond"):
    """It answers a request that is addressed to its agent; `answer` is JSON."""

    request: TaskId
    answer: msgspec.Raw = msgspec.Raw(b"null")


class DeclineMessage(AgentMessage, frozen=True, tag="decline"):
    """It declines a request that is addressed to its agent."""

    request: TaskId
    reason: str = ""


class LookMessage(AgentMessage, frozen=True, tag="look"):
    """It wants its orders, and to know how a question of its own stands; it proves nothing by that."""

    question: QuestionId | None = None
    request: TaskId | None = None


class SpendMessage(AgentMessage, frozen=True, tag="spend"):
    """It has cost so much more than it has said before."""

    cost_usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


class ToolMessage(AgentMessage, frozen=True, tag="tool"):
    """A hook of its program reports a call of a tool that is over."""

    name: str
    call: str = ""
    """The call's id."""
    input: msgspec.Raw = msgspec.Raw(b"null")
    """What it was called with; a text of its beginning and its end, where that is long."""
    answer: str = ""
    """What it brought; the beginning and the end, where that is long."""
    failed: bool = False


class NoticeMessage(AgentMessage, frozen=True, tag="notice"):
    """A hook of its program reports that it waits for a human, or that a turn has failed."""

    event: Literal["Notification", "StopFailure"]
    kind: str = ""
    """What it waits for, or why it has failed, in a word of its program's."""
    text: str = ""


AnyWord = (
    CheckInMessage
    | DoneMessage
    | FailMessage
    | ReleaseMessage
    | AskMessage
    | RequestMessage
    | AskAgentMessage
    | InboxMessage
    | RespondMessage
    | DeclineMessage
    | LookMessage
    | SpendMessage
    | ToolMessage
    | NoticeMessage
)


class AgentNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent should know and do now; every answer carries it."""

    remaining_ms: int | None
    """What is left of the attempt's time; None: it has no limit."""
    deadline: Millis | None = None
    """The attempt's limit, on the store's clock; None: it has none."""
    checkin: bool = False
    """A check-in is owed."""
    stop: str | None = None
    """It is being ended, and why: save what there is, and go."""
    answers: tuple[dict[str, str], ...] = ()
    """What humans answered to questions that it asked while it went on."""
    inbox: tuple[str, ...] = ()
    """The requests that wait for its answer."""
    handover: str = ""
    """What came before its attempt, and what humans have said: with the answer to its first check-in."""
    requests: tuple[RequestAnswer, ...] = ()
    """What other agents have answered to requests that it did not wait for: with the answer to a check-in."""
    more: dict[str, msgspec.Raw] = {}
    """Whatever else its supervisor has to say."""


class SocketReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a word."""

    orders: AgentNotice | None = None
    kind: str | None = None
    """Of a request that it has made."""
    state: str | None = None
    """Where the task stands now, after a last word."""
    question: Question | None = None
    request: TaskId | None = None
    """The request that was made, or that was asked about."""
    result: msgspec.Raw = msgspec.Raw(b"null")
    """What came of it, once something has."""
    inbox: tuple[InboxItem, ...] = ()
    """What its agent is asked."""
    news: tuple[str, ...] = ()
    """What has come for it since its hook last reported a call, in sentences."""
    error: str | None = None
    """The class of the error: Refused, LeaseLost, Unavailable."""
    message: str = ""
    code: str | None = None
    where: str | None = None


read_word = msgspec.json.Decoder(AnyWord).decode
read_reply = msgspec.json.Decoder(SocketReply).decode


# The agent's side of an attempt's socket: say one word, hear the answer. Blocking, small, and quick to import.

VARIABLE = "ALLSWELL_SOCKET"
SECRET = "ALLSWELL_SECRET"  # noqa: S105 - the name of the variable that it stands in
_PATIENCE = 60.0
"""Seconds; longer than the supervisor waits for its store."""


def say(path: str, word: AnyWord, secret: str | None = None) -> SocketReply:
    """Say a word to the supervisor whose socket this is, with the attempt's secret; raises what it refuses."""
    if isinstance(word, CheckInMessage):
        check_progress(word.progress)  # before JSON makes nothing of what is no number
    known = os.environ.get(SECRET, "") if secret is None else secret
    message = msgspec.json.encode(msgspec.structs.replace(word, secret=known)) + b"\n"
    if len(message) > LONGEST:
        raise Refused("too_large", f"this is larger than {LONGEST} bytes", where="message")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_PATIENCE)
            line.connect(path)
            line.sendall(message)
            answer = _line(line)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(f"the supervisor of this attempt does not answer at {path}: {why}") from error
    try:
        reply = read_reply(answer)
    except msgspec.DecodeError as error:
        raise Unavailable(f"the supervisor of this attempt said something that cannot be read: {error}") from error
    if reply.error is not None:
        raise _error(reply)
    return reply


def _line(line: socket.socket) -> bytes:
    pieces = bytearray()
    while not pieces.endswith(b"\n"):
        piece = line.recv(65_536)
        if not piece or len(pieces) > LONGEST:
            raise ConnectionResetError(104, "it hung up")
        pieces += piece
    return bytes(pieces)


def _error(reply: SocketReply) -> AllswellError:
    if reply.error == "LeaseLost":
        task, _, token = (reply.where or "").rpartition(":")
        return LeaseLost(task, int(token or 0), reply.message)
    if reply.error == "Refused":
        return Refused(reply.code or "refused", reply.message, where=reply.where)
    if reply.error == "Unavailable":
        return Unavailable(reply.message)
    return Bug(reply.message)
