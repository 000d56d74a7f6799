"""The warden: one small process that forks a reaper for each command, and sees to what a reaper leaves behind.

It is no child of the supervisor (its parent went away on purpose), so that a host that waits for all of its children
does not wait for us. It is single-threaded and does next to nothing, so that forking it is safe and cheap. Reapers talk
to the supervisor directly, not through here: when the warden is killed, they go on.

It is a subreaper, too: should somebody kill a reaper, those below it come here and are killed. Who they are is plain:
every child that is no reaper. A reaper that somebody has stopped is continued at once, and tells of it. The warden
ends when the supervisor is gone and nobody is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import socket

from .reaper import NUMBERS, Reaper, on_continue, on_term
from .stops import FOLLOW, LOOK_EVERY_MS, RenewalCommand
from .tree import signal_all
from .wire import PID_BYTES, pack

_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 8
_AGAIN_MS = 20
"""Between two sweeps of what a dead reaper left."""
_CALM = 3
"""Sweeps in a row that must find nobody: who forks and ends, again and again, can be missed by one."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def main(order_socket: int, supervisor: int, files: int = 0) -> None:
    """Be the warden until the supervisor is gone; `supervisor` is a pidfd of it, or -1.

    `files` is the soft limit of open files for commands, where the supervisor has raised its own; else 0.
    """
    if files:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP):  # it ends with the supervisor, and not before
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, on_term)  # set here once for all reapers; the warden itself does not heed them
    signal.signal(signal.SIGCONT, on_continue)
    for handle in (order_socket, supervisor):
        if handle != -1:
            os.set_inheritable(handle, False)
    waking, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # it is the wake-up that counts
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _prctl(_PR_SET_NAME, b"allswell-warden", 0, 0, 0)
    _become_subreaper()
    with contextlib.suppress(OSError):
        os.write(order_socket, os.getpid().to_bytes(PID_BYTES, "big"))  # for the supervisor, should somebody stop us
    gc.collect()
    gc.freeze()  # what is here stays here: reapers share its pages as long as nobody counts them
    gc.disable()
    Warden(socket.socket(fileno=order_socket), supervisor, waking).run()


def _become_subreaper() -> None:
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


class Warden:
    """Forks reapers on order."""

    def __init__(self, orders: socket.socket, supervisor: int, waking: int) -> None:
        self._orders: socket.socket | None = orders
        self._supervisor = supervisor
        self._waking = waking
        self._reapers: set[int] = set()
        """Our children that are in nobody's tree: reapers, and what renews a lease."""
        self._renewal: RenewalCommand | None = None
        self._orphans = 0
        """How many sweeps must still find nobody of what dead reapers left."""

    def run(self) -> None:
        """Until the supervisor is gone and everybody below us."""
        while self._orders is not None or self._reapers or self._orphans:
            for handle in self._wait():
                if handle == self._waking:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._waking, 512)
                elif self._orders is not None and handle == self._orders.fileno():
                    self._take_order(self._orders)
                else:
                    self._leave_supervisor()
            self._bury()
            if self._renewal is not None:
                self._renewal.look(self._reapers)

    def _wait(self) -> list[int]:
        poll = select.poll()
        poll.register(self._waking, select.POLLIN)
        if self._orders is not None:
            poll.register(self._orders, select.POLLIN)
            if self._supervisor != -1:
                poll.register(self._supervisor, select.POLLIN)
        looking = None if self._renewal is None else LOOK_EVERY_MS
        return [handle for handle, _ in poll.poll(_AGAIN_MS if self._orphans else looking)]

    def _leave_supervisor(self) -> None:
        if self._orders is not None:
            self._orders.close()
        self._orders = None
        self._forget_renewal()

    def _forget_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal.close()
        self._renewal = None

    def _take_order(self, orders: socket.socket) -> None:
        """An order is four numbers, with a socket to the supervisor and the command's files; the rest is read there."""
        try:
            word, handles, _, _ = socket.recv_fds(orders, NUMBERS, _MOST_DESCRIPTORS)
        except OSError:
            word, handles = b"", []
        if not word:
            self._leave_supervisor()
            return
        for handle in handles:
            os.set_inheritable(handle, False)
        if word.startswith(FOLLOW):
            self._forget_renewal()
            _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
            self._renewal = RenewalCommand(int.from_bytes(word[-len(FOLLOW) :], "big"), handles[0])
            return
        try:
            pid = os.fork()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(handles[0], pack({"event": "refused", "stage": "fork", "errno": error.errno or 0}))
        else:
            if pid == 0:
                self._become_reaper(orders, word, handles)
            self._reapers.add(pid)
        for handle in handles:
            os.close(handle)

    def _become_reaper(self, orders: socket.socket, word: bytes, handles: list[int]) -> None:
        status = 1
        try:
            os.close(orders.fileno())
            os.close(self._waking)
            self._forget_renewal()
            _prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # who settles what is left of a dead supervisor looks into reapers
            os.setsid()
            _become_subreaper()  # a fork does not pass it on
            _prctl(_PR_SET_NAME, b"allswell-reaper", 0, 0, 0)
            Reaper(word, handles, self._supervisor).run()
            status = 0
        finally:
            os._exit(status)

    def _bury(self) -> None:
        """Wait for reapers that have ended, and kill whom they have left; a reaper that was stopped goes on."""
        nobody = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                nobody = True
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                if pid in self._reapers:  # only its own agent would do that, so that nothing ends it
                    os.kill(pid, signal.SIGCONT)
            elif pid in self._reapers:
                self._reapers.discard(pid)
                if status != 0:
                    self._orphans = _CALM
        if self._orphans and nobody:
            self._orphans = 0
        elif self._orphans:
            killed = signal_all(os.getpid(), signal.SIGKILL, frozenset(self._reapers))
            self._orphans = _CALM if killed else self._orphans - 1
