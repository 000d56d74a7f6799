"""Receivers of what Apprise sends: to `json://`, a title, a text and a type; to `ntfy://`, buttons beside them.

Slack and Discord are reached where Apprise says, so a test says it for Apprise; what is sent is Apprise's own.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

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


class ChatReceiver(StandIn):
    """Takes messages as the webhooks of Slack and Discord do, and refuses what they refuse for its length."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._patch = patch
        self.taken: list[dict[str, Any]] = []

    def slack(self) -> str:
        """The Apprise URL of a channel of Slack's, which is here."""
        from apprise.plugins.slack import NotifySlack

        self._patch.setattr(NotifySlack, "webhook_url", f"{self.url}/slack")
        return "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#night"

    def discord(self) -> str:
        """The Apprise URL of a channel of Discord's, which is here."""
        from apprise.plugins.discord import NotifyDiscord

        self._patch.setattr(NotifyDiscord, "notify_url", f"{self.url}/discord")
        return "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"

    def answer(self, asked: Asked) -> Answered:
        """Take a message."""
        message = msgspec.json.decode(asked.body)
        blocks = [block for part in message.get("attachments", ()) for block in part.get("blocks", ())]
        texts = [
            (block["text"]["text"], {"header": 150}.get(block["type"], 3_000)) for block in blocks if "text" in block
        ]
        texts += [(message.get("content", ""), 2_000)]
        for embed in message.get("embeds", ()):
            texts += [(embed.get("title", ""), 256), (embed.get("description", ""), 4_096)]
        if any(len(text) > most for text, most in texts):
            return Answered(400, b"too long")
        self.taken.append(message)
        return Answered(200, b"ok")
