"""What agents print: one line becomes typed events, once; all that is known of an agent's output is a fold over them.

Claude Code (`-p --output-format stream-json`: one object a line, each with a `session_id`), Codex (`exec --json`: types
with a dot, such as `item.completed`), Gemini and opencode (other_clients.py) print protocols, and so does our client
for agents that speak ACP (acp.py). All else is plain text, in which only few lines mean anything here. Unknown types
are none of ours, and no error: the protocols grow.
Nothing that is read here is believed: it is data, and who shows it treats it as such.

    parse            a line as events
    not_done         from the last line: why the agent was not done, if it says so
    denied_in        from all lines: the calls that its program refused
    usage_left       from one line: how much of the session or the context is left
    entries          (conversation.py) from one line: what a person reads in its log
    Meter.hear       (cost.py) from the end of each turn: what it cost
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b

import msgspec

from allswell.domain.agents.checkpoint import holds_checkpoint
from allswell.domain.agents.cost import (
    Expense,
    Tokens,
    TokenUse,
    count_of,
    expense_of,
    from_usd,
    number_of,
    tokens_in,
    use_in,
)
from allswell.domain.agents.denied import CALLS_MOST, NOTHING_DENIED, Denied, DeniedCall, denied_call, is_call_id
from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.refusal import (
    LONGEST_LIMIT_LINE,
    UsageLimit,
    from_claude,
    from_codex,
    from_plain,
    instant_of,
    limit_in_error,
    limit_in_event,
    limit_in_plain,
)
from allswell.domain.agents.usage import Usage
from allswell.domain.service.classify import class_of_answer, shortened
from allswell.domain.service.retry import ErrorClass, Failure


class SessionStarted(msgspec.Struct, frozen=True, gc=False):
    """The agent's program has begun; the session's id stands in the line."""

    model: str


class AgentText(msgspec.Struct, frozen=True, gc=False):
    """What the agent says."""

    text: str
    of_helper: bool = False
    """Whether it is a helper's of the agent, whose last message is not the agent's."""
    piece: bool = False
    """Whether it is a piece of a message, which goes on with the next one."""


class Thinking(msgspec.Struct, frozen=True, gc=False):
    """What the model thinks."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A tool is called."""

    id: str
    name: str
    input: object
    announced: bool = False
    """Whether the same call is told again with its result."""
    over: bool = False
    """Whether it is told only now that it is over; no result follows."""

    @property
    def digest(self) -> str:
        """The same for two calls of one tool with the same input."""
        return _digest(msgspec.json.encode((self.name, self.input), order="sorted"))


class ToolCallResult(msgspec.Struct, frozen=True, gc=False):
    """What a tool brought."""

    id: str
    text: str
    is_error: bool = False

    @property
    def digest(self) -> str:
        """The same for two results that say the same."""
        return _digest(self.text.encode("utf-8", "replace"))


class ToolCallRefused(msgspec.Struct, frozen=True, gc=False):
    """The agent's program refused to make a call."""

    id: str
    barred: str
    """Why it cannot be allowed, in words; empty: it can be."""
    tool: str = ""
    message: str = ""
    with_result: bool = False
    """Whether this stands with the call's result: it adds the reason to a refusal that was told."""


class MessageUsage(msgspec.Struct, frozen=True, gc=False):
    """How many tokens one message of the model took, its whole context included."""

    id: str
    """Of the message: several lines may tell of one, with figures that grow; empty: the one that was begun last."""
    model: str
    tokens: Tokens
    of_helper: bool
    """Whether it is a helper's of the agent (`parent_tool_use_id`), whose context is another."""
    use: TokenUse = TokenUse()
    """The same tokens, by what each kind of them costs."""
    parent: str = ""
    """The call by which the agent has begun the helper."""


class CheckpointTold(msgspec.Struct, frozen=True, gc=False):
    """A message, or some plain lines, that hold a checkpoint (checkpoint.py)."""

    text: str


class Note(msgspec.Struct, frozen=True, gc=False):
    """What the agent's program tells of itself."""

    text: str


class Trouble(msgspec.Struct, frozen=True, gc=False):
    """What the agent's program complains of, and goes on."""

    text: str


