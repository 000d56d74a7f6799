"""Receivers of what Apprise sends: to `json://`, a title, a text and a type; to `ntfy://`, buttons beside them."""

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


class NtfyButton(msgspec.Struct, frozen=True):
    """A button below a notification."""

    action: str
    label: str
    url: str


class NtfyTaken(msgspec.Struct, frozen=True):
    """One notification, as ntfy's clients show it."""

    topic: str
    title: str
    message: str
    buttons: tuple[NtfyButton, ...] = ()


class NtfyReceiver(StandIn):
    """Takes notifications as ntfy does: JSON, with buttons in the header X-Actions."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[NtfyTaken] = []

    def route(self, topic: str) -> str:
        """The Apprise URL of a topic here."""
        return f"ntfy://127.0.0.1:{self.port}/{topic}"

    def answer(self, asked: Asked) -> Answered:
        """Take a notification."""
        taken = msgspec.json.decode(asked.body, type=NtfyTaken)
        buttons = msgspec.json.decode(asked.headers.get("x-actions", "[]"), type=tuple[NtfyButton, ...])
        self.taken.append(msgspec.structs.replace(taken, buttons=buttons))
        return Answered(200, b"{}")
