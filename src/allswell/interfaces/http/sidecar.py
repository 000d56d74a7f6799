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
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from allswell.errors import AllswellError
from allswell.interfaces.http.listener import STOP_SECONDS, ListenAddress
from allswell.runtime.host import harmless, keep_to_ourselves, packed, take_over
from allswell.settings import Settings
from allswell.views.fields import ErrorShape

if TYPE_CHECKING:
    from allswell.interfaces.http.server import Served

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
            "allswell.interfaces.http.sidecar",
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


# The process of that server: `python -m allswell.interfaces.http.sidecar`. The keeper itself imports no server.
#
# It is told what to serve by one line on its standard input, and serves for as long as that stays open: a keeper that
# is gone, however it went, has closed it. So no server is left behind, and none needs a signal. Signals of the
# terminal are not for it; it belongs to a session of its own.


class ServeOrder(Struct, frozen=True):
    """What to serve, and the socket that listens for it."""

    url: str
    home: str
    address: ListenAddress
    listens: int
    """The socket's number in this process."""
    settings: bytes
    """As its keeper has read them at its own start, pickled: what is written into a file since then is not read."""
    environment: bytes
    """Its environment: it began with what everybody may know."""


def main() -> int:
    """Serve until standard input ends."""
    from allswell.interfaces.http.server import Served

    keep_to_ourselves()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServeOrder)
    take_over(order.environment)
    try:
        settings: Settings = pickle.loads(order.settings)  # noqa: S301 - by a pipe, from the process that started this
        served = Served(order.url, settings, Path(order.home), _tell)
        asyncio.run(_live(served, order))
    except AllswellError as error:
        told = ErrorShape.of(error).error
        _tell(told.message if told.hint is None else f"{told.message} ({told.hint})")
        return 1
    return 0


async def _live(served: Served, order: ServeOrder) -> None:
    from allswell.interfaces.http.server import serve_on

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)  # nothing more is said: it can only end
    with socket.socket(fileno=order.listens) as made:
        await serve_on(served, made, order.address, ended)


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody hears it any more
        sys.stdout.write(line.replace("\n", " ") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
