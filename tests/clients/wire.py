"""Recordings of what passes between our client and real agents that speak ACP, and an agent that plays one back.

`captured/acp-*.jsonl` were made by `make clients` (`ALLSWELL_RECORD=1 make clients` makes them anew): a line is
`{"by": "client" or "agent", "frame": …}`. What varies from run to run (ids of sessions, folders, ports, moments) is
replaced, and long lists and texts, such as all models that there are, are cut.
"""

# ruff: noqa: ANN401 - frames are any JSON

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.clients.stand_in import CAPTURED

SESSION = "01a1f18c-93de-7311-99db-234df1a7276f"
"""The session of every recording."""
FOLDER = "/repository"
_TEXT_MOST = 300
_LIST_MOST = 4
_FRAMES_MOST = 80
"""Of one that goes round in circles the first rounds are enough."""
_VARIES = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), SESSION),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "127.0.0.1:1"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z?"), "2026-11-19T05:00:00Z"),
    (re.compile(r"\bt_[0-9a-z]{16}\b"), "t_1m7s4s7a20szg3c5"),
    (re.compile(r"\bq_[0-9a-z]{16}\b"), "q_1m7s4s7a20szg3c5"),
    (re.compile(r'"pid":\d+'), '"pid":1'),
)
Frame = dict[str, Any]


def redacted(frame: object, folder: str, *, whole: bool = False) -> Any:
    """A frame without what varies; `whole`: nothing of it is cut."""
    if isinstance(frame, str):
        text = frame.replace(folder, FOLDER)
        home = str(Path(folder).parent)
        text = text.replace(home, "")
        for pattern, instead in _VARIES:
            text = pattern.sub(instead, text)
        return text if whole or len(text) <= _TEXT_MOST else f"{text[:_TEXT_MOST]}…"
    if isinstance(frame, Mapping):
        return {name: redacted(value, folder, whole=whole) for name, value in frame.items()}
    if isinstance(frame, list):
        kept = frame if whole or len(frame) <= _LIST_MOST else frame[:1]
        return [redacted(value, folder, whole=whole) for value in kept]
    return frame


def keep(source: Path, folder: Path, name: str) -> None:
    """Make a recording of what a tap has written down."""
    noted = [json.loads(line) for line in source.read_text().splitlines()]
    told = [{"by": line["by"], "frame": redacted(line["frame"], str(folder))} for line in noted if "frame" in line]
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in told[:_FRAMES_MOST])
    (CAPTURED / f"{name}.jsonl").write_text("".join(lines))


def recordings() -> list[str]:
    return sorted(path.stem for path in CAPTURED.glob("acp-*.jsonl"))


def recorded(name: str) -> list[tuple[str, Frame]]:
    """Who sent what, in the order of the wire."""
    lines = (CAPTURED / f"{name}.jsonl").read_text().splitlines()
    return [(line["by"], line["frame"]) for line in map(json.loads, lines)]


def turns(name: str) -> list[list[tuple[str, Frame]]]:
    """A recording by the processes of its agent: each begins with `initialize`."""
    parts: list[list[tuple[str, Frame]]] = []
    for by, frame in recorded(name):
        if frame.get("method") == "initialize":
            parts.append([])
        parts[-1].append((by, frame))
    return parts


def _comparable(frame: Frame) -> Frame:
    """What of our client's frame has to be as it was recorded: all but what the task brings, and our version."""
    own = ("prompt", "cwd", "clientInfo")
    params = {name: value for name, value in (frame.get("params") or {}).items() if name not in own}
    return {**frame, **({"params": params} if "params" in frame else {})}


class RecordedAgent:
    """Plays the agent's side of a recording; what our client sends has to be what it sent then."""

    def __init__(self, frames: list[tuple[str, Frame]]) -> None:
        self.differs: list[tuple[Frame, Frame]] = []
        """What our client has sent, where that is not what was recorded, with what was."""
        self.cancels = asyncio.Event()
        """Set when the recording goes on with our client's cancel."""
        self._frames = frames

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for by, frame in self._frames:
            if by == "agent":
                writer.write(msgspec.json.encode(frame) + b"\n")
                await writer.drain()
                continue
            if frame.get("method") == "session/cancel":
                self.cancels.set()
            line = await reader.readline()
            if not line:
                self.differs.append(({}, frame))
                return
            sent = redacted(json.loads(line), str(Path.cwd()))
            if _comparable(sent) != _comparable(frame):
                self.differs.append((sent, frame))
        writer.close()


def kind_of(frame: Frame) -> str:
    """What kind of message it is, in a word or two."""
    update = (frame.get("params") or {}).get("update") or {}
    if update:
        status = update.get("status") or ""
        return f"{update['sessionUpdate']} {status}".strip()
    if "method" in frame:
        return str(frame["method"])
    if "error" in frame:
        return "error"
    return "result " + "+".join(
        sorted(name for name in frame["result"] if name in ("stopReason", "sessionId", "protocolVersion"))
    )