class TurnEnded(msgspec.Struct, frozen=True, gc=False):
    """A turn, or a whole session, is over: the agent's own claim."""

    failure: Failure | None
    """Why it was not done, where it says so."""
    expense: Expense
    session: str = ""
    """Whose expense this is so far; empty: this turn's alone."""
    message: str = ""
    """The agent's last message."""
    took: int | None = None
    turns: int | None = None
    denials: list[object] | None = None
    """The calls that were refused in this session, as the client lists them."""
    goes_on: bool = False
    """Whether it is all that the session has cost, also in processes before this one; an earlier line has its id."""


class StepEnded(msgspec.Struct, frozen=True, gc=False):
    """A step of a turn is over, with what it took; the turn goes on, unless this is the last that is printed."""

    expense: Expense
    failure: Failure | None = None
    """Why the agent was not done, where nothing came after this."""


class SessionSpent(msgspec.Struct, frozen=True, gc=False):
    """What a session has cost so far, in all, while its turn goes on."""

    expense: Expense


class PlainText(msgspec.Struct, frozen=True, gc=False):
    """A line of no protocol."""

    text: str


AgentEvent = (
    SessionStarted
    | AgentText
    | Thinking
    | ToolCall
    | ToolCallResult
    | ToolCallRefused
    | MessageUsage
    | CheckpointTold
    | Note
    | Trouble
    | TurnEnded
    | StepEnded
    | SessionSpent
    | PlainText
    | ProviderRefusal
    | UsageLimit
    | Usage
)
"""`ProviderRefusal`: the provider has refused, and the client tries again by itself. `UsageLimit`: a limit was reached.
`Usage`: how much of the session is left."""


class AgentLine(msgspec.Struct, frozen=True, gc=False):
    """One line of an agent's output."""

    dialect: str
    """`claude`, `codex`, `gemini`, `opencode` or `acp`; empty where it is of no protocol."""
    what: str
    """What the line is, in words; empty where its type is not known, or it is of no protocol."""
    progress: bool
    """Whether it reports a step of the work. Not where it only says that time passes (`tool_progress`, pings), that the
    provider is waited for (`api_retry`, `rate_limit_event`), or that something went wrong."""
    session: str | None = None
    """By which the agent can go on later."""
    events: tuple[AgentEvent, ...] = ()


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


# --- from a line to events --------------------------------------------------------------------------------------------


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    name: str = ""
    id: object = None
    text: object = None
    thinking: object = None
    input: object = None
    tool_use_id: object = None
    content: object = None
    is_error: object = None


class _ModelMessage(msgspec.Struct, gc=False):
    content: list[_Part | str] | str | None = None
    model: str = ""
    id: object = None
    usage: object = None


class _StreamEvent(msgspec.Struct, gc=False):
    type: str = ""
    message: _ModelMessage | None = None
    usage: object = None


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    id: object = None
    text: object = None
    command: object = None
    aggregated_output: object = None
    exit_code: object = None
    changes: object = None
    server: object = None
    tool: object = None
    arguments: object = None
    result: object = None
    error: object = None
    query: object = None
    message: object = None
    status: object = None


class WireLine(msgspec.Struct, gc=False):
    """All fields of all protocols that are looked at; the rest of a line is skipped unread."""

    type: str
    subtype: str | None = ""
    session_id: str = ""
    message: _ModelMessage | str | None = None
    event: _StreamEvent | None = None
    parent_tool_use_id: object = None
    usage: object = None
    # Claude Code: how a session begins and ends
    model: object = None
    result: object = None
    is_error: object = None
    errors: object = None
    api_error_status: object = None
    terminal_reason: object = None
    deferred_tool_use: object = None
    total_cost_usd: object = None
    duration_ms: object = None
    num_turns: object = None
    permission_denials: object = None
    # Claude Code: refusals and limits
    error_status: object = None
    error: object = None
    attempt: object = None
    max_retries: object = None
    retry_delay_ms: object = None
    rate_limit_info: object = None
    tool_use_id: object = None
    tool_name: object = None
    decision_reason_type: object = None
    tool_result_meta: object = None
    # Codex
    thread_id: str | None = ""
    item: _Item | None = None
    # Gemini
    timestamp: object = None
    role: object = None
    delta: object = None
    content: object = None
    tool_id: object = None
    parameters: object = None
    status: object = None
    output: object = None
    stats: object = None
    # opencode
    sessionID: str = ""  # noqa: N815 - its name
    part: object = None
    acp: object = None  # what our client prints


