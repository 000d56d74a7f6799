"""Keeping a server beside a supervisor: in a process of its own, so that neither is ever in the other's way (ADR 62).

The socket is the keeper's. It listens from the first moment on, so that an address that cannot be had is told before
the fleet begins; and while a server that died is started again, callers wait in the socket's queue and are not refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from allswell.interfaces.http.listener import STOP_SECONDS, ListenAddress
from allswell.interfaces.http.server_process import ServeOrder
from allswell.runtime.host import harmless, packed
from allswell.settings import Settings

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
GROWN_UP = 60.0
"""Seconds: a server that lived for so long died of something new, and the pause begins anew."""
_END_SECONDS = STOP_SECONDS + 5.0


class KeptServer:
    """A server that is kept running."""

    def __init__(
        self,
        url: str,
        home: Path,
        settings: Settings,
        made: socket.socket,
        address: ListenAddress,
        tell: Callable[[str], None],
    ) -> None:
        about = (pickle.dumps(settings), packed(os.environ, but=("ALLSWELL_STORE", "ALLSWELL_KEY")))
        self._order = ServeOrder(url, str(home), address, made.fileno(), *about)
        self._tell = tell

    async def keep(self, _: object = None) -> None:
        """Start it, and again whenever it has ended, until cancelled: then it is told to end in good order."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                code = await self._live()
            except OSError as error:
                code = f"it could not be started: {error.strerror or error}"
            pause = FIRST_PAUSE if time.monotonic() - began > GROWN_UP else pause
            self._tell(f"the server has ended ({code}); it is started again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _live(self) -> str:
        """One life of it; how it ended."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "allswell.interfaces.http.server_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=harmless(os.environ),
            pass_fds=(self._order.listens,),
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101
        hearing = asyncio.ensure_future(self._hear(process.stdout))
        try:
            process.stdin.write(msgspec.json.encode(self._order) + b"\n")
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
            code = await process.wait()
            return f"exit code {code}" if code >= 0 else f"signal {-code}"
        finally:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            hearing.cancel()

    async def _hear(self, said: asyncio.StreamReader) -> None:
        """Pass on what it says."""
        with contextlib.suppress(ValueError):  # a line without an end
            while line := await said.readline():
                self._tell(line.decode("utf-8", "replace").rstrip())
