"""Who may speak at an attempt's socket: a process of the attempt that says its secret.

The socket's path can be guessed or seen by other agents of the same user, and so can what stands in an environment. So
a speaker is known by its parents: it must be below the attempt's reaper, as everybody is whom the command started. An
agent in a container, or in a tmux that was there before, is not; where `socket_speakers` is `secret`, knowing the
attempt's secret is enough.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import struct

from allswell.errors import Refused
from allswell.runtime.speaking.words import AnyWord
from allswell.runtime.warden import Record
from allswell.runtime.warden.ancestry import is_inside

_CREDENTIALS = struct.Struct("3i")
"""What the kernel says of whoever connected: process, user, group."""


class Admission:
    """What one attempt's socket asks of those who speak there."""

    def __init__(self, *, outsiders: bool = False) -> None:
        self.secret = os.urandom(16).hex()
        self._outsiders = outsiders
        self._tree: Record | None = None
        self._begun = asyncio.Event()

    def begin(self, record: Record) -> None:
        """The command runs: this is its tree."""
        self._tree = record
        self._begun.set()

    async def check_peer(self, line: socket.socket) -> None:
        """Refuse who is not of the attempt; it waits until the tree is known, for a command may be quick to speak."""
        if self._outsiders:
            return
        pid, _, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        await self._begun.wait()
        if self._tree is None or not is_inside(self._tree, pid):
            raise Refused(
                "not_yours",
                "this socket is for the processes of its own attempt; for an agent in a container or in tmux, set "
                "socket_speakers to secret",
                where="socket",
            )

    def check_word(self, word: AnyWord) -> None:
        """Refuse what is said without the attempt's secret."""
        if not hmac.compare_digest(word.secret.encode(), self.secret.encode()):
            text = "this is not the secret of this attempt; it stands in ALLSWELL_SECRET, in the attempt's environment"
            raise Refused("not_yours", text, where="secret")