_READ = msgspec.json.Decoder(WireLine, strict=False)
_READ_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_READ_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_LONG_FIELDS = frozenset({"message", "item", "content", "output", "part"})
"""What agents say and tools bring: it may be long."""
_FIELD_MOST = 65_536
"""Bytes of any other field that becomes an object."""
_FIGURE_MOST = 2_000
"""Bytes of a figure, or of a field that speaks for a long call."""
TOO_LONG = "too_long"
"""Marks a refused call of which not all was read."""
LONGEST_LINE = 1 << 20
"""Bytes; a longer line is taken for plain text."""
LONGEST_FINAL_LINE = 8 << 20
"""Bytes of the last line: what was denied stands in it whole, so it can be long."""
_CODEX_STEPS = ("thread.started", "turn.started", "turn.completed", "item.started", "item.updated", "item.completed")
_SYNTHETIC = "<synthetic>"
"""The model that Claude Code names where its message is an error of the provider's."""
_WITHOUT_SESSION = (UsageLimit, Usage, MessageUsage)
"""What is read also off a line of Claude Code's that names no session."""


def parse(line: bytes, longest: int = LONGEST_LINE) -> AgentLine:
    """What a line says."""
    if line.startswith(b"{") and len(line) <= longest:
        try:
            wire = _READ.decode(line if len(line) <= _FIELD_MOST else _thinned(line))
            return _known(wire) or AgentLine("", "", False, None, (PlainText(decoded(line)),))
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError):
            pass  # it is plain text; what could just be read may be too deep to show
    text = decoded(line)
    meant = [PlainText(text)]
    found = (from_plain(line), limit_in_plain(text) if len(line) <= LONGEST_LIMIT_LINE else None)
    return AgentLine("", "", False, None, (*meant, *(event for event in found if event is not None)))


def _thinned(line: bytes) -> bytes:
    """A long line without what is not looked at, or is too long to be meant: megabytes of objects take seconds."""
    kept: dict[str, object] = {}
    for name, raw in _READ_FIELDS.decode(line).items():
        if name == "permission_denials":
            kept[name] = _thinned_denials(raw)
        elif name in ("usage", "stats") and _begins(raw, b"{"):
            figures = _READ_FIELDS.decode(raw).items()
            kept[name] = {figure: value for figure, value in figures if len(bytes(value)) <= _FIGURE_MOST}
        elif name in _LONG_FIELDS or len(bytes(raw)) <= _FIELD_MOST or _begins(raw, b'"'):
            kept[name] = raw
    return msgspec.json.encode(kept)


def _thinned_denials(raw: msgspec.Raw) -> object:
    """The first refusals of a list; of a long call only what speaks for it, marked as too long."""
    if not _begins(raw, b"["):
        return None
    denials: list[object] = []
    for denial in _READ_LIST.decode(raw)[:REFUSALS_MOST]:
        if len(bytes(denial)) <= _FIELD_MOST or not _begins(denial, b"{"):
            denials.append(denial if len(bytes(denial)) <= _FIELD_MOST else None)
            continue
        fields = _READ_FIELDS.decode(denial)
        given = fields.get("tool_input", msgspec.Raw(b"null"))
        shown: dict[str, msgspec.Raw] = _READ_FIELDS.decode(given) if _begins(given, b"{") else {}
        short = {name: value for name, value in shown.items() if len(bytes(value)) <= _FIGURE_MOST}
        thin: dict[str, object] = {name: fields[name] for name in ("tool_name", "tool_use_id") if name in fields}
        denials.append({**thin, "tool_input": short, TOO_LONG: True})
    return denials


