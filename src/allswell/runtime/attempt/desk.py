"""The socket of one attempt: good for its own lease only, in a folder that only our user can enter.

It lies in a folder of its own below the system's folder for temporary files, not beside the store: a unix socket's path
has 107 bytes, and projects lie deeper than that. Everything that comes in is bounded: how many may speak at once, how
long a message may be, how long it may take. A long message (most have a few hundred bytes) is read and answered while
no other long one is: so what never comes to its end costs the room of one, however many begin it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from allswell.errors import AllswellError, Bug, LeaseLost, Refused
from allswell.runtime.attempt.admission import Admission
from allswell.runtime.speaking.words import LONGEST, AnyWord, Reply, read_word

_NAME = "s"
_TMP = "/tmp"  # noqa: S108 - what we make there is a folder that only we can enter
_DEEPEST = 70
"""Bytes of a folder in which a socket of ours still has a name that fits."""
_SPEAKERS = 32
_SHORT = 65_536
"""Bytes up to which a message is read as it comes; longer ones wait for each other."""
_SILENCE = 30.0
"""Seconds that somebody may hold a connection without saying anything whole."""
_TOO_LARGE = "too_large"

Hear = Callable[[AnyWord], Awaitable[Reply]]


class Desk:
    """Listens at a socket and hands what is said to `hear`."""

    def __init__(self, hear: Hear, admission: Admission) -> None:
        tmp = os.path.abspath(os.environ.get("TMPDIR") or _TMP)  # noqa: PTH100 - as above
        self.folder = Path(tmp if len(tmp.encode()) < _DEEPEST else _TMP, f"allswell-{os.urandom(8).hex()}")
        """Where the socket will be; known before it is made, so that it can be noted before anybody has to clear it."""
        self._hear = hear
        self._admission = admission
        self._server: asyncio.Server | None = None
        self._speaking: dict[asyncio.Task[None], None] = {}
        self._long = asyncio.Lock()

    @property
    def path(self) -> str:
        """The socket's path; empty where there is none."""
        return "" if self._server is None else str(self.folder / _NAME)

    async def open(self) -> None:
        """Begin to listen; `OSError` if that cannot be."""
        os.mkdir(self.folder, 0o700)  # noqa: PTH102 - in memory, and at once
        place = str(self.folder / _NAME)
        self._server = await asyncio.start_unix_server(self._greet, place, limit=_SHORT, backlog=_SPEAKERS)

    async def close(self) -> None:
        """Hang up on everybody and take the socket away."""
        if self._server is not None:
            self._server.close()
        for speaker in self._speaking:
            speaker.cancel()
        await asyncio.gather(*self._speaking, return_exceptions=True)
        remove(self.folder)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        itself = asyncio.current_task()
        if itself is None:
            return
        self._speaking[itself] = None
        try:
            if len(self._speaking) <= _SPEAKERS and await self._admits(reader, writer):
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it hung up, or fell silent
        finally:
            del self._speaking[itself]
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _admits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether it may speak here; who may not is told so when it has said something, and is ready to hear."""
        async with asyncio.timeout(_SILENCE):
            try:
                await self._admission.check_peer(writer.get_extra_info("socket"))
            except Refused as error:
                with contextlib.suppress(asyncio.LimitOverrunError):
                    await reader.readuntil(b"\n")
                writer.write(msgspec.json.encode(error_reply(error)) + b"\n")
                await writer.drain()
                return False
        return True

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(_SILENCE):
                    line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as begun:
                async with self._long:
                    reply = await self._long_message(reader, begun.consumed)
            else:
                reply = await self._answer(line)
            writer.write(msgspec.json.encode(reply) + b"\n")
            async with asyncio.timeout(_SILENCE):  # one who never reads the answers holds a place for no longer, either
                await writer.drain()
            if reply.code == _TOO_LARGE:
                return

    async def _long_message(self, reader: asyncio.StreamReader, there: int) -> Reply:
        """Read and answer a message of which so much is there already."""
        message = bytearray()
        async with asyncio.timeout(_SILENCE):
            while len(message) + there <= LONGEST:
                message += await reader.readexactly(there)
                try:
                    message += await reader.readuntil(b"\n")
                    break
                except asyncio.LimitOverrunError as more:
                    there = more.consumed
            else:
                return error_reply(Refused(_TOO_LARGE, f"a message may have {LONGEST} bytes", where="message"))
        return await self._answer(bytes(message))

    async def _answer(self, line: bytes) -> Reply:
        try:
            word = read_word(line)
            self._admission.check_word(word)
            return await self._hear(word)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return error_reply(Refused("bad_message", f"this is not a word that can be said here: {error}"))
        except AllswellError as error:
            return error_reply(error)
        except Exception as error:  # noqa: BLE001 - whatever an agent sends, its supervisor goes on
            return error_reply(Bug(f"answering an agent failed: {error!r}"))


def error_reply(error: AllswellError) -> Reply:
    """An error as it travels."""
    kind = type(error).__name__
    if isinstance(error, LeaseLost):
        return Reply(error=kind, message=error.reason, where=f"{error.task}:{error.token}")
    if isinstance(error, Refused):
        return Reply(error=kind, message=error.message, code=error.code, where=error.where)
    return Reply(error=kind, message=str(error))


def remove(folder: Path) -> None:
    """Take a socket's folder away, if it is one, and lies where they lie."""
    if folder.name.startswith("allswell-") and str(folder.parent) in (os.environ.get("TMPDIR"), _TMP):
        with contextlib.suppress(OSError):
            (folder / _NAME).unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
