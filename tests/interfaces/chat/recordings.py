"""What real AgentChat servers have said, frame by frame (`recorded/*.jsonl`), and how two such talks are compared.

A line of a recording has `client` (coord and ann with a key, guest without), `way` and `frame`. Of ids, moments, nonces
and names of messages only that they are the same or not can be compared, so each becomes its place in the talk.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
TO_SERVER, FROM_SERVER, OPENED, CLOSED, CLOSED_BY_US = "to server", "from server", "opened", "closed", "closed by us"
_ID = re.compile(r"@(?!server)[0-9a-z]{8,16}\b")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_BY_CHANCE = {"challenge_id", "nonce", "msg_id", "signature", "expires_at", "lurk_until", "timestamp", "ts"}
_FOR_PEOPLE = {"disclaimer", "lurk_reason"}


class Recorded(NamedTuple):
    at: int
    client: str
    way: str
    frame: dict[str, Any]


def recording(name: str) -> list[Recorded]:
    """A recording, in order."""
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [Recorded(one["at_ms"], one["client"], one["way"], one["frame"] or {}) for one in map(json.loads, lines)]


class Normal:
    """Writes frames without what chance has made of them; an agent is called after its client and connection."""

    def __init__(self, recorded: list[Recorded]) -> None:
        self._agents: dict[str, str] = {}
        for one in recorded:
            if one.way == FROM_SERVER and one.frame["type"] == "WELCOME":
                self._agents.setdefault(one.frame["agent_id"], f"@{one.client}{len(self._agents)}")

    def text(self, text: str) -> str:
        named = _ID.sub(lambda found: self._agents.get(found[0], "a stranger"), text)
        return _MOMENT.sub("MOMENT", named)

    def frame(self, frame: dict[str, Any]) -> str:
        """One frame as a line that can be compared."""
        return json.dumps(self._value(frame), sort_keys=True)

    def _value(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self._field(key, one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._value(one) for one in value]
        return self.text(value) if isinstance(value, str) else value

    def _field(self, key: str, value: object) -> object:
        if key in _BY_CHANCE:
            return type(value).__name__
        return "…" if key in _FOR_PEOPLE else self._value(value)


def heard_by(client: str, recorded: list[Recorded]) -> tuple[list[str], list[str]]:
    """What a client was sent over its first connection, in order, and what over a later one, in any.

    Of two connections that were open together it is not recorded which has heard what.
    """
    normal = Normal(recorded)
    first: list[str] = []
    later: list[str] = []
    heard = later
    for one in recorded:
        if one.client != client:
            continue
        if one.way == OPENED:
            heard = first if heard is later and not first else later
        elif one.way in {FROM_SERVER, CLOSED}:
            heard.append(normal.frame(one.frame))
    return first, later