def _begins(raw: msgspec.Raw, sign: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == sign


def decoded(line: bytes) -> str:
    """A line as text."""
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _known(wire: WireLine) -> AgentLine | None:
    family = wire.type.partition(".")[0]
    if family in ("thread", "turn", "item"):
        return _codex(wire)
    if family == "acp":
        from allswell.domain.agents.acp import line_of  # it imports the events from here

        return line_of(wire.type, wire.session_id, wire.acp)
    if wire.timestamp is not None and not (wire.session_id and wire.type != "init"):
        from allswell.domain.agents.other_clients import line_of_other  # as above

        read = line_of_other(wire)
        if read is not None:
            return read
    if wire.type == "error":
        return _codex_error(wire)
    read = _claude(wire)
    if wire.session_id:
        return read
    events = tuple(event for event in read.events if isinstance(event, _WITHOUT_SESSION))
    return AgentLine("", "", False, None, (PlainText(""), *events)) if events else None


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude(wire: WireLine) -> AgentLine:
    kind, session = wire.type, wire.session_id
    match kind:
        case "stream_event":
            inner = "" if wire.event is None else wire.event.type
            step = inner not in ("", "ping", "error")
            return AgentLine("claude", inner[:80] or kind, step, session, tuple(_claude_stream(wire)))
        case "system":
            step = wire.subtype in ("init", "compact_boundary")
            what = f"system {wire.subtype or ''}"[:80]
            return AgentLine("claude", what, step, session, tuple(_claude_system(wire)))
        case "rate_limit_event":
            return AgentLine("claude", kind, False, session, tuple(_claude_limit(wire)))
        case "tool_progress":
            return AgentLine("claude", kind, False, session)
        case "result":
            return AgentLine("claude", (wire.subtype or kind)[:80], True, session, tuple(_claude_end(wire)))
        case "assistant" | "user":
            message = wire.message
            what, step = wire.subtype or kind, True
            if isinstance(message, _ModelMessage) and message.model == _SYNTHETIC:
                what, step = "an error of the provider", False
            elif isinstance(message, _ModelMessage) and isinstance(message.content, list):
                named = (f"{part.type} {part.name}".strip() for part in message.content if isinstance(part, _Part))
                what = ", ".join([name for name in named if name][:3]) or kind
            return AgentLine("claude", what[:80], step, session, tuple(_claude_message(wire)))
        case _:
            return AgentLine("claude", "", False, session)


def _claude_system(wire: WireLine) -> Iterator[AgentEvent]:
    match wire.subtype:
        case "init":
            yield SessionStarted(words_of(wire.model))
        case "compact_boundary":
            yield Note("its context was compacted")
        case "api_retry":
            yield from_claude(wire.error_status, wire.error, wire.attempt, wire.max_retries, wire.retry_delay_ms)
        case "permission_denied":
            barred, told = _barred(wire.decision_reason_type), wire.message if isinstance(wire.message, str) else ""
            yield ToolCallRefused(_id(wire.tool_use_id), barred, words_of(wire.tool_name), told)
        case _:
            return


def _claude_message(wire: WireLine) -> Iterator[AgentEvent]:
    message, by_agent = wire.message, wire.type == "assistant"
    content = message.content if isinstance(message, _ModelMessage) else message
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content or ""]:
        for event in _claude_part(part, by_agent=by_agent):
            if isinstance(event, AgentText):
                texts.append(event.text)
                yield AgentText(event.text, of_helper=bool(wire.parent_tool_use_id))
            else:
                yield event
    if texts and holds_checkpoint(text := "\n".join(texts)):
        yield CheckpointTold(text)
    if by_agent and isinstance(message, _ModelMessage):
        yield from _message_usage(message, message.usage, wire.parent_tool_use_id)
    for decided in wire.tool_result_meta if isinstance(wire.tool_result_meta, list) else ():
        decision = decided.get("permission_decision") if isinstance(decided, Mapping) else None
        if isinstance(decision, Mapping):
            reason = "hook" if decision.get("source") == "hook" else decision.get("reason_type")
            yield ToolCallRefused(str(decided.get("id")), _barred(reason), with_result=True)


def _claude_stream(wire: WireLine) -> Iterator[AgentEvent]:
    """What a message takes, as it is streamed: when it begins, and at its end, when all that was written is known."""
    event = wire.event
    if event is None:
        return
    message = event.message or _ModelMessage()
    usage = event.usage if event.type == "message_delta" else message.usage
    if event.type in ("message_start", "message_delta"):
        yield from _message_usage(message, usage, wire.parent_tool_use_id)


def _message_usage(message: _ModelMessage, usage: object, parent: object) -> Iterator[AgentEvent]:
    if not isinstance(usage, Mapping) or message.model == _SYNTHETIC:
        return
    tokens = tokens_in(usage)
    if tokens is not None:
        use, helper = use_in(usage), _id(parent)
        yield MessageUsage(words_of(message.id), message.model, tokens, bool(parent), use, helper)


