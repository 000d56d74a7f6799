"""What Gemini and opencode print: lines of their protocols become the events of output.py.

Gemini (`--output-format stream-json`) names its session in its first line only. opencode (`run --format json`) names it
in each line, as `sessionID`; a call of a tool comes when it is over, and each step of its turn tells what it took. It
prints nothing while it tries a provider again. Where it may not make a call, and no human is there to be asked, it
ends with exit code 0 behind that call: its last step has a reason by which its turn would go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from allswell.domain.agents.checkpoint import holds_checkpoint
from allswell.domain.agents.cost import expense_of, from_usd, number_of
from allswell.domain.agents.output import (
    AgentEvent,
    AgentLine,
    AgentText,
    CheckpointTold,
    SessionStarted,
    StepEnded,
    Thinking,
    ToolCall,
    ToolCallRefused,
    ToolCallResult,
    Trouble,
    TurnEnded,
    WireLine,
    brought_by,
    provider_failure,
    words_of,
)
from allswell.domain.agents.refusal import limit_in_error
from allswell.domain.service.classify import class_of_answer
from allswell.domain.service.retry import ErrorClass, Failure


def line_of_other(line: WireLine) -> AgentLine | None:
    """What a line says that has a moment in it; None where it is of neither."""
    if line.sessionID:
        return _opencode(line) if line.type in _OPENCODE_TYPES else None
    if line.type in _GEMINI_TYPES and bool(line.session_id) is (line.type == "init"):
        return _gemini(line)
    return None


# --- Gemini -----------------------------------------------------------------------------------------------------------

_CODE = re.compile(r'\[API Error: .{0,40}"code": ?([45]\d\d)\b', re.DOTALL)
"""The status of Google's answer, as it stands in the error that Gemini hands on."""
_GEMINI_TYPES = ("init", "message", "tool_use", "tool_result", "error", "result")


def _gemini(wire: WireLine) -> AgentLine:
    kind, step = wire.type, wire.type != "error"
    events: tuple[AgentEvent, ...] = ()
    match kind:
        case "init":
            events = (SessionStarted(words_of(wire.model)),)
        case "message" if wire.role == "assistant":
            message = AgentText(words_of(wire.content), piece=wire.delta is True)
            events = (message, CheckpointTold(message.text)) if holds_checkpoint(message.text) else (message,)
        case "tool_use":
            events = (ToolCall(words_of(wire.tool_id), words_of(wire.tool_name), wire.parameters),)
        case "tool_result":
            bad = wire.status == "error"
            events = (
                ToolCallResult(words_of(wire.tool_id), brought_by(wire.error) if bad else words_of(wire.output), bad),
            )
        case "error":
            events = (Trouble(words_of(wire.message if isinstance(wire.message, str) else "")),)
        case "result":
            told = brought_by(wire.error) or "it reports an error"
            answered = _CODE.search(told[:2_000])
            status = None if answered is None else int(answered[1])
            failure = provider_failure(class_of_answer(status, told), told, status) if wire.status == "error" else None
            events = (TurnEnded(failure, expense_of(None, wire.stats)),)
        case _:
            pass
    return AgentLine("gemini", kind, step, wire.session_id or None, events)


_STOPPED = ("Loop detected", "Maximum session turns")
"""With what Gemini says that it stops by itself, in front of a last line that says that all went well."""


def stopped_by_itself(before: AgentLine, last: AgentLine) -> AgentLine:
    """The last line, which is not done where the line before it says that Gemini has stopped by itself."""
    text = next((event.text for event in before.events if isinstance(event, Trouble)), "")
    if before.dialect != "gemini" or not text.startswith(_STOPPED) or last.what != "result":
        return last
    failure = Failure(ErrorClass.TRANSIENT, f"it stopped by itself: {text}")
    events = [replace(event, failure=failure) if isinstance(event, TurnEnded) else event for event in last.events]
    return replace(last, events=tuple(events))


# --- opencode ---------------------------------------------------------------------------------------------------------

_OPENCODE_TYPES = ("step_start", "text", "reasoning", "tool_use", "step_finish", "error")
_REJECTED = "The user rejected permission"
"""With what it answers a call for which it would have asked a human."""
_OF_ITS_OWN = "opencode's own settings decide about it"
_CUT_OFF: Mapping[str, Failure] = {
    "tool-calls": Failure(ErrorClass.PERMANENT, "it stopped behind a call that it was not permitted to make"),
    "length": Failure(ErrorClass.TRANSIENT, "it reached its number of tokens"),
    "content-filter": Failure(ErrorClass.PERMANENT, "its model refused to go on"),
}
"""Reasons of its last step, where that is not done."""
_DONE = "stop"


def _opencode(line: WireLine) -> AgentLine:
    part = line.part if isinstance(line.part, Mapping) else {}
    what = f"{line.type} {words_of(part.get('tool'))}".strip()[:80]
    return AgentLine("opencode", what, line.type != "error", line.sessionID, tuple(_opencode_events(line, part)))


def _opencode_events(line: WireLine, part: Mapping[str, object]) -> Iterator[AgentEvent]:
    match line.type:
        case "text":
            text = words_of(part.get("text"))
            yield AgentText(text)
            if holds_checkpoint(text):
                yield CheckpointTold(text)
        case "reasoning":
            yield Thinking(words_of(part.get("text")))
        case "tool_use":
            yield from _opencode_call(part)
        case "step_finish":
            cost = number_of(part.get("cost"))
            expense = expense_of(None if cost is None else from_usd(cost), _tokens(part.get("tokens")))
            reason = words_of(part.get("reason"))
            yield TurnEnded(None, expense) if reason == _DONE else StepEnded(expense, _CUT_OFF.get(reason))
        case "error":
            yield from _opencode_failed(line.error)
        case _:
            return


def _opencode_call(part: Mapping[str, object]) -> Iterator[AgentEvent]:
    state = part.get("state")
    state = state if isinstance(state, Mapping) else {}
    id_, tool = words_of(part.get("callID")), words_of(part.get("tool"))
    yield ToolCall(id_, tool, state.get("input"))
    failed = state.get("status") == "error"
    text = words_of(state.get("error") if failed else state.get("output")).rstrip("\n")
    yield ToolCallResult(id_, text, failed)
    if failed and text.startswith(_REJECTED):
        yield ToolCallRefused(id_, _OF_ITS_OWN, tool, text)


def _opencode_failed(error: object) -> Iterator[AgentEvent]:
    data = error.get("data") if isinstance(error, Mapping) else None
    data = data if isinstance(data, Mapping) else {}
    name = words_of(error.get("name")) if isinstance(error, Mapping) else ""
    text = words_of(data.get("message")) or name or "it reports an error"
    status = data.get("statusCode")
    status = status if isinstance(status, int) and not isinstance(status, bool) else None
    yield Trouble(text)
    yield TurnEnded(provider_failure(class_of_answer(status, text), text, status), expense_of(None, None))
    limit = limit_in_error(text, refused=status == 429)
    if limit is not None:
        yield limit


def _tokens(tokens: object) -> Mapping[str, object] | None:
    """The tokens of a step under the names that are read (cost.py)."""
    if not isinstance(tokens, Mapping):
        return None
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, Mapping) else {}
    return {
        "input_tokens": tokens.get("input"),
        "output_tokens": tokens.get("output"),
        "cache_read_input_tokens": cache.get("read"),
        "cache_creation_input_tokens": cache.get("write"),
    }
