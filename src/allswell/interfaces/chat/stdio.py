"""A channel on standard input and output: `name: LINE` in and out, for scripts and for bridges to other chats.

Each line that is read says who speaks and what; each that is written begins with our own name. Who the speakers are is
the word of whoever feeds the input. They came in the order in which they are read: that is their time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from typing import BinaryIO

from allswell.build.merge import ChannelClosed
from allswell.domain.build.hearing import ChannelCoverage, HeardMessage
from allswell.domain.build.line import MESSAGE_MAX, is_agent_name
from allswell.domain.ids import Millis
from allswell.errors import Refused
from allswell.timing.clock import SystemClock

_log = logging.getLogger("allswell.chat")
_CHUNK = 65_536
_TOO_LONG = "a line of more than %d bytes was skipped"


class StdioChannel:
    """A `Channel` over two byte streams; reading ends with the input."""

    def __init__(self, name: str, given: BinaryIO, told: BinaryIO) -> None:
        if not is_agent_name(name):
            raise Refused("bad_name", f"{name!r} cannot be our name; use letters, digits, '_' and '-'", where="name")
        self._name = name
        self._given = given
        self._told = told
        self._clock = SystemClock()
        self._count = 0
        self._last = Millis(0)
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[HeardMessage | None] = asyncio.Queue()
        self._writing = asyncio.Lock()
        # A thread of its own: a file, a pipe and a terminal can all be read so, and none of them holds up the loop.
        threading.Thread(target=self._read, name="allswell-stdio", daemon=True).start()

    @property
    def who(self) -> str:
        """Our name."""
        return self._name

    @property
    def hearing(self) -> ChannelCoverage:
        """Nothing is told again: of what was said before we came nothing is known."""
        return ChannelCoverage(self._heard.empty())

    async def receive(self) -> HeardMessage:
        """The next message."""
        heard = await self._heard.get()
        if heard is None:
            self._heard.put_nowait(None)  # for whoever asks again
            raise ChannelClosed("standard input has ended")
        return heard

    async def send(self, lines: Sequence[str]) -> Millis:
        """Say these lines; returns when they are written."""
        text = "".join(f"{self._name}: {line}\n" for line in lines)
        async with self._writing:
            await asyncio.to_thread(self._write, text.encode("utf-8", "replace"))
        return Millis(self._clock.wall())

    def _write(self, raw: bytes) -> None:
        try:
            self._told.write(raw)
            self._told.flush()
        except OSError:
            raise ChannelClosed("standard output was closed") from None

    def _read(self) -> None:
        """Read to the end, in a thread. Lines that are too long are skipped as a whole."""
        kept = b""
        skipping = False
        with contextlib.suppress(RuntimeError, OSError, ValueError):  # the loop, or the input, was closed meanwhile
            while chunk := self._chunk():
                *lines, kept = (kept + chunk).split(b"\n")
                for line in lines:
                    if not skipping and len(line) < MESSAGE_MAX:
                        self._loop.call_soon_threadsafe(self._hear, line)
                    elif not skipping:
                        _log.warning(_TOO_LONG, MESSAGE_MAX)
                    skipping = False
                if len(kept) >= MESSAGE_MAX:
                    if not skipping:
                        _log.warning(_TOO_LONG, MESSAGE_MAX)
                    kept, skipping = b"", True
            if kept and not skipping:
                self._loop.call_soon_threadsafe(self._hear, kept)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._heard.put_nowait, None)

    def _chunk(self) -> bytes:
        """What there is to read.

        It is not read through a buffer of Python's: a process that ends while a thread waits in one is aborted.
        """
        try:
            number = self._given.fileno()
        except (OSError, AttributeError):  # not a file at all
            return self._given.read(_CHUNK)
        return os.read(number, _CHUNK)

    def _hear(self, raw: bytes) -> None:
        who, colon, text = raw.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        who = who.strip()
        if not text.strip() or who == self._name:
            return
        if not colon or not is_agent_name(who):
            _log.warning("a line without a speaker was skipped; write such as `alice: CLAIM auth`")
            return
        self._count += 1
        self._last = Millis(max(self._last, self._clock.wall()))
        self._heard.put_nowait(HeardMessage(who, text.strip(), self._last, f"{self._count:012}"))