def _claude_part(part: _Part | str, *, by_agent: bool) -> Iterator[AgentEvent]:
    if isinstance(part, str):
        if by_agent and part.strip():
            yield AgentText(part)
        return
    match part.type:
        case "text" if by_agent and words_of(part.text).strip():
            yield AgentText(words_of(part.text))
        case "thinking" if words_of(part.thinking).strip():
            yield Thinking(words_of(part.thinking))
        case "tool_use" | "server_tool_use":
            yield ToolCall(_id(part.id), part.name, part.input)
        case "tool_result":
            yield ToolCallResult(_id(part.tool_use_id), _texts(part.content), part.is_error is True)
        case _:
            return


def _claude_limit(wire: WireLine) -> Iterator[AgentEvent]:
    info = wire.rate_limit_info
    if not isinstance(info, Mapping):
        return
    if (status := info.get("status")) not in (None, "allowed"):
        yield Note(f"usage limit: {words_of(status)}")
    used = number_of(info.get("utilization"))
    if used is not None and 0 <= used <= 1:
        yield Usage(None, (1 - used) * 100, instant_of(info.get("resetsAt")))
    if (limit := limit_in_event(info)) is not None:
        yield limit


def _claude_end(wire: WireLine) -> Iterator[AgentEvent]:
    cost = number_of(wire.total_cost_usd)
    took, turns = count_of(wire.duration_ms), count_of(wire.num_turns)
    yield TurnEnded(
        _claude_failure(wire),
        expense_of(None if cost is None else from_usd(cost), wire.usage),
        wire.session_id,
        words_of(wire.result),
        took,
        turns,
        wire.permission_denials if isinstance(wire.permission_denials, list) else None,
    )
    if wire.is_error:
        limit = limit_in_error(words_of(wire.result) or words_of(wire.error), refused=wire.api_error_status == 429)
        if limit is not None:
            yield limit


def _claude_failure(wire: WireLine) -> Failure | None:
    told = _end_words(wire.result) or _end_words(wire.errors) or _end_words(wire.subtype)
    status, subtype, ended = wire.api_error_status, str(wire.subtype), str(wire.terminal_reason)
    broken = bool(wire.is_error) or subtype.startswith("error") or ended == "api_error"
    if broken and isinstance(status, int):
        return provider_failure(class_of_answer(status, told), told, status)
    meant = _REASONS.get(ended) or _REASONS.get(_BY_SUBTYPE.get(subtype, ""))
    if meant is not None:
        error, reason = meant
        deferred = _deferred(wire.deferred_tool_use)
        if deferred is not None:
            return Failure(error, shortened(f"{reason}: {deferred.text}"), denied=Denied((deferred,)))
        return Failure(error, shortened(f"{reason}: {told}" if told and broken else reason))
    if broken:
        return provider_failure(class_of_answer(None, told), told or "it reports an error", None)
    return None


def _deferred(call: object) -> DeniedCall | None:
    """The call that waits for a permission; a hook has put it off, and what a hook says counts more than an allow."""
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        return None
    put_off = denied_call(call["name"], call.get("input"))
    if not put_off.barred:
        put_off = msgspec.structs.replace(put_off, barred="a hook of yours has put it off, and decides about it")
    call_id = call.get("id")
    return msgspec.structs.replace(put_off, id=call_id) if is_call_id(call_id) else put_off


# --- Codex ------------------------------------------------------------------------------------------------------------


def _codex(wire: WireLine) -> AgentLine:
    kind, item = wire.type, wire.item
    if kind == "turn.failed":
        return AgentLine("codex", kind, False, None, tuple(_codex_failed(wire)))
    if kind not in _CODEX_STEPS:
        return AgentLine("codex", "", False)
    events: Iterator[AgentEvent] = iter(())
    if kind == "thread.started":
        events = iter((SessionStarted(""),))
    elif kind == "turn.completed":
        # Its figures are those of the whole thread: seen of 0.169.0, also where `codex exec resume` goes on with one.
        events = iter((TurnEnded(None, expense_of(None, wire.usage), goes_on=True),))
    elif item is not None and kind != "item.updated":
        events = _codex_item(item, over=kind == "item.completed")
    what = kind if item is None else f"{kind} {item.type}".strip()[:80]
    step = item is None or item.type != "error"
    return AgentLine("codex", what, step, wire.thread_id or None, tuple(events))


