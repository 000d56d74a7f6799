"""A process in which the command line is imported already, and which forks for each command that is typed.

A command is a process of its own, with its own folder, environment and streams, as if it had been started; only the
interpreter's start and the imports, four fifths of what a short one costs, are done once for all tests of a process.
How a command starts, what it imports, and how it is stopped are tested with real starts (`test_start.py`, and all that
use `subprocess`). What the interpreter reads at its start (`PYTHON…`, the locale) cannot be told to one that runs: so
only commands that are given none of it are forked.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_READ_AT_START = ("PYTHON", "LC_", "LANG")
_MOST = 1 << 20


def without_read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without what an interpreter reads at its start."""
    return {name: value for name, value in env.items() if not name.startswith(_READ_AT_START)}


def can_run(env: Mapping[str, str]) -> bool:
    """Whether a command with this environment can be forked: nothing in it would be read at a start."""
    return not any(name.startswith(_READ_AT_START) for name in env)


class Warm:
    """The forking process, as the tests see it."""

    def __init__(self) -> None:
        self._free = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        env = without_read_at_start(os.environ)
        self._process = subprocess.Popen([sys.executable, __file__], stdin=theirs.fileno(), env=env)
        theirs.close()
        atexit.register(self.close)

    def begin(
        self, args: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int]
    ) -> Callable[[], int] | None:
        """Begin a command with these streams as its standard ones; None while another runs.

        What is returned waits for its exit code.
        """
        if not self._free.acquire(blocking=False):
            return None
        order = json.dumps({"args": list(args), "cwd": str(cwd), "env": dict(env)}).encode()
        socket.send_fds(self._ours, [order], list(streams))
        return self._end

    def _end(self) -> int:
        code = int(self._ours.recv(64))
        self._free.release()
        return code

    def close(self) -> None:
        """End the process."""
        self._ours.close()
        self._process.wait()


@functools.cache
def warm() -> Warm:
    """The one of this process."""
    return Warm()


# --- the process itself -----------------------------------------------------------------------------------------------


def _import_all() -> None:
    for name in ("interfaces.cli", "engine", "flows", "runtime", "settings", "store.memory", "store.sqlite"):
        package = importlib.import_module(f"allswell.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__") and ".apart" not in found.name:
                importlib.import_module(found.name)


def _become(args: list[str], cwd: str, env: dict[str, str], streams: list[int]) -> None:
    """In a child: be that command, and no more."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors),
        os.fdopen(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1 if os.isatty(1) else -1),
        os.fdopen(2, "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors, buffering=1),
    )
    os.chdir(cwd)
    locale = {
        name: value for name, value in os.environ.items() if name.startswith("LC_")
    }  # which the interpreter has set
    os.environ.clear()
    os.environ.update({**locale, **env})
    random.seed()
    sys.argv = ["allswell", *args]


def serve(orders: socket.socket) -> None:
    """Fork for each order, and answer with the exit code; in a child it returns, to become the command."""
    while True:
        order, streams, _, _ = socket.recv_fds(orders, _MOST, 3)
        if not order:
            sys.exit()
        child = os.fork()
        if child == 0:
            orders.close()
            _become(**json.loads(order), streams=streams)
            return
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        orders.send(str(os.waitstatus_to_exitcode(status)).encode())


def _leave(code: int) -> NoReturn:
    """End as an interpreter does, but do not take apart what all commands share: all of it would be copied for that.

    A command that has not ended in order, or whose output cannot be written, is left to the interpreter.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _import_all()
    gc.freeze()  # what is here need not be looked through in each child, nor copied for it
    serve(socket.socket(fileno=os.dup(0)))
    from allswell.interfaces.cli import main

    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        _leave(end.code)
