"""Telling systemd: READY when the worker works, WATCHDOG while it does, STOPPING when it ends (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress


class ServiceNotice:
    """Where systemd listens, if it started us and asked for it; elsewhere it says nothing."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")  # for us, not for what we start
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for us in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environment.pop(us, None)

    def ready(self, status: str) -> None:
        """It works."""
        self._say(f"READY=1\nSTATUS={status}")

    def alive(self, status: str) -> None:
        """It still does; what is not told this in time is restarted by systemd."""
        self._say(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        """It ends."""
        self._say("STOPPING=1")

    def _say(self, words: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.setblocking(False)
            line.sendto(words.encode(), self._address)