def _codex_failed(wire: WireLine) -> Iterator[AgentEvent]:
    error = wire.error
    told = _end_words(error.get("message") if isinstance(error, Mapping) else error) or "its turn failed"
    found = _STATUS.search(told[:2_000])
    status = None if found is None else int(found[1])
    yield TurnEnded(provider_failure(class_of_answer(status, _body(told)), told, status), Expense())
    yield from _codex_limit(wire, gave_up=True)


def _codex_error(wire: WireLine) -> AgentLine | None:
    """An error of Codex, where it is one that we know: anything may print such a line, and it is no progress."""
    refusal = from_codex(wire.message) if isinstance(wire.message, str) else None
    if refusal is not None:
        return AgentLine("codex", wire.type, False, None, (refusal,))
    limits = tuple(_codex_limit(wire, gave_up=False))
    return AgentLine("", "", False, None, (PlainText(words_of(wire.message)), *limits)) if limits else None


def _codex_limit(wire: WireLine, *, gave_up: bool) -> Iterator[AgentEvent]:
    text = wire.message if isinstance(wire.message, str) else ""
    if isinstance(wire.error, Mapping):
        told = wire.error.items()
        text = " ".join(f"{key}: {value}" for key, value in told if isinstance(value, str | int | float))
    limit = limit_in_error(text, refused=gave_up and _REFUSED.search(text[:LONGEST_LIMIT_LINE]) is not None)
    if limit is not None:
        yield limit


def _codex_item(item: _Item, *, over: bool) -> Iterator[AgentEvent]:
    id_ = str(item.id)
    match item.type:
        case "agent_message" if over:
            text = words_of(item.text)
            yield AgentText(text)
            if holds_checkpoint(text):
                yield CheckpointTold(text)
        case "reasoning" if over:
            yield Thinking(words_of(item.text))
        case "command_execution" if not over:
            yield ToolCall(id_, "shell", words_of(item.command))
        case "command_execution":
            bad = isinstance(item.exit_code, int) and item.exit_code != 0
            printed = words_of(item.aggregated_output).rstrip("\n")
            yield ToolCallResult(id_, f"exit code {item.exit_code}\n{printed}".rstrip("\n") if bad else printed, bad)
        case "file_change" if over:
            changes = item.changes if isinstance(item.changes, list) else []
            paths = [words_of(change.get("path")) for change in changes if isinstance(change, Mapping)]
            yield ToolCall(id_, item.type, ", ".join(paths), over=True)
        case "mcp_tool_call":
            name = ".".join(filter(None, (words_of(item.server), words_of(item.tool))))
            yield ToolCall(id_, name, item.arguments, announced=not over)
            if over:
                failed = bool(item.error) or item.status == "failed"
                yield ToolCallResult(id_, brought_by(item.error or item.result), failed)
        case "web_search" if over:
            yield ToolCall(id_, item.type, words_of(item.query), over=True)
        case "error" if over:
            yield Trouble(words_of(item.message))
        case _:
            return


def brought_by(result: object) -> str:
    """What a tool of MCP brought, or what went wrong with it."""
    if isinstance(result, Mapping):
        return words_of(result["message"]) if "message" in result else _texts(result.get("content"))
    return words_of(result)


# --- how an agent ended -----------------------------------------------------------------------------------------------
#
# Exit code 0 is not always done. Claude Code ends with a `result`: an error of the provider's (`is_error`, with
# `api_error_status`), a turn that something else than its end has ended (`terminal_reason`). Codex ends with
# `turn.failed`. Both may come with exit code 0. Calls that were refused (`permission_denials`) say nothing about the
# end: an agent works around most of them (denied.py).
#
# Only the very last line counts: an agent that prints something after it has gone on, and speaks by its exit code.
# Lines of Claude Code's in which nothing is done are looked past: where 2.1.327 resumes a session whose call was put
# off, it prints `command_lifecycle` after its `result`. Reasons that are not known here decide nothing.

