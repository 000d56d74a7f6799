"""What every script of this folder shares: what hangs, and how the moments are told. Standard library only.

A script sets up its system, calls `ready()`, hands over a piece of work that hangs (`hanging(case)`, which notes when
it began) and one that does not (`following()`, which notes when it begins), and calls `tell()`. Whoever sees that the
system has noticed calls `note("noticed")`. The work may be in other processes: moments are notes in a folder, in
seconds of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

LIMIT = 1.0
"""What a piece of work may take; seconds."""
GRACE = 1.0
"""What it may take to stop once it was told to, where a system knows of such a thing."""
WATCHED = 8.0
"""For so long after the limit a case is watched."""
_LONGER = 60.0
_POLL = 0.02
_NOTES = Path(os.environ.get("HANG_NOTES", "."))


# --- what hangs -------------------------------------------------------------------------------------------------------


async def await_for_ever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


async def swallow_cancels() -> None:
    """Catch whatever it is told to stop by, and go on."""
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(_LONGER)


async def block_the_loop() -> None:
    """A sync call in async code."""
    time.sleep(_LONGER)  # noqa: ASYNC251 - this is what it is about


def block_a_thread() -> None:
    """A sync call that does not come back."""
    threading.Event().wait(_LONGER)


async def read_what_drips() -> None:
    """A server sends a byte now and then, for ever: every single read is well in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["HANG_DRIP"]))
    writer.write(b"GET / HTTP/1.1\r\nHost: drip\r\n\r\n")
    while await asyncio.wait_for(reader.read(1), LIMIT):
        pass


Work = Callable[[], Awaitable[None]] | Callable[[], None]
CASES: dict[str, Work] = {
    "await for ever": await_for_ever,
    "swallowed cancel": swallow_cancels,
    "blocked loop": block_the_loop,
    "blocked thread": block_a_thread,
    "dripping server": read_what_drips,
}


def is_sync(case: str) -> bool:
    """Whether it is sync code that hangs."""
    return not asyncio.iscoroutinefunction(CASES[case])


async def hanging(case: str) -> None:
    """Async work that hangs."""
    note("began")
    await CASES[case]()  # type: ignore[misc]


def hanging_sync(case: str) -> None:
    """Sync work that hangs; what is async runs on a loop of its own."""
    note("began")
    if is_sync(case):
        CASES[case]()
    else:
        asyncio.run(CASES[case]())  # type: ignore[arg-type]


def following() -> None:
    """The next piece of work."""
    note("next")


# --- what is told -----------------------------------------------------------------------------------------------------


def note(name: str) -> None:
    """Note that something happens now; the first time counts."""
    path = _NOTES / name
    if not path.exists():
        part = path.with_name(f".{name}.{threading.get_ident()}")
        part.write_text(repr(time.monotonic()))
        part.rename(path)


def noted(name: str) -> float | None:
    """When it happened."""
    try:
        return float((_NOTES / name).read_text())
    except FileNotFoundError:
        return None


def awaited(name: str, seconds: float = 30.0) -> float:
    """When it happened, once it has."""
    until = time.monotonic() + seconds
    while (found := noted(name)) is None:
        if time.monotonic() > until:
            raise SystemExit(f"nothing was noted as {name!r} within {seconds:g} s")
        time.sleep(_POLL)
    return found


def ready() -> None:
    """Everything is set up: begin when all the others have come so far."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def tell(setting: str) -> None:
    """Wait for what is to be noted, at most for as long as a case is watched; say it, and end at once."""
    limit = awaited("began") + LIMIT
    while time.monotonic() < limit + WATCHED and not (noted("noticed") and noted("next")):
        time.sleep(_POLL)
    found = {name: noted(key) for name, key in (("noticed", "noticed"), ("free", "next"))}
    # Some count from when they hand the work over, a moment before it begins: nothing is early by that.
    figures = {name: None if moment is None else round(max(moment - limit, 0.0), 2) for name, moment in found.items()}
    sys.stdout.write(json.dumps({**figures, "setting": setting}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # what hangs would hold us
