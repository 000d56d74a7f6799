"""Agents that speak the Agent Client Protocol, as far as it is about what they print: lines of ours become events.

Such an agent is spoken to by a client of ours (`runtime/agents/acp.py`), which prints what came of it, one object a
line, with what the agent has sent in its field `acp`. All of that is the agent's data, and bounded by the client; these
are its types, each with what stands in `acp`:

    acp.session      the session has begun, or goes on: `agent`, `resumed`
    acp.working      it works on something that is told when it is whole: `on`
    acp.message      what it says, whole: `text`; acp.thought the same of what it thinks
    acp.call         a call of a tool, as far as it is known: `id`, `name`, `input`
    acp.result       a call that is over: the same with `text` and `failed`
    acp.plan         what it means to do: `text`
    acp.usage        its context, and what the session has cost: `used`, `size`, `step`, `cost_usd`
    acp.permission   a call waits for a human: as acp.call with `question`
    acp.decided      the human has decided: `id`, `name`, `text`
    acp.retry        its provider has refused, and it tries again by itself: `text`
    acp.note         what the client has to say: `text`
    acp.end          the turn is over: `stop`, or `error`, `code` and `error_kind`; `message`, `usage`, `cost_usd`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from allswell.domain.agents.checkpoint import holds_checkpoint
from allswell.domain.agents.cost import Tokens, TokenUse, count_of, expense_of, from_usd, number_of
from allswell.domain.agents.output import (
    AgentEvent,
    AgentLine,
    AgentText,
    CheckpointTold,
    MessageUsage,
    Note,
    SessionSpent,
    SessionStarted,
    Thinking,
    ToolCall,
    ToolCallResult,
    TurnEnded,
    provider_failure,
    words_of,
)
from allswell.domain.agents.refusal import from_codex, limit_in_error
from allswell.domain.agents.usage import Usage
from allswell.domain.service.classify import class_of_answer
from allswell.domain.service.retry import ErrorClass, Failure

DIALECT = "acp"
AUTH_REQUIRED = -32000
"""The code of the protocol's error for an agent that wants a login."""
_TOO_MANY = 429
_STATUS = re.compile(r"\bstatus:? ([45]\d\d)\b|\bAPI Error\b[^0-9]{0,40}\b([45]\d\d)\b")
_LIMITS = frozenset({"rate_limit", "usageLimitExceeded"})
"""What claude-agent-acp and codex-acp call an error of a limit, beside its words."""
_LOGIN = "the agent wants a login"
_STOPS: Mapping[str, tuple[ErrorClass, str]] = {
    "max_tokens": (ErrorClass.TRANSIENT, "it reached its number of tokens"),
    "max_turn_requests": (ErrorClass.TRANSIENT, "it reached its number of turns"),
    "refusal": (ErrorClass.PERMANENT, "its model refused to go on"),
    "cancelled": (ErrorClass.TRANSIENT, "its turn was cancelled"),
}
"""The reasons of the protocol for which a turn ends, where that is not done."""
END_OF_TURN = "end_turn"


def line_of(kind: str, session: str, fields: object) -> AgentLine:
    """What a line of the client's says."""
    if not isinstance(fields, Mapping):
        return AgentLine(DIALECT, "", False)
    name = kind.partition(".")[2]
    read = _KINDS.get(name)
    if read is None:
        return AgentLine(DIALECT, "", False, session or None)
    step = name not in _NO_STEPS and not (name == "end" and fields.get("stop") != END_OF_TURN)
    shown = f"{name} {words_of(fields.get('name') or fields.get('on') or '')}".strip()[:80]
    return AgentLine(DIALECT, shown, step, session or None, tuple(read(fields, session)))