_REASONS: Mapping[str, tuple[ErrorClass, str]] = {
    "tool_deferred": (ErrorClass.PERMANENT, "it waits for a permission"),
    "hook_stopped": (ErrorClass.PERMANENT, "a hook stopped it"),
    "max_turns": (ErrorClass.TRANSIENT, "it reached its number of turns"),
    "prompt_too_long": (ErrorClass.CONTEXT_OVERFLOW, "its prompt was too long"),
    "blocking_limit": (ErrorClass.CONTEXT_OVERFLOW, "its context was full"),
    "rapid_refill_breaker": (ErrorClass.CONTEXT_OVERFLOW, "its context was full again and again"),
    "image_error": (ErrorClass.VALIDATION, "an image could not be read"),
    "model_error": (ErrorClass.TRANSIENT, "the model failed"),
    "aborted_streaming": (ErrorClass.TRANSIENT, "it was broken off"),
    "aborted_tools": (ErrorClass.TRANSIENT, "it was broken off"),
    "background_requested": (ErrorClass.TRANSIENT, "it was sent to the background"),
    "malformed_tool_use_exhausted": (ErrorClass.TRANSIENT, "its calls of tools could not be read"),
    "structured_output_retry_exhausted": (ErrorClass.TRANSIENT, "it gave no valid structured output"),
    "turn_setup_failed": (ErrorClass.TRANSIENT, "its turn could not begin"),
    "tool_deferred_unavailable": (ErrorClass.PERMANENT, "it waits for a permission, and cannot be gone on with"),
    "budget_exhausted": (ErrorClass.PERMANENT, "it has spent its budget"),
}
"""Why a turn of Claude Code ended, where that is not done."""
_BY_SUBTYPE: Mapping[str, str] = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget_exhausted",
    "error_max_structured_output_retries": "structured_output_retry_exhausted",
}
"""The same by the kind of the last line, for clients that give no reason; some of them call that no error, either."""
_LINES_AFTER_END = 20
"""How many lines are looked at for the one that says how an agent ended."""
_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_REFUSED = re.compile(r"\bstatus:? 429\b")
"""As Codex tells of a provider that went on refusing."""
_PLAIN = 400
_PLAIN_START = re.compile(
    r"(?:error: )?(?:credit balance is too low|invalid api key|not logged in|failed to authenticate|oauth token"
    r"|prompt is too long|quota exceeded|codex ran out of room)",
    re.IGNORECASE,
)
"""What Claude Code and Codex print as their only line, where they are not asked for a protocol."""


def last_line_in(printed: bytes) -> AgentLine:
    """The last line that has anything in it, with why its program has stopped, where the line before tells that."""
    *before, end = printed.rstrip().rsplit(b"\n", _LINES_AFTER_END)[-_LINES_AFTER_END:]
    last = parse(end, LONGEST_FINAL_LINE)
    while before and last.dialect == "claude" and not last.progress and not last.events:
        last = parse(before.pop(), LONGEST_FINAL_LINE)
    if last.dialect != "gemini" or not before:
        return last
    from allswell.domain.agents.other_clients import stopped_by_itself  # as above

    return stopped_by_itself(parse(before[-1]), last)


def not_done(line: AgentLine) -> Failure | None:
    """Why the agent whose last line this is was not done, if it says so."""
    return next((event.failure for event in line.events if isinstance(event, TurnEnded | StepEnded)), None)


def plain_refusal(line: AgentLine) -> Failure | None:
    """What a last line in plain text says, where it begins with what a client prints that its provider refuses."""
    text = next((event.text for event in line.events if isinstance(event, PlainText)), "").strip()
    if len(text) > _PLAIN or not _PLAIN_START.match(text):
        return None
    error = class_of_answer(None, text)
    return None if error is ErrorClass.TRANSIENT else provider_failure(error, text, None)


def with_denied(failure: Failure, denied: Denied) -> Failure:
    """A failure with the calls that were refused before it; not where the provider's answer explains it."""
    deferred = () if failure.denied is None else failure.denied.calls
    if failure.status is not None or failure.account or not (denied.count or deferred):
        return failure
    together = msgspec.structs.replace(denied, calls=(*deferred, *denied.calls)[:CALLS_MOST])
    return msgspec.structs.replace(failure, denied=together)


def provider_failure(error: ErrorClass, told: str, status: int | None) -> Failure:
    """A failure as the provider's answer has it: a refused login or a used-up quota is the whole account's."""
    return Failure(error, shortened(told), status=status, account=error in (ErrorClass.AUTH, ErrorClass.PERMANENT))


def _body(told: str) -> object:
    """What the provider answered, where that was handed on as it is."""
    try:
        return msgspec.json.decode(told) if told.startswith("{") else told
    except (msgspec.DecodeError, RecursionError):
        return told


def _end_words(value: object) -> str:
    if isinstance(value, str):
        return value
    return "; ".join(str(part) for part in value) if isinstance(value, list) else ""


