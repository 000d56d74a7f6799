"""The supervisor's side of the warden: started on first need, started again when somebody has killed it.

It is started by `subprocess` and let go at once: what we start only forks the warden and ends, and is waited for by its
own number. So the host has no child that it does not know of, and its own children and their exit codes are its own.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from allswell.errors import Refused, Unavailable
from allswell.runtime.host import soft_limit_of_commands
from allswell.runtime.process.apart.stops import FOLLOW
from allswell.runtime.process.apart.tree import look, send
from allswell.runtime.process.apart.wire import PID_BYTES, pack

_PROGRAM = (
    "import os, sys\n"
    "os.fork() and os._exit(0)\n"  # before anything else is imported: the host waits for this
    "sys.path.append(sys.argv[1])\n"
    "from apart.main import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))\n"
)
_STARTING = 30.0
"""Seconds that the start may take, on the busiest of machines."""


class WardenKeeper:
    """The one warden of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: socket.socket | None = None
        self._pid = 0
        """The warden's number, once it was asked for."""

    @property
    def running(self) -> bool:
        """Whether there is one, as far as we know."""
        return self._orders is not None

    def ensure(self) -> None:
        """Start it, if there is none; takes a few hundredths of a second."""
        with self._lock:
            if self._orders is None:
                self._orders = contextvars.Context().run(_start)  # it belongs to no call in whose course it is started
                self._pid = 0

    def hand_over(
        self,
        handles: Sequence[int],
        *,
        cap: int,
        grace_ms: int,
        follows: bool = False,
        keep_children: bool = False,
    ) -> None:
        """Have a reaper made that gets these descriptors; with `follows`, it stops everybody where we are stopped.

        With `keep_children`, it leaves those running that the command leaves when it ends by itself.
        """
        told = (cap, grace_ms, os.getpid() if follows else 0, int(keep_children))
        numbers = b"".join(number.to_bytes(8, "big") for number in told)
        for _ in range(3):
            self.ensure()
            with self._lock:
                orders = self._orders
                if orders is None:
                    continue
                try:
                    socket.send_fds(orders, [numbers], list(handles))
                except OSError:  # it was killed, and is started anew
                    orders.close()
                    self._orders = None
                else:
                    return
        raise Unavailable("the warden, which starts commands, ends as soon as it is started")

    def wake(self) -> None:
        """Continue a warden that was stopped: a command under it did that, and nothing would start any more."""
        pid = self.warden
        seen = look(pid) if pid else None
        if seen is not None and seen.state == "T":
            send(pid, seen.start, signal.SIGCONT)

    @property
    def warden(self) -> int:
        """The number of the warden, which it tells when it starts; 0 before."""
        with self._lock, contextlib.suppress(OSError):
            if self._pid == 0 and self._orders is not None:
                self._pid = int.from_bytes(self._orders.recv(PID_BYTES, socket.MSG_DONTWAIT), "big")
        return self._pid

    def follow(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Have this run while this process is stopped; the warden starts it, and it ends by itself when we go on."""
        order = pack({"argv": list(argv), "env": dict(env), "cwd": str(Path.cwd())})
        file = os.memfd_create("allswell-renewal")  # a pipe may not hold all of an environment
        try:
            os.write(file, order)
            with self._lock:
                if self._orders is not None:
                    socket.send_fds(self._orders, [FOLLOW + os.getpid().to_bytes(24, "big")], [file])
        except OSError:
            return  # the warden was killed: the next command has another, which is told anew
        finally:
            os.close(file)

    def forget(self) -> None:
        """In a child by fork: the warden is our parent's, and so are all of its commands."""
        self._lock = threading.Lock()
        if self._orders is not None:
            self._orders.close()
        self._orders = None


def _start() -> socket.socket:
    if sys.platform != "linux":
        text = f"commands are run under a subreaper, which only Linux has; this is {sys.platform}"
        raise Refused("not_linux", text, where="platform")
    if not sys.executable:
        raise Unavailable("Python does not say where it is (sys.executable), so no warden can be started")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        itself = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        itself = -1  # then only the socket says that we are gone
    handles = [its.fileno(), *([itself] if itself != -1 else [])]
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, str(Path(__file__).parent)]
    try:
        subprocess.run(
            [*command, str(its.fileno()), str(itself), str(soft_limit_of_commands())],
            stdin=subprocess.DEVNULL,
            # Nothing of ours: whoever reads the host's output to its end must not wait for the warden's.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=handles,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            start_new_session=True,
            timeout=_STARTING,
            check=False,  # a host that waits for everybody may have taken the exit code
        )
    except BaseException as error:
        ours.close()
        if isinstance(error, (OSError, subprocess.SubprocessError)):
            raise Unavailable(f"the warden, which starts commands, could not be started: {error}") from error
        raise
    finally:
        its.close()
        if itself != -1:
            os.close(itself)
    return ours


KEEPER = WardenKeeper()
if hasattr(os, "register_at_fork"):  # elsewhere, importing must do no harm
    os.register_at_fork(after_in_child=KEEPER.forget)
