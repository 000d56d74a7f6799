"""What is listened for in an agent's output: checkpoints, usage limits, how much of its session and context is left.

It runs in the threads that pass the output on, so nearly everything must pass at the cost of a search for a few words.
What is heard is handed to the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from allswell.domain.agents import output
from allswell.domain.agents.refusal import ProviderRefusal, UsageLimit, from_plain
from allswell.domain.agents.refusal import read as read_refusal
from allswell.domain.agents.usage import Usage

_WORDS = (b"imit", b"uota", b"429", b"Attempt ", b"CHECKPOINT", b"Checkpoint")
_LONGEST = 65_536
_BLOCK = 24
"""Lines after the head of a checkpoint that may belong to it."""
_SETTLE = 0.3
"""Seconds in which a checkpoint that is printed line by line comes to its end."""


@dataclass(frozen=True)
class OutputListeners:
    """Whom to tell; each is called in the loop."""

    checkpoint: Callable[[str], None]
    limit: Callable[[UsageLimit], None]
    usage: Callable[[Usage], None]
    started: Callable[[], None] = lambda: None
    refused: Callable[[ProviderRefusal], None] = lambda _: None
    """Takes what clients print as plain text; what they print as a protocol is heard where that is read."""


class OutputParser:
    """Listens to the streams of one attempt; called with what passes."""

    def __init__(self, heard: OutputListeners, context_window: int | None = None) -> None:
        self._heard = heard
        self._window = context_window
        self._words = _WORDS if context_window is None else (*_WORDS, b'"usage"')
        self._loop = asyncio.get_running_loop()
        self._rest: dict[int, bytes] = {}
        self._block: list[str] = []
        self._text = ""
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, stream: int, piece: bytes) -> None:
        """What passes on a stream; in that stream's thread."""
        data = self._rest.get(stream, b"") + piece
        if b"\r" in data:
            data = _plain_ends(data)
        body, _, rest = data.rpartition(b"\n")
        self._rest[stream] = rest[-_LONGEST:]
        if body and (self._block or any(word in body for word in self._words)):
            for line in body.split(b"\n"):
                self._line(line)

    def last(self) -> None:
        """The streams have ended: what was left without a line's end is looked at, too."""
        for rest in self._rest.values():
            self._line(rest)
        self._rest.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._say()

    def _line(self, line: bytes) -> None:
        limit = read_refusal(line)
        if limit is not None:
            self._tell(self._heard.limit, limit)
        left = output.reported(line, self._window)
        if left is not None:
            self._tell(self._heard.usage, left)
        if line.startswith(b"{"):
            if b"CHECKPOINT" in line or b"Checkpoint" in line:
                self._found(_texts(line))
            return
        refusal = from_plain(line)
        if refusal is not None:
            self._tell(self._heard.refused, refusal)
        text = line.decode("utf-8", "replace")
        if "checkpoint" in text.casefold() and ":" in text:
            self._block = [text]
        elif self._block:
            self._block.append(text)
            self._found("\n".join(self._block))
            if len(self._block) > _BLOCK:
                self._block = []

    def _found(self, text: str) -> None:
        if output.read_checkpoint(text) is not None:
            self._tell(self._hear_checkpoint, text[-16_000:])

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:  # noqa: ANN401 - what each of them takes
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(whom, *what)

    def _hear_checkpoint(self, text: str) -> None:
        self._text = text
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_SETTLE, self._say)

    def _say(self) -> None:
        self._timer = None
        text, self._text = self._text, ""
        if text:
            self._heard.checkpoint(text)


def _plain_ends(data: bytes) -> bytes:
    """With a line's end for every return to its start: else a spinner would be one line that never ends."""
    last = b"\r" if data.endswith(b"\r") else b""  # the other half of a line's end may come with the next piece
    return data.removesuffix(last).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last


def _texts(line: bytes) -> str:
    """What an agent says in a line of its protocol: its messages alone, never what its tools print."""
    try:
        said = msgspec.json.decode(line[:_LONGEST]) if len(line) <= _LONGEST else None
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(said, dict):
        return ""
    if said.get("type") == "assistant" and isinstance(said.get("message"), dict):
        parts = said["message"].get("content")
        texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        return "\n".join(text for text in texts if isinstance(text, str))
    item = said.get("item")
    if isinstance(item, dict) and item.get("type") == "agent_message":
        return str(item.get("text") or "")
    return ""
