"""The keyboard, key by key, while something else is on the screen. Without a terminal there are no keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator


def at_a_terminal() -> bool:
    """Whether somebody can see what is drawn and press keys."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def keyboard(pressed: Callable[[str], None]) -> Iterator[None]:
    """Hand every key to `pressed` as it comes; the terminal is as it was afterwards, whatever happens."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    loop = asyncio.get_running_loop()

    def read() -> None:
        typed = os.read(stdin, 1024)
        if not typed:
            loop.remove_reader(stdin)  # nobody is there any more
        for key in typed.decode(errors="ignore"):
            pressed(key)

    tty.setcbreak(stdin)
    loop.add_reader(stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