# --- refused calls, and what is left ----------------------------------------------------------------------------------

_REFUSALS = re.compile(rb'"permission_denials": *\[ *\{|"permission_denied"|"error": *"The user rejected permission')
REFUSALS_MOST = 1_000
"""Refusals that are looked at of one attempt, the first of them: a program can print millions, while others wait."""
_TELLS_OF_CALLS = (b'"permission_den', b'"tool_result_meta"', b'"tool_use"')
_REFUSED_BY = {"rule": "a rule in the settings of Claude Code refuses it", "hook": "a hook of yours refuses it"}


def denied_in(printed: bytes) -> Denied:
    """What was refused, by what an agent has printed so far: all of it, or the end of it."""
    if _REFUSALS.search(printed) is None:
        return NOTHING_DENIED
    lines = (line for line in printed.split(b"\n") if any(word in line for word in _TELLS_OF_CALLS))
    try:
        return denied_by(event for line in lines for event in parse(line, LONGEST_FINAL_LINE).events)
    except RecursionError:  # what could just be read may be too deep to show
        return NOTHING_DENIED


def denied_by(events: Iterator[AgentEvent]) -> Denied:
    """What was refused, by what an agent's events tell; the list at a session's end counts, where there is one."""
    calls: dict[str, ToolCall] = {}
    reasons: dict[str, str] = {}
    told: list[str] = []
    listed: list[object] = []
    listed_texts: set[bytes] = set()
    over = False
    for event in events:
        match event:
            case ToolCall():
                calls[event.id] = event
            case ToolCallRefused():
                if not event.with_result and len(told) < REFUSALS_MOST:
                    told.append(event.id)
                reasons[event.id] = reasons.get(event.id) or event.barred
            case TurnEnded(denials=list(denials)):
                over = True
                listed += _new(denials, listed_texts)[: REFUSALS_MOST - len(listed)]
            case _:
                pass
    if over:
        known = [call for denial in listed if (call := _listed(denial, reasons)) is not None]
    else:
        known = [
            denied_call(calls[id_].name, calls[id_].input, reasons[id_]) for id_ in dict.fromkeys(told) if id_ in calls
        ]
    return Denied(tuple(dict.fromkeys(known))[:CALLS_MOST], len(listed) if over else len(told))


def _new(denials: list[object], known: set[bytes]) -> list[object]:
    """The refusals of one line that no line before it has listed; they are known from now on.

    What was listed is found by its text: to compare each with each would take hours where a program prints millions.
    """
    texts = [(denial, msgspec.json.encode(denial, order="sorted")) for denial in denials[:REFUSALS_MOST]]
    new = [denial for denial, text in texts if text not in known]
    known.update(text for _, text in texts)
    return new


def _listed(denial: object, reasons: Mapping[str, str]) -> DeniedCall | None:
    if not isinstance(denial, Mapping) or not isinstance(denial.get("tool_name"), str):
        return None
    barred = reasons.get(_id(denial.get("tool_use_id")), "")
    call = denied_call(denial["tool_name"], denial.get("tool_input"), barred)
    if TOO_LONG not in denial:
        return call
    return msgspec.structs.replace(call, input="", barred=call.barred or "it is too long to be read whole")


def _barred(reason: object) -> str:
    return _REFUSED_BY.get(_id(reason), "")


def usage_left(event: AgentEvent, window: int | None = None) -> Usage | None:
    """What an event says is left, in percent (O6); None if it says nothing. `window`: tokens that the context takes.

    How large a context may become is not told by any client, so who sets up the fleet says it (`context_window`).
    """
    if isinstance(event, MessageUsage) and window is not None and not event.of_helper and event.tokens.prompt:
        return Usage(max(1 - event.tokens.total / window, 0) * 100)
    return event if isinstance(event, Usage) else None


def _id(value: object) -> str:
    """An id or a short name; anything else is none."""
    return value if isinstance(value, str) else ""


def words_of(value: object) -> str:
    """A value as text; what is no text, as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode("utf-8", "replace")


def _texts(content: object) -> str:
    """What a tool brought, in words; what is no text is named."""
    if not isinstance(content, list):
        return words_of(content)
    parts = [part for part in content if isinstance(part, Mapping)]
    return "\n".join(
        words_of(part.get("text")) if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts
    )
