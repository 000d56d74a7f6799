"""One connection to a chat server, from saying who we are to its end.

The order is the server's: identify (with a key, by signing its challenge), join the channel or create it, hear the
replay, then talk. The replay is over when the server answers a ping that was sent after joining: frames keep their
order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from allswell.doors.chat.frames import Frame, read_frame, write_frame
from allswell.errors import Refused

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from allswell.doors.chat.agentchat import AgentChat

_log = logging.getLogger("allswell.chat")

OPENING = 30
"""Seconds from connecting to the end of the replay."""

_FOR_GOOD = {
    "AUTH_REQUIRED": "it lets only agents speak whose key it has known for a while; give a key with --key, or wait",
    "NOT_ALLOWED": "it does not let us; ask whoever runs it to let this key in, or to create the channel",
    "NOT_INVITED": "the channel is closed; ask whoever made it for an invitation",
    "INVALID_NAME": "it does not take this name; choose another with --name",
    "VERIFICATION_FAILED": "it does not accept the signature of our key",
}
"""Errors that no patience mends, and what to do."""


class ChatSession:
    """One connection, from identifying to its end."""

    def __init__(self, chat: AgentChat, connection: ClientConnection) -> None:
        self._chat = chat
        self._connection = connection
        self._place = chat.place

    async def run(self) -> None:
        """Talk until the connection ends, which is always by an error."""
        async with asyncio.timeout(OPENING):
            await self._identify()
            await self._join()
            await self._catch_up()
        await self._chat.caught_up()
        speaking = asyncio.ensure_future(self._chat.speak(self._connection))
        listening = asyncio.ensure_future(self._listen())
        try:
            await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (speaking, listening):
                task.cancel()
            ended = await asyncio.gather(speaking, listening, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _next(self) -> Frame:
        while True:
            frame = read_frame(await self._connection.recv())
            if frame is None:
                _log.warning("%s sent something that is no frame", self._place.url)
            elif frame.type == "ERROR" and frame.code in _FOR_GOOD:
                text = f"{self._place.url} refused us ({frame.code}): {_FOR_GOOD[frame.code]}"
                raise Refused("chat_refused", text, where="chat")
            elif frame.type == "KICKED":
                text = f"we were put out of {self._place.channel}; ask whoever runs {self._place.url}"
                raise Refused("chat_refused", text, where="chat")
            elif frame.type == "SESSION_DISPLACED":
                raise ConnectionResetError("another connection uses the same key")
            else:
                return frame

    async def _identify(self) -> None:
        key = self._chat.key()
        shown = {} if key is None else {"pubkey": key.public_pem}
        await self._connection.send(write_frame("IDENTIFY", name=self._place.name, **shown))
        while (frame := await self._next()).type != "WELCOME":
            if frame.type == "CHALLENGE" and key is not None:
                now = self._chat.wall()
                signature = key.sign(frame.nonce, frame.challenge_id, now)
                answer = {"challenge_id": frame.challenge_id, "signature": signature, "timestamp": now}
                await self._connection.send(write_frame("VERIFY_IDENTITY", **answer))
            elif frame.type == "ERROR":
                raise ConnectionResetError(f"the server did not welcome us: {frame.code}")
        self._chat.welcomed(frame.agent_id)

    async def _join(self) -> None:
        """Join the channel; one that is not there is created first."""
        channel = self._place.channel
        await self._connection.send(write_frame("JOIN", channel=channel))
        while (frame := await self._next()).type != "JOINED" or frame.channel != channel:
            if frame.type == "MSG":
                await self._chat.hear(frame)
            elif frame.type == "ERROR" and frame.code == "CHANNEL_NOT_FOUND":
                await self._connection.send(write_frame("CREATE_CHANNEL", channel=channel))
            elif frame.type == "ERROR" and frame.code == "CHANNEL_EXISTS":
                await self._connection.send(write_frame("JOIN", channel=channel))
            elif frame.type == "ERROR":
                raise ConnectionResetError(f"the server did not let us into {channel}: {frame.code}")

    async def _catch_up(self) -> None:
        """Hear the replay to its end: the answer to a ping comes after it."""
        await self._connection.send(write_frame("PING"))
        while (frame := await self._next()).type != "PONG":
            if frame.type == "MSG":
                await self._chat.hear(frame)

    async def _listen(self) -> None:
        while True:
            frame = await self._next()
            if frame.type == "MSG":
                await self._chat.hear(frame)
            elif frame.type == "ERROR" and frame.code == "RATE_LIMITED":
                self._chat.limited()
            elif frame.type == "ERROR":
                _log.warning("%s: %s %s", self._place.url, frame.code[:40], frame.message[:200])
