"""A receiver of what Apprise sends to `json://`: a message with a title, a text and a type."""

from __future__ import annotations

import msgspec

from tests.support.fakes.server import Answered, Asked, StandIn


class AlertTaken(msgspec.Struct, frozen=True):
    """One alert as Apprise sends it; it sends more fields than these."""

    title: str
    message: str
    type: str


class AlertReceiver(StandIn):
    """Takes alerts; a path of its own for each route tells them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, AlertTaken]] = []
        """Path and alert, in the order of arrival."""

    def route(self, path: str = "") -> str:
        """The Apprise URL of a path here."""
        return f"json://127.0.0.1:{self.port}/{path}"

    def answer(self, asked: Asked) -> Answered:
        """Take an alert."""
        try:
            self.taken.append((asked.path, msgspec.json.decode(asked.body, type=AlertTaken)))
        except msgspec.DecodeError as error:
            return Answered(400, str(error).encode())
        return Answered(200)
