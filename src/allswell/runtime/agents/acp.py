"""The client that speaks ACP with an agent, as a process of its attempt: `python -m allswell.runtime.agents.acp`.

    python -m allswell.runtime.agents.acp --session=ID -- claude-agent-acp …

It starts the agent below itself, so that both are in the attempt's process tree, sends it the prompt, which is in the
file that `ALLSWELL_PROMPT` names, and prints what comes of it, one object a line (`domain/agents/acp.py` reads them).
With a session it goes on with that; an agent that cannot do so has refused, and nothing is printed for the watch.

What the agent sends is data. Every message has a bound, and every text in it; what is longer is cut. It is offered
neither files nor terminals: it has its own, in its own process, where the attempt's boundary holds. A call for which it
wants permission is a question to a human, asked through the attempt's socket as every question of an agent's; it waits
as long as its attempt may. Only an answer that allows this one call allows it: all else refuses.

SIGINT is the soft stop: the turn is cancelled as the protocol has it, and the agent may end by itself. Whatever it
does, its supervisor ends the tree after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import acp
import msgspec
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    Implementation,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
    Usage,
)
from pydantic import ValidationError

from allswell.domain.agents.acp import END_OF_TURN
from allswell.domain.agents.conversation import bounded
from allswell.domain.agents.denied import DeniedCall, call_text
from allswell.domain.ids import QuestionId, is_session
from allswell.domain.question import ALLOW_ONCE, CALL_OPTIONS
from allswell.errors import AllswellError, Unavailable
from allswell.runtime import agent_socket

SESSION = "--session="
MESSAGE_MOST = 8 << 20
"""Bytes of one message of the agent's; with a longer one it is over."""
_TEXT_MOST = 8_000
"""Characters of a text that is printed; of a message of the agent's as many as are kept of one."""
_GROWN_MOST = 64_000
"""Characters of a message that comes in pieces; of a longer one the end is kept."""
_ASKED_MOST = 4_000
"""Characters of a call that can be allowed: a human has to read all of them."""
_LINE_MOST = 60_000
"""Bytes of a line that is printed; longer ones would not be read whole."""
_CALLS_MOST = 64
"""Calls that are known at a time."""
_OPTIONS_MOST = 20
_APART = 1.0
"""Seconds between two lines that say no more than that it is at work."""
_LOOK = 1.0
"""Seconds between two looks at whether a human has answered."""
_LEAVE = 5.0
"""Seconds that an agent has to end once its input is closed."""
_SHORT = 200
Say = Callable[[agent_socket.AnyWord], Awaitable[agent_socket.SocketReply]]
"""Speaks through the attempt's socket."""


# --- the agent's standard input and output ----------------------------------------------------------------------------


