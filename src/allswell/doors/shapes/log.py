"""One thing that an attempt has printed, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.domain.log_line import LogKind

if TYPE_CHECKING:
    from allswell.domain.log_line import LogEntry


class LogShape(Struct, frozen=True):
    """A line of words, a message, a tool call, what came of it, or the end of a turn; costs only where it says some."""

    task_id: str
    attempt: int
    stream: Literal["stdout", "stderr"]
    kind: LogKind
    tool: str | None
    text: str
    cost_usd: float | None
    tokens: int | None

    @classmethod
    def of(cls, entry: LogEntry, task: str, attempt: int, stream: Literal["stdout", "stderr"]) -> LogShape:
        """An entry in its place."""
        return cls(
            task_id=task,
            attempt=attempt,
            stream=stream,
            kind=entry.kind,
            tool=entry.tool or None,
            text=entry.text,
            cost_usd=entry.cost_usd,
            tokens=entry.tokens,
        )


class LogsShape(Struct, frozen=True):
    """What an attempt has printed; `next` is where to go on, and `over` says that nothing more comes behind it."""

    task_id: str
    attempt: int
    lines: list[LogShape]
    next: str
    over: bool
