"""The two streams of an attempt: a file for each, and a pump that hands on what passes and looks at it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from allswell.domain.evidence import last_words
from allswell.domain.final_line import LONGEST
from allswell.domain.protocol import Said
from allswell.runtime.attempt.order import Echo
from allswell.runtime.evidence import Pump, Room
from allswell.runtime.own_files import create, own_folder, remove_file
from allswell.runtime.warden import Result

_NAMES = ("stdout", "stderr")
_SOON, _LATER = 0.001, 0.05
"""Seconds between two looks at whether everything has passed, at first and at most."""
_SHOWN = 4_096
"""Bytes of the output's end that are looked through for what to show."""
_ROOM = 1 << 19
"""Bytes in a pipe between the reaper and us: each turn of one of three processes costs time."""


class Streams:
    """Files, pipes and pumps; `close` gives everything back, however far things had got."""

    def __init__(
        self,
        folder: Path,
        name: str,
        echo: Echo | None,
        said: Callable[[Said], None],
        room: Room | None = None,
        reported: Callable[[bytes], None] | None = None,
    ) -> None:
        self.paths: list[Path | None] = []
        self.warning: str | None = None
        """Why the transcript has no name, if it has none: it is gone with the attempt then."""
        self.files: list[int] = []
        self.into: list[int] = []
        """Where the reaper writes to, as well as into the files."""
        self._pumps: list[Pump] = []
        self._room = room
        self._printed_to: int | None = None
        """The file of the standard output, ours to read: whoever watches may be slow, and the last line counts."""
        try:
            for number, stream in enumerate(_NAMES, start=1):
                self.files.append(self._open(folder, f"{name}.{stream}"))
                if self._printed_to is None:
                    self._printed_to = os.dup(self.files[0])
                source, into = os.pipe2(os.O_CLOEXEC)
                self.into.append(into)
                with contextlib.suppress(OSError):  # a user's pipes may be used up: then it takes more turns
                    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _ROOM)
                self._pumps.append(Pump(source, None if echo is None else partial(echo, number), said, reported))
                self._pumps[-1].start() if room is None else room.take(self._pumps[-1])
        except BaseException:
            self.close()
            raise

    def _open(self, folder: Path, name: str) -> int:
        try:
            with own_folder(folder, make=True) as inside:
                opened = create(name, inside, flags=os.O_RDWR)
        except OSError as error:
            self.warning = f"what it prints cannot be kept in {folder}: {error.strerror}"
            self.paths.append(None)
            import tempfile

            with tempfile.TemporaryFile() as nameless:
                return os.dup(nameless.fileno())
        self.paths.append(folder / name)
        return opened

    @property
    def printed(self) -> int:
        """Bytes that have passed."""
        return sum(pump.printed for pump in self._pumps)

    @property
    def new(self) -> int:
        """How often something passed that had not passed before."""
        return sum(pump.new for pump in self._pumps)

    def asked(self) -> None:
        """A look was taken: search for news again from here on."""
        for pump in self._pumps:
            pump.asked()

    def let_go(self) -> None:
        """The reaper has the files and its ends of the pipes: with ours closed, the last of it ends the pumps."""
        for opened in (*self.into, *self.files):
            os.close(opened)
        self.into, self.files = [], []

    async def drained(self, given_up: Callable[[], bool]) -> None:
        """Wait until all that was printed has been handed on, or until it is given up: somebody may not take it."""
        self.let_go()
        if self._room is not None:
            self._room.hurry()
        pause = _SOON
        # Polled, not joined in a thread of the loop's: whoever ends the loop would wait for that thread for ever.
        while not all(pump.over for pump in self._pumps) and not given_up():
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LATER)

    async def heard_out(self, seconds: float) -> None:
        """Wait at most so long for what was printed last: it may name the agent's session, for the receipt."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self.drained(lambda: loop.time() >= until)
        await asyncio.sleep(0)  # what has been heard is noted on the loop

    def kept(self, printed: Result | None) -> tuple[Path | None, Path | None]:
        """The files by stream; None where nothing was printed."""
        if printed is None:
            return None, None
        return (self.paths[0] if printed.stdout.bytes else None), (self.paths[1] if printed.stderr.bytes else None)

    def last_line(self) -> bytes:
        """The last line of the standard output that has anything in it; called when everything has been printed."""
        end = self._end(LONGEST).rstrip()
        return end[end.rfind(b"\n") + 1 :]

    def last_words(self) -> str:
        """The end of the standard output, for people."""
        return last_words(self._end(_SHOWN))

    def _end(self, size: int) -> bytes:
        if self._printed_to is None:
            return b""
        return os.pread(self._printed_to, size, max(os.fstat(self._printed_to).st_size - size, 0))

    def close(self, *, keep: bool = True) -> None:
        """Give everything back; without `keep`, the files are gone."""
        self.let_go()
        if self._printed_to is not None:
            os.close(self._printed_to)
            self._printed_to = None
        for path in self.paths:
            if path is not None and (not keep or _is_empty(path)):
                with contextlib.suppress(OSError):
                    remove_file(path)


def _is_empty(path: Path) -> bool:
    try:
        return path.lstat().st_size == 0
    except OSError:
        return False
