"""What is said through an attempt's socket: one JSON object a line, and one line in answer.

A word says the attempt's secret, and may name the task and the token it is meant for; one that names another lease than
the socket's is refused. What comes from an agent is data: it is decoded into these shapes or refused, and no message
may be larger than `LONGEST`.
"""

from __future__ import annotations

import msgspec

from allswell.domain.inbox import InboxItem
from allswell.domain.names import Millis, QuestionId, TaskId
from allswell.domain.question import Option, Question
from allswell.domain.retry import Failure

LONGEST = 4 << 20
"""Bytes of one message; a result may have 1 MiB, and JSON may need several bytes for one."""


class Word(msgspec.Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True, omit_defaults=True):
    """Something that an agent says."""

    task: str | None = None
    token: int | None = None
    secret: str = ""
    """The attempt's, from `ALLSWELL_SECRET`."""


class CheckIn(Word, frozen=True, tag="checkin"):
    """It has made progress."""

    note: str = ""
    progress: float | None = None


class Done(Word, frozen=True, tag="done"):
    """The task is done; `result` is JSON."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class Fail(Word, frozen=True, tag="fail"):
    """It could not do it."""

    failure: Failure


class Release(Word, frozen=True, tag="release"):
    """It gives the task back."""

    reason: str = "released"
    delay: int = 0


class Ask(Word, frozen=True, tag="ask"):
    """It asks a human; with `hold` it goes on meanwhile."""

    text: str
    options: tuple[Option, ...] = ()
    hold: bool = False


class Request(Word, frozen=True, tag="request"):
    """It hands a focused request to an expert, and goes on."""

    role: str
    name: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout: int | None = None


class AskAgent(Word, frozen=True, tag="ask_agent"):
    """It asks another agent, and goes on; where nobody answers, it is ended and its task waits for the answer."""

    to: str
    kind: str
    summary: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    timeout: int | None = None
    retries: int | None = None
    again: int | None = None
    role: str = ""


class Inbox(Word, frozen=True, tag="inbox"):
    """It wants to know what its agent is asked."""


class Respond(Word, frozen=True, tag="respond"):
    """It answers a request that is addressed to its agent; `answer` is JSON."""

    request: TaskId
    answer: msgspec.Raw = msgspec.Raw(b"null")


class Look(Word, frozen=True, tag="look"):
    """It wants its orders, and to know how a question of its own stands; it proves nothing by that."""

    question: QuestionId | None = None
    request: TaskId | None = None


class Spend(Word, frozen=True, tag="spend"):
    """It has cost so much more than it has said before."""

    cost_usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


AnyWord = CheckIn | Done | Fail | Release | Ask | Request | AskAgent | Inbox | Respond | Look | Spend


class ToldAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent should know and do now; every answer carries it."""

    remaining_ms: int
    deadline: Millis | None = None
    """The attempt's limit, on the store's clock."""
    checkin: bool = False
    """A check-in is owed."""
    stop: str | None = None
    """It is being ended, and why: save what there is, and go."""
    answers: tuple[dict[str, str], ...] = ()
    """What humans answered to questions that it asked while it went on."""
    inbox: tuple[str, ...] = ()
    """The requests that wait for its answer."""
    more: dict[str, msgspec.Raw] = {}
    """Whatever else its supervisor has to say."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a word."""

    orders: ToldAgent | None = None
    state: str | None = None
    """Where the task stands now, after a last word."""
    question: Question | None = None
    request: TaskId | None = None
    """The request that was made, or that was asked about."""
    result: msgspec.Raw = msgspec.Raw(b"null")
    """What came of it, once something has."""
    inbox: tuple[InboxItem, ...] = ()
    """What its agent is asked."""
    error: str | None = None
    """The class of the error: Refused, LeaseLost, Unavailable."""
    message: str = ""
    code: str | None = None
    where: str | None = None


read_word = msgspec.json.Decoder(AnyWord).decode
read_reply = msgspec.json.Decoder(Reply).decode
