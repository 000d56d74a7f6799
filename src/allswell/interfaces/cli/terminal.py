"""A terminal for a command that is run at one: a pseudo-terminal for each attempt, and the real one behind it.

The real one is in raw mode while the command runs, so that every key, Ctrl-C and Ctrl-Z too, means what the command
takes it for, and nothing of ours is painted into it. It is given back after each attempt, while the command is stopped,
and however we end: by ourselves, or, should we be killed, by a small process that waits for nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from allswell.runtime.host import harmless

if TYPE_CHECKING:
    from allswell.runtime.attempt.launch import LaunchSpec


_PIECE = 4_096
_SIZE = b"\0" * 8
_MOST_TYPED = 1 << 20
"""Bytes that wait for a command which reads nothing; what is typed beyond that is lost, as at any terminal."""
_DISABLED = b"\0"
"""A key that a terminal does not heed."""
_RESET = r"\033[?1047l\033[?25h\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[0m"
"""The main screen with a cursor, without reports of the mouse: does nothing where all of this is so."""
_GUARD = f"""IFS= read -r word; [ "$word" = over ] || {{ printf '{_RESET}' >&2; exec stty "$1" <&2; }}"""
"""Puts a terminal back unless it is told that this was done; the end of what it reads is ours."""

_MODE = re.compile(rb"\x1b\[(?:\?([0-9;]+)([hl])|([<>])[0-9;]*u)")
_PART_OF_MODE = re.compile(rb"\x1b(?:\[[?<>]?[0-9;]*)?\Z")
_ON_BY_DEFAULT = frozenset((b"7", b"25"))
"""Lines that wrap, and the cursor."""
_WHOLE = frozenset((b"47", b"1047", b"1049"))
"""The alternate screen."""
_MODES = _ON_BY_DEFAULT | {b"1", b"47", b"1047", b"1049", *(b"%d" % mode for mode in range(1000, 1017)), b"2004"}
"""What a command switches when it begins, and back when it ends: the alternate screen, reports of the mouse, …"""


def foreground_terminal() -> int | None:
    """Our standard input, where all three of our streams are one terminal and we are in its foreground."""
    try:
        streams = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
        if not all(os.isatty(stream) for stream in streams):
            return None
        devices = {os.fstat(stream).st_rdev for stream in streams}
        return streams[0] if len(devices) == 1 and os.tcgetpgrp(streams[0]) == os.getpgrp() else None
    except (AttributeError, OSError, ValueError):  # closed, no files at all, or not the terminal of our session
        return None


class Terminal:
    """The real terminal that we are run at, and the pseudo-terminal of the attempt that runs."""

    spent = False
    """It can be read from again by the next attempt."""

    def __init__(self, own: int) -> None:
        self.on_interrupt: Callable[[], None] | None = None
        """Called when Ctrl-C was typed, and the command is sent SIGINT for it."""
        self._own = own
        self._before = termios.tcgetattr(own)
        self._ours = self._theirs = -1
        """Our end of the pseudo-terminal, and the one that the command has."""
        self._guard: subprocess.Popen[bytes] | None = None
        self._raw = False
        self._given_back = True
        self._typed = bytearray()
        self._screen = ScreenModes()

    def begin(self, order: LaunchSpec) -> LaunchSpec:
        """The order of the next attempt, at a pseudo-terminal of its own."""
        self._ours, self._theirs = os.openpty()
        for end in (self._ours, self._theirs):
            os.set_inheritable(end, False)
        termios.tcsetattr(self._theirs, termios.TCSANOW, self._before)  # its keys mean what ours do
        self._resize()
        return dataclasses.replace(order, stdin=self._theirs, terminal=self._ours)

    def take(self) -> None:
        """The command is about to start: hand on what is typed from here on."""
        self._guard = _watch_over(self._own)
        self._take_terminal()

    def let_go(self) -> None:
        """The command has its end of the pseudo-terminal: with ours closed, it is the only one."""
        if self._theirs != -1:
            os.close(self._theirs)
            self._theirs = -1

    def end(self) -> None:
        """The attempt is over: give everything back; may be called however far things had got, and more than once."""
        self.let_go()
        self.give_back()
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.communicate(b"over\n")
            self._guard = None
        if self._ours != -1:
            os.close(self._ours)
        self._ours = -1
        self._typed.clear()
        self._screen.forget()

    def take_again(self) -> None:
        """The command goes on, or we are in the foreground again: hand on what is typed, if we may."""
        with contextlib.suppress(OSError, termios.error):
            if self._ours != -1 and not self._raw and os.tcgetpgrp(self._own) == os.getpgrp():
                self._take_terminal()
                if doing := self._screen.doing():
                    os.write(self._own, doing)

    def release_keys(self) -> None:
        """Read nothing more: what is typed from here on is for whoever reads the terminal next."""
        if not self._raw:
            return
        self._raw = False
        with contextlib.suppress(RuntimeError):  # no loop runs any more, and neither does a reader of it
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._own)
            loop.remove_writer(self._ours)
            loop.remove_signal_handler(signal.SIGWINCH)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # we may be in the background by now, where this would stop us
        with contextlib.suppress(termios.error, OSError):  # it is gone: somebody has closed the window
            if os.tcgetpgrp(self._own) == os.getpgrp():  # else another program has it, in its own way
                termios.tcsetattr(self._own, termios.TCSADRAIN, self._before)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)

    def give_back(self) -> None:
        """The terminal as it was before; what the command switched on its screen and did not switch back, too."""
        self.release_keys()
        if self._given_back:
            return
        self._given_back = True
        with contextlib.suppress(OSError):
            if undoing := self._screen.undoing():
                os.write(self._own, undoing)

    def printed(self, piece: bytes) -> None:
        """The command has printed something; called by the thread that writes it to the terminal."""
        self._screen.note(piece)

    def start_line(self) -> None:
        """Begin a line of our own, where the command has not ended its last one."""
        if not self._screen.at_start:
            self._screen.at_start = True
            with contextlib.suppress(OSError):
                os.write(self._own, b"\n")

    def say(self, lines: Sequence[str]) -> None:
        """Lines of our own among those of a command that prints line by line.

        Nothing is said to one that has the whole screen, or reads key by key: a person sits before it, and it would be
        painted over.
        """
        if not self._raw or self._screen.whole or not self._reads_lines():
            return
        if not select.select([], [self._own], [], 0)[1]:  # it was told to stand still
            return
        text = "".join(f"{line}\r\n" for line in lines)  # in raw mode a terminal adds nothing
        with contextlib.suppress(OSError):
            os.write(self._own, ("" if self._screen.at_start else "\r\n").encode() + text.encode())
        self._screen.at_start = True

    def _reads_lines(self) -> bool:
        try:
            local = termios.tcgetattr(self._ours)[3]
        except (termios.error, OSError):
            return False
        return bool(local & termios.ICANON)

    def _take_terminal(self) -> None:
        tty.setraw(self._own, termios.TCSADRAIN)
        self._raw = True
        self._given_back = False
        loop = asyncio.get_running_loop()
        loop.add_reader(self._own, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self._resize()

    def _read(self) -> None:
        """Something was typed."""
        try:
            piece = os.read(self._own, _PIECE)
        except OSError:
            piece = b""
        self._typed += piece
        if not piece:
            asyncio.get_running_loop().remove_reader(self._own)
        if self.on_interrupt is not None and self._interrupts(piece):
            self.on_interrupt()
        self._hand_on()

    def _interrupts(self, piece: bytes) -> bool:
        """Whether the command's terminal sends SIGINT for one of these keys."""
        try:
            _, _, _, local, _, _, keys = termios.tcgetattr(self._ours)
        except (termios.error, OSError):
            return False
        key = keys[termios.VINTR]
        return bool(local & termios.ISIG) and isinstance(key, bytes) and key != _DISABLED and key in piece

    def _hand_on(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._typed:
                del self._typed[: os.write(self._ours, self._typed)]
        except BlockingIOError:  # the reaper reads from the same end, and waits for nobody
            del self._typed[_MOST_TYPED:]  # as a terminal does
            loop.add_writer(self._ours, self._hand_on)
            return
        except OSError:
            self._typed.clear()
        loop.remove_writer(self._ours)

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._own, termios.TIOCGWINSZ, _SIZE)
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)