def _session(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield SessionStarted(words_of(fields.get("agent")))
    if fields.get("resumed") is True:
        yield Note("it goes on with this session")


def _working(_: Mapping[str, object], __: str) -> Iterator[AgentEvent]:
    yield from ()


def _message(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    text = words_of(fields.get("text"))
    yield AgentText(text)
    if holds_checkpoint(text):
        yield CheckpointTold(text)


def _thought(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield Thinking(words_of(fields.get("text")))


def _call_of(fields: Mapping[str, object], *, announced: bool) -> ToolCall:
    return ToolCall(words_of(fields.get("id")), words_of(fields.get("name")), fields.get("input"), announced=announced)


def _call(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield _call_of(fields, announced=True)


def _result(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield _call_of(fields, announced=False)
    yield ToolCallResult(words_of(fields.get("id")), words_of(fields.get("text")), fields.get("failed") is True)


def _plan(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield Note(f"its plan: {words_of(fields.get('text'))}")


def _usage(fields: Mapping[str, object], session: str) -> Iterator[AgentEvent]:
    used, size = count_of(fields.get("used")), count_of(fields.get("size"))
    if used is not None and size:
        yield Usage(max(1 - used / size, 0) * 100)
    step = count_of(fields.get("step"))
    if used and step and session:  # what its model was given and wrote in this step; the end of the turn has the sums
        yield MessageUsage(f"step {step}", "", Tokens(used, 0, used), of_helper=False, use=TokenUse(given=used))
    cost = number_of(fields.get("cost_usd"))
    if cost is not None and session:
        yield SessionSpent(expense_of(from_usd(cost), None))


def _permission(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield _call_of(fields, announced=True)
    yield Note(f"it asks for permission, {words_of(fields.get('question'))}")


def _retry(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    refusal = from_codex(words_of(fields.get("text")))
    if refusal is not None:
        yield refusal


def _noted(fields: Mapping[str, object], _: str) -> Iterator[AgentEvent]:
    yield Note(words_of(fields.get("text")))


def _end(fields: Mapping[str, object], session: str) -> Iterator[AgentEvent]:
    cost = number_of(fields.get("cost_usd"))
    expense = expense_of(None if cost is None else from_usd(cost), fields.get("usage"))
    yield TurnEnded(_failure(fields), expense, session, words_of(fields.get("message")))
    if fields.get("error") is not None:
        text = words_of(fields["error"])
        limit = limit_in_error(
            text, refused=_status_in(text) == _TOO_MANY or words_of(fields.get("error_kind")) in _LIMITS
        )
        if limit is not None:
            yield limit


def _failure(fields: Mapping[str, object]) -> Failure | None:
    error = fields.get("error")
    if error is not None:
        text = words_of(error) or "its program reports an error"
        if fields.get("code") == AUTH_REQUIRED:
            message = words_of(fields.get("message"))  # some agents say there what is wrong, others anything at all
            says = message if class_of_answer(None, message) is ErrorClass.AUTH else text
            return provider_failure(ErrorClass.AUTH, f"{_LOGIN}: {says}", None)
        status = _status_in(text) or (_TOO_MANY if words_of(fields.get("error_kind")) in _LIMITS else None)
        return provider_failure(class_of_answer(status, text), text, status)
    stop = words_of(fields.get("stop"))
    if stop == END_OF_TURN:
        return None
    meant, words = _STOPS.get(stop, (ErrorClass.TRANSIENT, f"its turn ended by {stop[:40]!r}"))
    return Failure(meant, words)


def _status_in(text: str) -> int | None:
    """The status of the provider's answer, as agents tell of it: `last status: 429`, `Request rejected (429)`."""
    match = _STATUS.search(text[:2_000])
    return None if match is None else int(match[1] or match[2])


_KINDS = {
    "session": _session,
    "working": _working,
    "message": _message,
    "thought": _thought,
    "call": _call,
    "result": _result,
    "plan": _plan,
    "usage": _usage,
    "permission": _permission,
    "decided": _noted,
    "retry": _retry,
    "note": _noted,
    "end": _end,
}
_NO_STEPS = frozenset({"note", "usage", "permission", "retry"})
"""What is no step of its work; that it waits for a human is known by its asking (attempt/control.py)."""
