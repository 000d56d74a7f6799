"""What an agent says and does, folded from the events of its output: its last message, and the call that is open.

What its task is completed with is made of the last message (result.py). A message is an agent's words: it is bounded
here, and whoever shows it treats it as data.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from allswell.domain.agents.cost import usd
from allswell.domain.agents.denied import remark
from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.output import (
    AgentEvent,
    AgentLine,
    AgentText,
    Note,
    SessionStarted,
    Thinking,
    ToolCall,
    ToolCallRefused,
    ToolCallResult,
    Trouble,
    TurnEnded,
    decoded,
    denied_by,
    parse,
    words_of,
)
from allswell.domain.agents.printed import last_words
from allswell.domain.duration import felt, show
from allswell.domain.values import start_of

# What an agent printed, as a person reads it: `allswell logs`, the page and the live view show these entries.

_ENTRY = 400
"""Characters of a tool's input that are shown."""
_SPOKEN_BY = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
"""What of a tool's input tells most, the first that is there; else all of it is shown."""


class LogKind(StrEnum):
    """What an entry is."""

    TEXT = "text"
    """A line of no protocol."""
    MESSAGE = "message"
    """What the agent says."""
    THINKING = "thinking"
    TOOL = "tool"
    """A tool is called."""
    RESULT = "result"
    """What a tool brought."""
    ERROR = "error"
    NOTE = "note"
    """What the agent's program tells of itself: a session begins, the provider is waited for."""
    END = "end"
    """A turn has ended, with what it took."""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was printed."""

    kind: LogKind
    text: str
    tool: str = ""
    """Which one is called."""
    cost_usd: float | None = None
    """What it says that it cost; None where it says nothing."""
    tokens: int | None = None
    piece: bool = False
    """Whether it is a piece of a message, which goes on with the next one."""


_Stream = TypeVar("_Stream")


def entries_of(lines: Iterable[tuple[_Stream, bytes]]) -> list[tuple[_Stream, LogEntry]]:
    """What lines of several streams say; pieces of a message that follow each other are one entry."""
    shown: list[tuple[_Stream, list[LogEntry]]] = []
    for stream, line in lines:
        for entry in entries(line):
            if entry.piece and shown and shown[-1][0] == stream and shown[-1][1][-1].piece:
                shown[-1][1].append(entry)
            else:
                shown.append((stream, [entry]))
    return [(stream, replace(pieces[-1], text="".join(piece.text for piece in pieces))) for stream, pieces in shown]


def entries(line: bytes) -> list[LogEntry]:
    """What one line says; none where it is a line of a protocol that says nothing to a person."""
    parsed = parse(line)
    if not parsed.dialect:
        return [LogEntry(LogKind.TEXT, decoded(line))]
    try:
        return [entry for event in parsed.events if (entry := _entry(event, parsed)) is not None]
    except RecursionError:  # what could just be read may be too deep to show
        return [LogEntry(LogKind.TEXT, decoded(line))]


def _entry(event: AgentEvent, line: AgentLine) -> LogEntry | None:
    match event:
        case SessionStarted(model):
            return LogEntry(LogKind.NOTE, f"session {line.session or ''}{f', {model}' if model else ''}")
        case AgentText(text):
            return LogEntry(LogKind.MESSAGE, text, piece=event.piece)
        case Thinking(text):
            return LogEntry(LogKind.THINKING, text)
        case ToolCall(announced=False):
            return LogEntry(LogKind.TOOL, input_line(event.input), event.name)
        case ToolCallResult():
            return LogEntry(LogKind.ERROR if event.is_error else LogKind.RESULT, event.text)
        case ToolCallRefused(with_result=False):
            return LogEntry(LogKind.NOTE, f"{event.tool} was refused: {event.message}")
        case ProviderRefusal():
            return LogEntry(LogKind.NOTE, f"the provider is called again: {event.words}")
        case Note(text):
            return LogEntry(LogKind.NOTE, text)
        case Trouble(text):
            return LogEntry(LogKind.ERROR, text)
        case TurnEnded():
            return _ended(event, line)
        case _:
            return None


def _ended(end: TurnEnded, line: AgentLine) -> LogEntry:
    """How a session or a turn ended; that it says so at all is its own claim."""
    kind = LogKind.END if end.failure is None else LogKind.ERROR
    spent = end.expense
    tokens = None if spent.given is None else spent.given + (spent.written or 0)
    if line.dialect != "claude":
        text = "its turn is over" if end.failure is None else end.failure.message
        return LogEntry(kind, text, tokens=tokens)
    parts = [f"not done: {end.failure.message}" if end.failure is not None else "it says that it is done"]
    if refused := remark(denied_by(iter((end,)))):
        parts.append(refused)
    if end.took is not None:
        parts.append(show(end.took))
    if end.turns is not None:
        parts.append(f"{end.turns} turn{'' if end.turns == 1 else 's'}")
    return LogEntry(kind, ", ".join(parts), cost_usd=usd(spent.cost), tokens=tokens)


def input_line(value: object) -> str:
    """What a tool is given, in a line: what tells most of it, or all of it."""
    if isinstance(value, Mapping):
        told = next((value[name] for name in _SPOKEN_BY if isinstance(value.get(name), str)), None)
        value = told if told is not None else value or ""
    text = words_of(value)
    return text if len(text) <= _ENTRY else f"{text[:_ENTRY]}…"


MESSAGE_MAX = 8_000
"""Characters of a message that are kept: of a longer one, its beginning and its end."""
_END = 2_000
_LEFT_OUT = "\n[…]\n"
_PLAIN = 2_000
"""Characters of the end of plain text that are its message."""
_OPEN_MOST = 32
"""Calls that are kept as open: an agent makes a few at a time, and a program can print millions."""
_INPUT = 120
_SHELL_MOST = 4_000
_MOMENT = 1_000
"""Milliseconds from which on it is told for how long a call is open."""
_SHELLS = frozenset({"Bash", "shell", "run_shell_command", "local_shell"})
"""The tools by which agents run commands."""
_NOISE = re.compile(r"Reading (?:additional input|prompt) from stdin(?:\.\.\.|…)?")
"""What Codex prints of itself before it begins; it is no word of the agent."""


class OpenCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a tool that has brought nothing yet."""

    name: str
    input: str
    since: int
    """When it was made, in milliseconds of the reader's monotonic clock."""

    def words(self, now: int) -> str:
        """What the agent is doing: `running: npm test, 4m`."""
        length = f", {felt(now - self.since)}" if now - self.since >= _MOMENT else ""
        is_shell = self.name in _SHELLS and self.input
        act = f"running: {self.input}" if is_shell else f"calling: {self.name} {self.input}".rstrip()
        return f"{act}{length}"