class ScreenModes:
    """What a command has switched on the screen, so that it can be switched back after a command that was killed."""

    def __init__(self) -> None:
        self.at_start = True
        """Whether what was last printed ended its line."""
        self._switched: dict[bytes, None] = {}
        self._keyboards = 0
        """How often the keyboard was told to report keys in another way."""
        self._begun = b""
        """The beginning of a sequence whose rest has not come."""
        self._lock = threading.Lock()

    def note(self, piece: bytes) -> None:
        """Take note of what was printed."""
        if not piece:
            return
        with self._lock:
            self.at_start = piece.endswith(b"\n")
            text, self._begun = self._begun + piece, b""
            if b"\x1b" not in text:
                return
            for match in _MODE.finditer(text):
                modes, switch, keyboard = match.groups()
                if keyboard is not None:
                    self._keyboards = max(self._keyboards + (1 if keyboard == b">" else -1), 0)
                    continue
                for mode in [mode for mode in modes.split(b";") if mode in _MODES]:
                    if (switch == b"h") is (mode in _ON_BY_DEFAULT):
                        self._switched.pop(mode, None)
                    else:
                        self._switched[mode] = None
            if (part := _PART_OF_MODE.search(text[-64:])) is not None:
                self._begun = part.group()

    @property
    def whole(self) -> bool:
        """Whether the command has a screen of its own."""
        with self._lock:
            return not _WHOLE.isdisjoint(self._switched)

    def undoing(self) -> bytes:
        """What to print so that the screen is as before; nothing where the command has done so itself."""
        with self._lock:
            undone = [b"\x1b[<u"] * self._keyboards
            undone += [_switch(mode, on=mode in _ON_BY_DEFAULT) for mode in reversed(self._switched)]
        return b"".join([*undone, b"\x1b[0m"]) if undone else b""

    def doing(self) -> bytes:
        """What to print so that the screen is as the command has it."""
        with self._lock:
            return b"".join(_switch(mode, on=mode not in _ON_BY_DEFAULT) for mode in self._switched)

    def forget(self) -> None:
        """The next command begins with a screen as it was."""
        with self._lock:
            self._switched, self._keyboards = {}, 0


def _switch(mode: bytes, *, on: bool) -> bytes:
    return b"\x1b[?%s%s" % (mode, b"h" if on else b"l")


def _watch_over(own: int) -> subprocess.Popen[bytes] | None:
    """Start what puts the terminal back should we be killed; None where a machine has no `stty`."""
    known = harmless(os.environ)  # it runs as long as we do, and everybody of our user can read it
    try:
        asked = subprocess.run(["stty", "-g"], stdin=own, capture_output=True, text=True, check=True, env=known)
        return subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", asked.stdout.strip()],
            env=known,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=own,
            start_new_session=True,  # what is sent to our group shall not reach it
        )
    except (OSError, subprocess.SubprocessError):
        return None


def at_a_terminal() -> bool:
    """Whether somebody can see what is drawn and press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