class AgentPipe:
    """Messages to and from the agent, one JSON object a line, each bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.fault = ""
        """Why nothing more is read, where that was the agent's fault."""
        self._reader = reader
        self._writer = writer

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._writer.write(msgspec.json.encode(message) + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end. A line that is none is skipped: some programs print on theirs."""
        while True:
            await asyncio.sleep(0)  # those before it are worked off first, however many there are
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError:
                self.fault = f"a message of the agent has more than {MESSAGE_MOST:,} bytes"
                return None
            except OSError:
                return None
            if (message := _message_in(line)) is not None:
                return message

    async def close(self) -> None:
        """Say no more: the agent is to end."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _LEAVE)


def _message_in(line: bytes) -> dict[str, Any] | None:
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if not isinstance(message.get("method"), str | None) or not isinstance(message.get("error"), dict | None):
        return None
    return message


# --- what is printed --------------------------------------------------------------------------------------------------


class SessionPrinter:
    """Prints what comes of the session, one object a line."""

    def __init__(self) -> None:
        self.session = ""
        self._working_at = 0.0
        self._plan = ""

    def tell(self, kind: str, **fields: object) -> None:
        """Print one line; where that is too long, with shorter texts."""
        line = b""
        for most in (_TEXT_MOST, _TEXT_MOST // 4, _SHORT):
            short = {name: shortened(value, most) for name, value in fields.items()}
            line = msgspec.json.encode({"type": f"acp.{kind}", "session_id": self.session, "acp": short})
            if len(line) <= _LINE_MOST:
                break
        else:
            short = {name: shortened(_as_text(value), _SHORT) for name, value in fields.items()}
            line = msgspec.json.encode({"type": f"acp.{kind}", "session_id": self.session, "acp": short})
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    def working(self, on: str) -> None:
        """It works on something that is told when it is whole; said now and then."""
        now = time.monotonic()
        if now - self._working_at >= _APART:
            self._working_at = now
            self.tell("working", on=on)

    def plan(self, text: str) -> None:
        """What it means to do, unless that was said last."""
        if text and text != self._plan:
            self._plan = text
            self.tell("plan", text=text)


def _as_text(value: object) -> object:
    """A value in whose place its text can stand; figures are themselves."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return msgspec.json.encode(shortened(value, _SHORT)).decode()


def shortened(value: object, most: int, depth: int = 8) -> object:
    """A value with bounded texts and lists, and nothing in it that is not JSON; two that were cut are told apart."""
    if isinstance(value, str):
        if len(value) <= most:
            return value
        digest = blake2b(value.encode("utf-8", "replace"), digest_size=8).hexdigest()
        return f"{value[:most]}… [{len(value):,} characters, {digest}]"
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {str(name)[:_SHORT]: shortened(part, most, depth - 1) for name, part in [*value.items()][:_SHORT]}
    if isinstance(value, list | tuple):
        return [shortened(part, most, depth - 1) for part in value[:_SHORT]]
    return shortened(str(value), most)


_CHUNKS = {"agent_message_chunk": "message", "agent_thought_chunk": "thought"}


# --- calls of tools ---------------------------------------------------------------------------------------------------


class SeenCall(msgspec.Struct):
    """A call of a tool, as far as the agent has told of it."""

    id: str
    title: str = ""
    kind: str = ""
    tool: str = ""
    """The tool's name, where the agent tells it."""
    status: str = ""
    input: object = None
    output: object = None
    content: list[Any] = []
    is_answer: bool = False
    """Whether the content came with its end; what came before may say what the call is about."""
    printed: str = ""
    """The end of what its command has printed, which comes beside the protocol."""
    count: int = 0
    """Characters of it in all."""
    shown: object = None
    """What was printed of it last."""

    @property
    def name(self) -> str:
        """What is called: the tool, or else what kind of tool it is."""
        return self.tool or _NAMES.get(self.kind, self.kind) or "tool"

    @property
    def given(self) -> object:
        """What the tool is given; its title, where the agent does not tell."""
        call_input = self.input
        if isinstance(call_input, Mapping) and isinstance(call_input.get("command"), list):
            words = [str(word) for word in call_input["command"]]
            call_input = {**call_input, "command": shlex.join(words)}
        return call_input or self.title

    @property
    def brought(self) -> str:
        """What it has brought, in words."""
        parts = [text for part in self.content if (text := _text_of(part))]
        if self.count:
            return self.printed if self.count <= _TEXT_MOST else f"[{self.count:,} characters]\n{self.printed}"
        if parts and (self.is_answer or self.output is None):
            return "\n".join(parts)
        output = self.output
        if isinstance(output, Mapping):
            output = next((output[name] for name in _OUTPUTS if isinstance(output.get(name), str)), output)
        return output if isinstance(output, str) else "" if output is None else msgspec.json.encode(output).decode()


_NAMES = {"execute": "shell"}
_OVER = ("completed", "failed")
_PRINTED = ("terminal_output_delta", "terminal_output")
_OUTPUTS = ("formatted_output", "aggregated_output", "output", "stdout", "text", "error", "message")


def _text_of(part: object) -> str:
    """A part of what a call has brought, in words."""
    if not isinstance(part, Mapping):
        return ""
    match part.get("type"):
        case "content":
            content = part.get("content")
            return str(content.get("text") or "") if isinstance(content, Mapping) else ""
        case "diff":
            return f"[changes {part.get('path')}]"
        case "terminal":
            return ""  # what it prints comes beside the protocol
        case other:
            return f"[{other}]"


class SeenCalls:
    """The calls of a session by id, each merged of all that was told of it; the oldest of too many are forgotten."""

    def __init__(self) -> None:
        self._calls: dict[str, SeenCall] = {}

    def merge(self, update: Mapping[str, Any]) -> SeenCall:
        """The call, with what is told of it now."""
        id_ = str(update.get("toolCallId"))[:_SHORT]
        call = self._calls.setdefault(id_, SeenCall(id_))
        call.title = str(update.get("title") or call.title)[:_TEXT_MOST]
        call.kind = str(update.get("kind") or call.kind)[:_SHORT]
        call.status = str(update.get("status") or call.status)[:_SHORT]
        meta = update.get("_meta")
        call.tool = _tool_in(meta) or call.tool
        if printed := _printed_in(meta):
            call.printed, call.count = (call.printed + printed)[-_TEXT_MOST:], call.count + len(printed)
        if update.get("rawInput"):
            call.input = update["rawInput"]
        if update.get("rawOutput") is not None:
            call.output = update["rawOutput"]
        if isinstance(update.get("content"), list):
            call.content, call.is_answer = update["content"], call.status in _OVER
        if len(self._calls) > _CALLS_MOST:
            del self._calls[next(iter(self._calls))]
        return call

    def forget(self, call: SeenCall) -> None:
        """It is over."""
        self._calls.pop(call.id, None)


def _printed_in(meta: object) -> str:
    """What a command has printed since; agents tell it so, though no terminal of ours is offered to them."""
    part = None
    if isinstance(meta, Mapping):
        part = next((meta[name] for name in _PRINTED if isinstance(meta.get(name), Mapping)), None)
    data = None if part is None else part.get("data")
    return data if isinstance(data, str) else ""


def _is_broken(meta: object, *, broken: bool) -> bool:
    """Whether a turn went wrong: codex-acp ends one that its provider refused with `end_turn`, and tells it here."""
    about = meta.get("codex") if isinstance(meta, Mapping) else None
    status = about.get("threadStatus") if isinstance(about, Mapping) else None
    return status.get("type") == "systemError" if isinstance(status, Mapping) else broken


def _retry_in(meta: object) -> str:
    """That its provider has refused and it tries again, in its words: codex-acp tells that beside the protocol."""
    about = meta.get("codex") if isinstance(meta, Mapping) else None
    error = about.get("error") if isinstance(about, Mapping) else None
    if not isinstance(error, Mapping) or error.get("willRetry") is not True:
        return ""
    return f"{error.get('message')}: {error.get('additionalDetails') or ''}"


def _tool_in(meta: object) -> str:
    """The tool's name, where an agent tells it beside the protocol: claude-agent-acp does."""
    about = meta.get("claudeCode") if isinstance(meta, Mapping) else None
    name = about.get("toolName") if isinstance(about, Mapping) else None
    return name[:_SHORT] if isinstance(name, str) else ""


# --- the client -------------------------------------------------------------------------------------------------------


class AttemptClient:
    """What the agent can say: how it goes on, and that it wants a permission. Nothing else is offered."""

    def __init__(self, printer: SessionPrinter, say: Say) -> None:
        self.cancelled = asyncio.Event()
        self.cost_usd: float | None = None
        """What the session has cost, as the agent told last."""
        self.message = ""
        """What the agent has said last, whole."""
        self.broken = False
        """Whether the agent has told beside the protocol that its turn went wrong, whatever reason it ends with."""
        self._calls = SeenCalls()
        self._steps = 0
        """How often its model was called, as far as that is told by what came of tools in between."""
        self._stepped = True
        """Whether what it uses next is that of another call of its model."""
        self._growing: tuple[str, str, object] = ("", "", None)
        """What it says or thinks just now, which comes in pieces: the kind of line, the text, the id of the message."""
        self._out = printer
        self._say = say
        self.heard = False
        """Whether what comes is new: an agent that loads a session tells all of it again."""

    def on_connect(self, conn: object) -> None:
        """Called by the library."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:  # noqa: ANN401 - of the library
        """The agent tells how it goes on."""
        if self.heard and session_id == self._out.session:
            self.hear(update.model_dump(mode="json", by_alias=True, exclude_none=True))

    def hear(self, update: Mapping[str, Any]) -> None:
        """Print what an update says."""
        kind = update.get("sessionUpdate")
        if kind in _CHUNKS:
            self._grow(_CHUNKS[kind], update)
            return
        if kind != "usage_update":
            self.flush()
        match kind:
            case "tool_call" | "tool_call_update":
                self._hear_call(self._calls.merge(update))
            case "plan":
                entries = [entry for entry in update.get("entries", ()) if isinstance(entry, Mapping)]
                self._out.plan("; ".join(f"{entry.get('content')} ({entry.get('status')})" for entry in entries))
            case "usage_update":
                cost = update.get("cost")
                if isinstance(cost, Mapping) and cost.get("currency") == "USD":
                    self.cost_usd = cost.get("amount")
                self._steps, self._stepped = self._steps + self._stepped, False
                used, size = update.get("used"), update.get("size")
                self._out.tell("usage", used=used, size=size, step=self._steps, cost_usd=self.cost_usd)
            case "session_info_update":
                self.broken = _is_broken(update.get("_meta"), broken=self.broken)
                if text := _retry_in(update.get("_meta")):
                    self._out.tell("retry", text=text)
            case _:
                pass

    def _grow(self, line: str, update: Mapping[str, Any]) -> None:
        content = update.get("content")
        text = str(content.get("text") or "") if isinstance(content, Mapping) else ""
        kind, before, message = self._growing
        if (kind, message) != (line, update.get("messageId")):
            self.flush()
            before = ""
        self._growing = (line, (before + text)[-_GROWN_MOST:], update.get("messageId"))
        self._out.working(line)

    def flush(self) -> None:
        """What it was saying is whole."""
        (line, text, _), self._growing = self._growing, ("", "", None)
        if text.strip():
            text = bounded(text)
            self._out.tell(line, text=text)
            self.message = text if line == "message" else self.message

    def _hear_call(self, call: SeenCall) -> None:
        shown = {"id": call.id, "name": call.name, "input": call.given}
        if call.status in _OVER:
            self._calls.forget(call)
            self._stepped = True
            self._out.tell("result", **shown, text=call.brought, failed=call.status == "failed")
        elif call.status == "pending" and not call.input:
            self._out.working("call")  # by its title alone it would be another call than the one that it becomes
        elif call.shown != shown:
            call.shown = shown
            self._out.tell("call", **shown)

    async def create_terminal(self, **_: Any) -> None:  # noqa: ANN401 - of the library
        """Refused: without this the library would answer nothing."""
        raise acp.RequestError.method_not_found("terminal/create")

    # --- permissions --------------------------------------------------------------------------------------------------

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **_: Any,  # noqa: ANN401 - of the library
    ) -> RequestPermissionResponse:
        """A human decides about a call; whatever else comes of it than this call's permission is a refusal."""
        self.flush()
        call = self._calls.merge(tool_call.model_dump(mode="json", by_alias=True, exclude_none=True))
        ways = {option.kind: option.option_id for option in reversed(options[:_OPTIONS_MOST])}
        allowed = session_id == self._out.session and await self._is_allowed(call, can_be=ALLOW_ONCE.key in ways)
        chosen = ways.get("allow_once" if allowed else "reject_once")
        if self.cancelled.is_set() or chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def _is_allowed(self, call: SeenCall, *, can_be: bool) -> bool:
        asked = asked_call(call)
        shown = asked.text if asked.barred else call_text(asked)
        text = f"The agent asks for permission, and waits for the answer: {shown}"
        if asked.barred or not can_be:
            why = asked.barred or "the agent offers no way to allow this call alone"
            self._out.tell("note", text=f"{text} It is refused: {why}.")
            return False
        word = agent_socket.AskMessage(text=text, options=CALL_OPTIONS, hold=True)
        try:
            question = (await self._say(word)).question
        except AllswellError as error:
            self._out.tell("note", text=f"{text} It is refused: no human could be asked: {error}")
            return False
        if question is None:
            return False
        self._out.tell("permission", id=call.id, name=call.name, input=call.given, question=question.id)
        choice = await self._answer_to(question.id)
        allowed = choice == ALLOW_ONCE.key
        by_human = "allowed" if allowed else "refused"
        self._out.tell("decided", id=call.id, name=call.name, text=f"this call was {by_human}: {asked.text}")
        return allowed

    async def _answer_to(self, question: QuestionId) -> str:
        """What was chosen; empty if that is nothing, or the turn was cancelled. It waits for as long as that takes."""
        while not self.cancelled.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.cancelled.wait(), _LOOK)
            with contextlib.suppress(Unavailable):
                asked = (await self._say(agent_socket.LookMessage(question=question))).question
                if asked is None or asked.closed_at is not None:
                    return "" if asked is None else asked.choice or ""
        return ""


def asked_call(call: SeenCall) -> DeniedCall:
    """A call as a human is asked about it: whole, or barred."""
    acts = call.given if isinstance(call.given, Mapping) else {"does": call.given}
    exact = msgspec.json.encode(acts, order="sorted").decode()
    text = f"{call.name}({exact[:_SHORT]})"
    if not call.name.isascii() or not call.name.isprintable():
        return DeniedCall("tool", "a call", barred="it is not plain which tool it calls")
    if len(exact) > _ASKED_MOST:
        return DeniedCall(call.name, text, barred=f"it has {len(exact):,} characters, which no human reads whole")
    return DeniedCall(call.name, text, exact)


# --- one turn ---------------------------------------------------------------------------------------------------------


class AcpTurn:
    """One attempt: the session, and in it one turn."""

    def __init__(self, prompt: str, session: str, say: Say) -> None:
        """`session` is what it is to go on with; `say` speaks through the attempt's socket."""
        self._prompt = prompt
        self._session = session
        self._out = SessionPrinter()
        self._client = AttemptClient(self._out, say)
        self._connection: acp.Agent | None = None
        self._cancelling: asyncio.Task[None] | None = None

    async def run(self, argv: Sequence[str]) -> int:
        """From the agent's start to its end; the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end_now)
        loop.add_signal_handler(signal.SIGINT, self.cancel)
        try:
            agent = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MESSAGE_MOST
            )
        except OSError as error:
            return _complain(f"{argv[0]} cannot be started: {error.strerror or error}")
        assert agent.stdin is not None  # noqa: S101 - as it was started
        assert agent.stdout is not None  # noqa: S101 - as it was started
        try:
            return await self.hold(AgentPipe(agent.stdout, agent.stdin), agent)
        finally:
            await _leave(agent)

    async def hold(self, pipe: AgentPipe, agent: asyncio.subprocess.Process | None = None) -> int:
        """Hold the turn over a pipe, and close it; the exit code.

        An agent that cannot go on with its session is not heard of on the standard output: it is started anew.
        """
        connection = acp.connect_to_agent(cast("acp.Client", self._client), pipe)  # the rest is not offered
        self._connection = connection
        try:
            return await self._converse(connection)
        except (acp.RequestError, ConnectionError, ValueError) as error:
            code = error.code if isinstance(error, acp.RequestError) else None
            kind = _kind_of(error.data) if isinstance(error, acp.RequestError) else ""
            known = _words_of(error) if isinstance(error, acp.RequestError) else pipe.fault
            text = known or await _how_it_ended(agent, error)
            if self._session and not self._out.session:
                return _complain(text)
            self._end(error=text, code=code, error_kind=kind)
            return 1
        finally:
            await connection.close()

    async def _converse(self, connection: acp.Agent) -> int:
        hello = await connection.initialize(
            acp.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="allswell", version=version("allswell")),
        )
        if hello.protocol_version != acp.PROTOCOL_VERSION:
            raise ValueError(f"the agent speaks version {hello.protocol_version} of ACP, not {acp.PROTOCOL_VERSION}")
        session = await self._open(connection, hello)
        if not is_session(session):
            raise ValueError("the agent's session has an id that cannot be one")
        info = hello.agent_info
        name = "" if info is None else f"{info.name} {info.version}"
        self._out.session = session
        self._out.tell("session", agent=name, resumed=bool(self._session))
        self._client.heard = True
        answer = await connection.prompt(session_id=session, prompt=[acp.text_block(self._prompt)])
        self._client.flush()
        usage = None if answer.usage is None else _tokens(answer.usage)
        if self._client.broken:
            self._end(error=self._client.message, code=None, usage=usage)
            return 1
        self._end(stop=answer.stop_reason, usage=usage)
        return 0 if answer.stop_reason == END_OF_TURN else 1

    async def _open(self, connection: acp.Agent, hello: acp.InitializeResponse) -> str:
        """The session that it works in: a new one, or the one that it is to go on with; `ValueError` if it cannot."""
        here = str(Path.cwd())
        if not self._session:
            return (await connection.new_session(cwd=here, mcp_servers=[])).session_id
        can = hello.agent_capabilities
        if can is not None and can.session_capabilities is not None and can.session_capabilities.resume is not None:
            await connection.resume_session(session_id=self._session, cwd=here, mcp_servers=[])
        elif can is not None and can.load_session:
            await connection.load_session(session_id=self._session, cwd=here, mcp_servers=[])
        else:
            raise ValueError("the agent cannot go on with a session")
        return self._session

    def cancel(self) -> None:
        """The soft stop: the turn is cancelled; where there is none, there is nothing to wait for."""
        self._client.cancelled.set()
        if self._connection is None or not self._out.session:
            self._end_now()
        elif self._cancelling is None:
            self._cancelling = asyncio.ensure_future(self._cancel(self._connection))

    async def _cancel(self, connection: acp.Agent) -> None:
        with contextlib.suppress(ConnectionError):
            await connection.cancel(session_id=self._out.session)

    def _end(self, **fields: object) -> None:
        self._client.flush()
        self._out.tell("end", **fields, message=self._client.message, cost_usd=self._client.cost_usd)

    def _end_now(self) -> None:
        """Its supervisor ends it: what the agent was saying is printed, and no more is waited for."""
        self._client.flush()
        os._exit(128 + signal.SIGTERM)


def _complain(text: str) -> int:
    """Say on the error stream why no turn has begun."""
    sys.stderr.write(f"allswell: ACP: {shortened(text, _TEXT_MOST)}\n")
    return 1


def _words_of(error: acp.RequestError) -> str:
    """An error of the protocol in words: agents put what matters beside its message."""
    data = error.data
    if isinstance(data, Mapping):
        data = next((data[name] for name in ("message", "details", "error") if isinstance(data.get(name), str)), data)
    more = data if isinstance(data, str) else "" if data is None else msgspec.json.encode(shortened(data, 400)).decode()
    message = str(error)
    return f"{message}: {more}" if more and more not in message else message


def _kind_of(data: object) -> str:
    """What an agent calls its error, where it does: claude-agent-acp and codex-acp each have a field of their own."""
    kinds = (data.get("errorKind"), data.get("codexErrorInfo")) if isinstance(data, Mapping) else ()
    return next((kind[:_SHORT] for kind in kinds if isinstance(kind, str)), "")


async def _how_it_ended(agent: asyncio.subprocess.Process | None, error: Exception) -> str:
    """What has gone wrong with an agent that has said nothing of it."""
    if isinstance(error, ValidationError):
        return f"the agent has answered what cannot be read: {str(error)[:_SHORT]}"
    if not isinstance(error, ConnectionError):
        return str(error)
    with contextlib.suppress(TimeoutError):
        code = None if agent is None else await asyncio.wait_for(agent.wait(), 1.0)
        if code is not None:
            return f"the agent has ended before its turn was over, with exit code {code}"
    return "the agent has closed its output before its turn was over"


async def _leave(agent: asyncio.subprocess.Process) -> None:
    """Wait until the agent has ended, whose input is closed; then it is told to."""
    for stop in (agent.terminate, agent.kill):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(agent.wait(), _LEAVE)
            return
        with contextlib.suppress(ProcessLookupError):
            stop()
    await agent.wait()


def _tokens(usage: Usage) -> dict[str, int]:
    """The tokens of a turn under the names that are read (`domain/agents/cost.py`)."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cached_read_tokens or 0,
        "cache_creation_input_tokens": usage.cached_write_tokens or 0,
    }


def main() -> int:
    """Read what it was told, and hold one turn."""
    logging.disable(logging.CRITICAL)  # the library logs what the agent sends, with a stack
    words = sys.argv[1:]
    at = words.index("--")
    session = next((word.removeprefix(SESSION) for word in words[:at] if word.startswith(SESSION)), "")
    prompt = Path(os.environ["ALLSWELL_PROMPT"]).read_text("utf-8", "replace")
    socket = os.environ.get(agent_socket.VARIABLE, "")

    async def say(word: agent_socket.AnyWord) -> agent_socket.SocketReply:
        return await asyncio.to_thread(agent_socket.say, socket, word)

    async def hold() -> int:
        return await AcpTurn(prompt, session, say).run(words[at + 1 :])

    return asyncio.run(hold())


if __name__ == "__main__":
    sys.exit(main())
