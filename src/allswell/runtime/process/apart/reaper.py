"""The reaper of one command: it starts it, carries its output, and ends it with everybody below it.

It is a subreaper in a session of its own, so whoever is left by its parent becomes its child. The command leads another
session, so that what it does to its own group (`kill 0`) does not reach the reaper. At a terminal it leads a process
group in the reaper's session instead, as a command of a shell does: only then does Ctrl-Z stop it, since the kernel
does not let a terminal stop a group that has no parent in its session.

The life of a tree, each phase left when its time is over or, at any moment, when nobody is left (`ECHILD`):

    running    the command runs
    lingering  it has ended; those it left may end by themselves, for a moment; then, where that was asked for, the
               reaper leaves them to themselves
    told       everybody got SIGTERM, and has the grace to end
    killed     everybody gets SIGKILL, again and again

`told` begins by order, by SIGTERM to the reaper, when the supervisor is gone (its socket or its pidfd says so), or
after lingering. Only `ECHILD` proves that nobody survived. Whom the kernel does not let us kill (another user's
process, one that hangs in a device) is named as a survivor after a while, so that the supervisor is not held up; the
reaper stays.

A reaper is a copy of the warden that shares its memory as long as neither writes to it, and Python writes to all that
it looks at. So a reaper that only waits does as little as it can: the order is read by the child that becomes the
command, and the first messages are written without the encoder (`tests/runtime/process/test_host.py` weighs them).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import termios
import time
from collections.abc import Callable
from types import FrameType
from typing import cast

from .output import Stream
from .stops import LOOK_EVERY, StopSync
from .tree import below, come_to_rest, freeze, read, signal_all, thaw
from .wire import Message, Unpacker, frame, pack, receive_one

NUMBERS = 32
"""Bytes by which the warden tells a reaper four whole numbers: the cap of the output, the grace, the process whose
stops it follows or 0, and 1 if it leaves those running that the command leaves."""
_ORDER_READ = b"+"
_NAMED = 20
"""How many of those that a command leaves are named."""
LINGER = 0.1
SURVIVED = 5.0
"""Seconds of killing after which those who still live are reported."""
REST = 1.0
"""Seconds for those who were told to stand still to end what they do in the kernel."""
DRAIN = 0.5
"""Seconds for a watcher to take what is left of the output, once the command was told to stop."""
_SWEEP = 0.01
_SLOW_SWEEP = 1.0
_LONGEST_SLEEP = 86_400.0  # poll counts milliseconds in an int

_RUNNING, _LINGERING, _TOLD, _KILLED = range(4)


_asked_by_signal: list[int] = []
_continued: list[int] = []


def on_term(number: int, _frame: FrameType | None) -> None:
    """Note SIGTERM, and no more: it may come at any moment of the loop."""
    _asked_by_signal.append(number)


def on_continue(number: int, _frame: FrameType | None) -> None:
    """Note SIGCONT: the warden and the supervisor send it to a reaper that somebody has stopped, and to no other."""
    _continued.append(number)


class Reaper:
    """One command and everybody below it."""

    def __init__(self, numbers: bytes, handles: list[int], supervisor: int) -> None:
        self._cap = int.from_bytes(numbers[:8], "big")
        self._grace = int.from_bytes(numbers[8:16], "big") / 1_000
        self._followed = int.from_bytes(numbers[16:24], "big")
        self._keeps = int.from_bytes(numbers[24:], "big") == 1
        self._channel, *self._handles = handles
        self._supervisor = supervisor
        self._unpacker = Unpacker()
        self._streams: list[Stream] = []
        self._phase = _RUNNING
        self._until = float("inf")
        self._ordered = False
        self._reported = False
        self._alone = False
        self._terminal = -1
        """Our end of the command's terminal, where it has one."""
        self._main = 0
        self._killing_since = 0.0
        self._status: int | None = None
        self._left_behind = 0
        self._stops: StopSync | None = None
        """Where the command is run in front of a person, who may stop it."""
        self._frozen = False
        """Whether everybody was stopped by order, so that their work can be kept."""
        self._lets_go = False
        """Those whom the command has left may go on without us."""
        self._failure = -1
        """The pipe by which the command says that it has read its order, and that it could not start; closed by the
        kernel when it has."""
        self._order_is_read = False
        self._stop_is_told = False
        """Whether the supervisor knows that we were stopped; who does that again and again is told of once."""

    def run(self) -> None:
        """From the order to the proof that nobody is left."""
        self._say(b'{"event": "taken", "reaper": %d}' % os.getpid())
        if self._is_given_up():
            return
        waking = self._watch_signals()
        self._begin()
        while not self._alone and not self._lets_go:
            self._wait(waking)
            self._tell_of_stop()
            self._reap()
            self._follow()
            self._advance()
        self._drain(waking)
        self._report([])

    # --- starting -----------------------------------------------------------------------------------------------------

    def _is_given_up(self) -> bool:
        """Whether the supervisor has let go of the order, while the warden could not pass it on."""
        poll = select.poll()
        poll.register(self._channel, 0)  # that the other end was closed is always told
        return any(events & select.POLLHUP for _, events in poll.poll(0))

    def _watch_signals(self) -> int:
        waking, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        _asked_by_signal.clear()
        _continued.clear()
        return waking

    def _begin(self) -> None:
        stdin, out_file, err_file, *more = self._handles
        live, terminal = more[:2], more[2:]
        out, out_end = os.pipe2(os.O_CLOEXEC)
        err, err_end = os.pipe2(os.O_CLOEXEC)
        self._failure, failing = os.pipe2(os.O_CLOEXEC)
        if terminal:
            fcntl.ioctl(stdin, termios.TIOCSCTTY, 0)
        self._main = os.fork()
        if self._main == 0:
            streams = (stdin, stdin, stdin) if terminal else (stdin, out_end, err_end)
            _become(self._channel, streams, failing, at_terminal=bool(terminal))
        if self._followed:
            self._stops = StopSync(self._followed, self._main)
        for handle in (stdin, out_end, err_end, failing):
            os.close(handle)
        if terminal:  # what it prints, on both streams, comes out of the other end
            os.close(out)
            (out,) = terminal
            self._terminal = out
        watchers = (live[0], live[1]) if live else (None, None)
        self._streams = [Stream(out, out_file, watchers[0], self._cap), Stream(err, err_file, watchers[1], self._cap)]

    def _started_or_not(self) -> None:
        said = os.read(self._failure, 64)
        if said.startswith(_ORDER_READ):  # what comes next is for us: a start that hangs can be ended, too
            self._order_is_read = True
            said = said[len(_ORDER_READ) :]
            if not said:
                return
        os.close(self._failure)
        self._failure = -1
        if said:
            stage, _, number = said.decode().partition(":")
            self._tell({"event": "refused", "stage": stage, "errno": int(number)})
            return
        self._say(b'{"event": "started", "pid": %d, "reaper": %d}' % (self._main, os.getpid()))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _wait(self, waking: int) -> None:
        """Sleep until something happens or the phase is over, and do what there is to do."""
        doing: dict[int, Callable[[], None]] = {waking: lambda: _empty(waking)}
        poll = select.poll()
        poll.register(waking, select.POLLIN)
        if self._channel != -1 and self._order_is_read:
            poll.register(self._channel, select.POLLIN)
            doing[self._channel] = self._listen
        if self._supervisor != -1:
            poll.register(self._supervisor, select.POLLIN)
            doing[self._supervisor] = self._leave_supervisor
        if self._failure != -1:
            poll.register(self._failure, select.POLLIN)
            doing[self._failure] = self._started_or_not
        for stream in self._streams:
            interest = stream.interest()
            if interest is not None:
                poll.register(*interest)
                doing[interest[0]] = stream.act
        longest = _LONGEST_SLEEP if self._stops is None else LOOK_EVERY
        left = min(max(self._until - time.monotonic(), 0.0), longest)
        for handle, _ in poll.poll(left * 1_000 + 0.5):
            doing[handle]()

    def _reap(self) -> None:
        stops = 0 if self._stops is None else os.WUNTRACED | os.WCONTINUED
        while True:
            try:
                pid, status, _ = os.wait4(-1, os.WNOHANG | stops)
            except ChildProcessError:
                self._alone = True
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                if pid == self._main and self._phase == _RUNNING and not self._frozen:
                    self._stopped_or_continued(status)
                continue
            if pid == self._main:
                while self._failure != -1:
                    self._started_or_not()
                self._status = status
                self._tell({"event": "exited", "status": status})
                if self._phase == _RUNNING:
                    self._enter(_LINGERING, LINGER)

    def _tell_of_stop(self) -> None:
        """Say that somebody has stopped us, once we go on."""
        if _continued and not self._stop_is_told:
            self._stop_is_told = True
            self._say(b'{"event": "woken"}')

    def _follow(self) -> None:
        """Look whether the supervisor was stopped."""
        stops, now = self._stops, time.monotonic()
        if stops is None or stops.stands or self._phase != _RUNNING or self._frozen or now < stops.look_at:
            return
        stops.look_at = now + LOOK_EVERY
        if stops.supervisor_is_stopped():
            stops.stand()

    def _stopped_or_continued(self, status: int) -> None:
        """The command was stopped, or continued, by somebody else."""
        stops = self._stops
        if stops is None:
            return
        if os.WIFCONTINUED(status):
            if stops.stands:
                self._tell({"event": "continued"})
                stops.wake_supervisor()
        elif not stops.stands:
            stops.stand()
            self._tell({"event": "stopped", "signal": os.WSTOPSIG(status)})

    def _advance(self) -> None:
        """Go on to the next phase if this one's time is over."""
        if _asked_by_signal:
            _asked_by_signal.clear()
            self._stop(self._grace)
        if self._alone or time.monotonic() < self._until:
            return
        if self._phase == _LINGERING:
            left = [pid for pid, seen in below(os.getpid()).items() if seen.state not in "ZX"]
            self._left_behind = len(left)
            self._tell({"event": "left", "processes": [[pid, _command(pid)] for pid in left[:_NAMED]]})
            if self._keeps:
                self._lets_go = True
            else:
                self._tell_all(self._grace)
        elif self._phase == _TOLD:
            self._killing_since = time.monotonic()
            self._kill()
        elif self._phase == _KILLED:
            self._kill()

    def _enter(self, phase: int, seconds: float) -> None:
        self._phase = phase
        self._until = time.monotonic() + seconds

    def _stop(self, grace: float) -> None:
        """End everybody; a second order can only shorten the grace."""
        self._ordered = True
        if self._phase == _TOLD:
            self._until = min(self._until, time.monotonic() + grace)
        elif self._phase != _KILLED:
            self._tell_all(grace)

    def _tell_all(self, grace: float) -> None:
        self._enter(_TOLD, grace)  # the time that freezing takes is part of the grace
        signal_all(os.getpid(), signal.SIGTERM)
        for stream in self._streams:
            stream.flush()

    def _kill(self) -> None:
        signal_all(os.getpid(), signal.SIGKILL)
        long = time.monotonic() - self._killing_since > SURVIVED
        if long and not self._reported:
            self._reap()
            living = [pid for pid, seen in below(os.getpid()).items() if seen.state not in "ZX"]
            if living:
                self._report(living)
        self._enter(_KILLED, _SLOW_SWEEP if long else _SWEEP)

    # --- with the supervisor ------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._channel == -1:  # the pidfd has told us in the same moment
            return
        try:
            piece = os.read(self._channel, 4_096)
        except OSError:
            piece = b""
        if not piece:
            self._leave_supervisor()
            return
        for message in self._unpacker.feed(piece):
            self._obey(message)

    def _obey(self, message: Message) -> None:
        if message["do"] == "stop":
            self._stop(cast("float", message["grace"]))
        elif message["do"] == "stand" and self._stops is not None and self._phase == _RUNNING:
            self._stops.stand()
        elif message["do"] == "go_on" and self._stops is not None:
            self._stops.go_on()
        elif message["do"] == "freeze":
            self._frozen = True
            found = come_to_rest(freeze(os.getpid()), REST)
            for stream in self._streams:
                while stream.waiting() and stream.interest() is not None:
                    before = stream.total
                    stream.act()
                    if stream.total == before:  # the watcher is slow: what is in the pipe stays there
                        break
                stream.flush()
            self._tell({"event": "frozen", "processes": len(found)})
        elif message["do"] == "thaw":
            self._frozen = False
            thaw(below(os.getpid()))

    def _leave_supervisor(self) -> None:
        """The supervisor is gone: nobody wants the tree any more, and its terminal is gone, too."""
        if self._terminal != -1:
            with contextlib.suppress(OSError):
                os.killpg(os.tcgetpgrp(self._terminal), signal.SIGHUP)
        if self._channel != -1:
            os.close(self._channel)
        self._channel = -1
        self._supervisor = -1
        self._stop(self._grace)

    def _tell(self, message: Message) -> None:
        self._write(pack(message))

    def _say(self, body: bytes) -> None:
        self._write(frame(body))

    def _write(self, framed: bytes) -> None:
        if self._channel == -1:
            return
        try:
            os.write(self._channel, framed)  # whole: it is short, and the socket blocks
        except OSError:
            return  # the supervisor is gone, which is noticed where we listen

    # --- the end ------------------------------------------------------------------------------------------------------

    def _drain(self, waking: int) -> None:
        """Carry what is left of the output; a watcher has time for it, unless the command was told to stop."""
        if self._terminal == -1:  # else the kernel says by itself when the last of it has been read
            for stream in self._streams:
                stream.close_to_new()
        self._until = float("inf")
        while any(stream.interest() is not None for stream in self._streams):
            hurried = self._ordered or self._terminal != -1 or self._channel == -1
            if hurried and self._until == float("inf"):
                self._until = time.monotonic() + DRAIN
            if time.monotonic() >= self._until:
                break
            self._wait(waking)

    def _report(self, survivors: list[int]) -> None:
        for stream in self._streams:
            stream.flush()
        if self._reported:
            return
        self._reported = True
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        streams = [
            {"bytes": stream.total, "left_out": stream.left_out, "errno": stream.error} for stream in self._streams
        ]
        self._tell(
            {
                "event": "ended",
                "status": self._status,
                "ordered": self._ordered,
                "killed": self._phase == _KILLED,
                "left_behind": self._left_behind,
                "survivors": survivors,
                "user_seconds": used.ru_utime,
                "system_seconds": used.ru_stime,
                "max_rss_kb": used.ru_maxrss,
                "streams": streams,
            }
        )


def _command(pid: int) -> str:
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _empty(waking: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(waking, 512)


def _become(channel: int, streams: tuple[int, int, int], failing: int, *, at_terminal: bool) -> None:
    """In the child: read the order, and be the command, or say why not."""
    stage = "session"
    try:
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        if at_terminal:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or to come to the front would stop us
            os.tcsetpgrp(streams[0], os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        else:
            os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        stage = "order"
        order = receive_one(channel)
        os.write(failing, _ORDER_READ)
        stage = "cwd"
        os.chdir(cast("str", order["cwd"]))
        stage = "exec"
        for number, handle in enumerate(streams):  # none of which is 0, 1 or 2: those are the warden's own
            os.dup2(handle, number)
        argv, env = cast("list[str]", order["argv"]), cast("dict[str, str]", order["env"])
        os.execve(cast("str", order["path"]), argv, env)  # noqa: S606 - no shell, on purpose
    except OSError as error:
        os.write(failing, f"{stage}:{error.errno or 0}".encode())
    finally:
        os._exit(127)
