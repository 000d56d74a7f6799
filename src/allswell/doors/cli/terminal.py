"""A terminal of its own for a command that somebody sits before: what is typed goes in, its size follows ours.

Ours is put into raw mode meanwhile, so that every key, Ctrl-C too, means what the command takes it for. It is put back
however we end: by ourselves, or, should we be killed, by a small process that waits for nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import termios
import tty

_PIECE = 4_096
_SIZE = b"\0" * 8
_MOST_TYPED = 1 << 20
"""Bytes that wait for a command which reads nothing; what is typed beyond that is lost, as at any terminal."""
_GUARD = 'IFS= read -r said; [ "$said" = over ] || exec stty "$1" <&2'
"""Puts a terminal back unless it is told that this was done; the end of what it reads is ours."""


class Terminal:
    """The two ends of a pseudo-terminal, and the real one before which somebody sits."""

    def __init__(self, own: int) -> None:
        self._own = own
        self.ours, self.theirs = os.openpty()
        """Our end, and the one that the command has."""
        for end in (self.ours, self.theirs):
            os.set_inheritable(end, False)
        self._before = termios.tcgetattr(own)
        self._guard: subprocess.Popen[bytes] | None = None
        self._typed = bytearray()
        termios.tcsetattr(self.theirs, termios.TCSANOW, self._before)  # its keys mean what ours do
        self._resize()

    def begin(self) -> None:
        """The command runs: hand on what is typed from here on."""
        os.close(self.theirs)
        self.theirs = -1
        self._guard = _watch_over(self._own)
        tty.setraw(self._own, termios.TCSADRAIN)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._own, self._take)
        loop.add_signal_handler(signal.SIGWINCH, self._resize)

    def close(self) -> None:
        """Give everything back; may be called however far things had got, and more than once."""
        if self.theirs != -1:
            os.close(self.theirs)
        if self.ours == -1:
            return
        with contextlib.suppress(RuntimeError):  # no loop runs any more, and neither does a reader of it
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._own)
            loop.remove_writer(self.ours)
            loop.remove_signal_handler(signal.SIGWINCH)
        with contextlib.suppress(termios.error):  # it is gone: somebody has closed the window
            termios.tcsetattr(self._own, termios.TCSADRAIN, self._before)
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.communicate(b"over\n")
        os.close(self.ours)
        self.ours = self.theirs = -1

    def _take(self) -> None:
        """Somebody has typed something."""
        try:
            piece = os.read(self._own, _PIECE)
        except OSError:
            piece = b""
        self._typed += piece
        if not piece:
            asyncio.get_running_loop().remove_reader(self._own)
        self._hand_on()

    def _hand_on(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._typed:
                del self._typed[: os.write(self.ours, self._typed)]
        except BlockingIOError:  # the reaper reads from the same end, and waits for nobody
            del self._typed[_MOST_TYPED:]  # as a terminal does
            loop.add_writer(self.ours, self._hand_on)
            return
        except OSError:
            self._typed.clear()
        loop.remove_writer(self.ours)

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._own, termios.TIOCGWINSZ, _SIZE)
            fcntl.ioctl(self.ours, termios.TIOCSWINSZ, size)


def _watch_over(own: int) -> subprocess.Popen[bytes] | None:
    """Start what puts the terminal back should we be killed; None where a machine has no `stty`."""
    try:
        state = subprocess.run(["stty", "-g"], stdin=own, capture_output=True, text=True, check=True).stdout.strip()
        return subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", state],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=own,
            start_new_session=True,  # what is sent to our group shall not reach it
        )
    except (OSError, subprocess.SubprocessError):
        return None
