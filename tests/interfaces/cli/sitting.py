"""Somebody who sits before a real terminal and types."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl

from tests import patience
from tests.interfaces.cli.shell import ALLSWELL, Shell


class Sitting:
    """Somebody before a real terminal, in a session of its own."""

    def __init__(self, shell: Shell, *args: str, columns: int = 91, program: Sequence[str] = ALLSWELL) -> None:
        self.ours, self.theirs = os.openpty()
        self.resize(columns)
        self.before = termios.tcgetattr(self.theirs)
        self.seen = ""
        own = self.theirs
        self.process = subprocess.Popen(
            [*program, *args],
            cwd=shell.folder,
            env={**shell.env, "TERM": "xterm-256color"},
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread of ours runs here
        )

    def resize(self, columns: int) -> None:
        ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def sees(self, text: str) -> str:
        """Look until a text is there, and take note of all that was."""
        end = time.monotonic() + patience.SECONDS
        os.set_blocking(self.ours, False)
        while text not in self.seen:
            with contextlib.suppress(BlockingIOError):
                self.seen += os.read(self.ours, 65_536).decode()
            assert time.monotonic() < end, self.seen
            time.sleep(0.005)
        return self.seen

    def ends(self, code: int) -> str:
        """Wait for the end, and take note of all that was seen until then."""
        assert self.process.wait(patience.SECONDS) == code, self.seen
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.ours, 65_536):
                self.seen += piece.decode()
        assert self.is_as_before()
        # What a command prints last may come after the terminal was given back, which then adds a return of its own:
        # on a screen that is the same.
        return re.sub("\r+\n", "\n", self.seen)

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)