class Conversation:
    """The fold over one stream of output; `hear` takes each line of a protocol, in the order of the stream."""

    def __init__(self) -> None:
        self.speaks = False
        """Whether a line of a protocol was heard."""
        self.message = ""
        """The agent's last message; empty if there was none."""
        self.is_done = False
        """Whether its turn has ended well, and nothing has been done since."""
        self._grows = False
        """Whether the last message comes in pieces, and has not ended."""
        self._open: dict[str, OpenCall] = {}

    def hear(self, line: AgentLine, at: int) -> None:
        """Take in one line, heard at this moment (milliseconds)."""
        self.speaks = self.speaks or bool(line.dialect)
        if line.progress or line.events:
            self.is_done = False
        for event in line.events:
            self._hear(event, at)

    @property
    def open_call(self) -> OpenCall | None:
        """The call that was made first of those that have brought nothing yet."""
        return next(iter(list(self._open.values())), None)  # a copy: the reader's thread goes on meanwhile

    def words(self, now: int) -> str:
        """What it does or has said last: the open call, else its last message on one line."""
        call = self.open_call
        return call.words(now) if call is not None else " ".join(self.message.split())

    def _hear(self, event: AgentEvent, at: int) -> None:
        match event:
            case AgentText(of_helper=False):
                grown = self.message + event.text if self._grows and event.piece else event.text
                self.message, self._grows = bounded(grown), event.piece
            case ToolCall(announced=False, over=False) | ToolCall(announced=True):
                self._grows = False
                known = self._open.get(event.id)  # what it is given may be told only now
                if known is not None or len(self._open) < _OPEN_MOST:
                    since = at if known is None else known.since
                    self._open[event.id] = OpenCall(event.name[:_INPUT], _input(event), since)
            case ToolCallResult():
                self._grows = False
                self._open.pop(event.id, None)
            case TurnEnded():
                self._grows = False
                self.is_done = event.failure is None
                self._open.clear()
                if event.message and event.failure is None:
                    self.message = bounded(event.message)
            case _:
                pass


def _input(call: ToolCall) -> str:
    """What a tool is given, on one line; of a shell that is given a script, the script."""
    text = input_line(call.input)
    if call.name in _SHELLS and len(text) <= _SHELL_MOST:
        try:
            words = shlex.split(text)
        except ValueError:
            words = []
        if len(words) == 3 and words[0].endswith("sh") and words[1] in ("-c", "-lc"):
            text = words[2]
    line = "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))
    return start_of(line, _INPUT)


# --- what an attempt brings -------------------------------------------------------------------------------------------


def bounded(text: str) -> str:
    """A message as it is kept: without what no text has, and of a long one its beginning and its end."""
    message = "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in text[: 2 * MESSAGE_MAX])
    if len(text) <= MESSAGE_MAX:
        return message.strip()
    end = "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in text[-_END:])
    return f"{message[: MESSAGE_MAX - _END - len(_LEFT_OUT)].strip()}{_LEFT_OUT}{end.strip()}"


def plain_message(printed: bytes) -> str:
    """The message of an agent that speaks no protocol: the last lines that it has printed."""
    lines = [line for line in last_words(printed, _PLAIN).splitlines() if not is_noise(line)]
    return "\n".join(lines)


def is_noise(line: str) -> bool:
    """Whether a line is what an agent's program says of itself, and no word of the agent."""
    return _NOISE.fullmatch(line.strip()) is not None
