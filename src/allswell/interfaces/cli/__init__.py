"""The command line: `allswell`, thin and quick to start.

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_KEEPING_SECRETS = (
    *("run", "resume", "up", "work", "serve", "mcp", "watch", "worker", "coordinate"),
    *("build-agent", "audit-agent", "sinks"),
)
"""The commands that run for long and know the store's address or keys, which agents of the same user must not read."""


_INTERRUPTED = 130


def main() -> None:
    """The `allswell` command; Ctrl-C ends it quietly at every moment, also while it still imports what it needs."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not if whoever started us ignores it
    if ours:
        signal.signal(signal.SIGINT, _leave)
    running = sys.argv[1:2] == ["run"] and "--" in sys.argv  # a command, which runs in processes of its own
    if running:
        import gc

        gc.disable()  # until everything is imported: there is nothing to collect, and looking for it is a tenth of it
    _import("msgspec", without="typing_extensions")  # which it takes where it is installed and does not need
    if running:
        _import("asyncio", without="ssl")  # nothing here speaks TLS by asyncio
    if sys.argv[1:2] and sys.argv[1] in _KEEPING_SECRETS:
        from allswell.runtime.host import keep_to_ourselves

        keep_to_ourselves()
    from allswell.interfaces.cli.app import run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command puts its things in order
    try:
        code = run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and done
    sys.exit(code)


def _leave(_number: int, _context: FrameType | None) -> None:
    """Nothing was begun yet, so there is nothing to put in order."""
    os._exit(_INTERRUPTED)


def _import(name: str, *, without: str) -> None:
    """Import a module without another one that it can do without: each of these is about a tenth of a start."""
    unknown = without not in sys.modules
    if unknown:
        sys.modules[without] = None  # type: ignore[assignment]  # as Python has it for what must not be imported
    __import__(name)
    if unknown:
        del sys.modules[without]  # others may have it
