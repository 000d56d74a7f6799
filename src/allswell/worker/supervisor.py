"""The process above a worker's processes: it starts them, hears how they are, and puts new ones in place of dead ones.

It is another process, so it sees what a thread cannot: an interpreter that is held (by C code, or by a computation that
never lets go). A process that says nothing for `SILENCE` seconds is aborted, which makes it write where its threads
stand, and killed. One that no longer does its work says so and stops by itself; it is ended if it does not. A new one
comes after a pause that grows while they die young.
One that ends because it was told something wrong is not started again: all are stopped, with its exit code.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from allswell.errors import Refused
from allswell.runtime.host import harmless, packed
from allswell.worker.process import SPENT, WRONG, ProcessOrder
from allswell.worker.status import WorkerStatus, prometheus

# Liveness, readiness and figures over HTTP: `/healthz`, `/readyz`, `/metrics`; on loopback unless told otherwise.
#
# It stands in the supervising process where there is one, so it answers while a worker's interpreter is held.

LOOPBACK = "127.0.0.1"
_SLOWEST = 10.0
"""Seconds that one request may take to come."""


class HealthPort:
    """A small HTTP server in a thread of its own."""

    def __init__(self, port: int, statuses: Callable[[], Sequence[WorkerStatus]], host: str = LOOPBACK) -> None:
        answers = _answering(statuses)
        try:
            self._server = ThreadingHTTPServer((host, port), answers)
        except (OSError, OverflowError) as error:
            text = f"the health port {host}:{port} cannot be opened: {error}"
            raise Refused("bad_port", text, where="--health-port") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="allswell-health", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _answering(statuses: Callable[[], Sequence[WorkerStatus]]) -> type[BaseHTTPRequestHandler]:
    class HealthAnswers(BaseHTTPRequestHandler):
        timeout = _SLOWEST

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            now = statuses()
            match self.path.partition("?")[0]:
                case "/healthz":
                    self._say(bool(now) and all(one.alive for one in now), _told(now))
                case "/readyz":
                    self._say(bool(now) and all(one.ready for one in now), _told(now))
                case "/metrics":
                    self._say(True, prometheus(now).encode(), "text/plain; version=0.0.4; charset=utf-8")
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, b"/healthz, /readyz and /metrics are here\n", "text/plain")

        def _say(self, good: bool, body: bytes, kind: str = "application/json") -> None:  # noqa: FBT001 - one meaning
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, body, kind)

        def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing: probes come every few seconds."""

    return HealthAnswers


def _told(statuses: Sequence[WorkerStatus]) -> bytes:
    return msgspec.json.encode({"workers": statuses}) + b"\n"


# Telling systemd: READY when the worker works, WATCHDOG while it does, STOPPING when it ends (sd_notify(3)).


class ServiceNotice:
    """Where systemd listens, if it started us and asked for it; elsewhere it says nothing."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")  # for us, not for what we start
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for us in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            environment.pop(us, None)

    def ready(self, status: str) -> None:
        """It works."""
        self._say(f"READY=1\nSTATUS={status}")

    def alive(self, status: str) -> None:
        """It still does; what is not told this in time is restarted by systemd."""
        self._say(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        """It ends."""
        self._say("STOPPING=1")

    def _say(self, words: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.setblocking(False)
            line.sendto(words.encode(), self._address)


SILENCE = 10.0
"""A process that says nothing for so many seconds is taken to hang."""
START_SECONDS = 60.0
"""How long a process may take to its first word."""
ABORT_SECONDS = 2.0
"""How long an aborted process may take to write where it stands."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
GROWN_UP = 60.0
"""A process that lived for so long died of something new: the pause begins anew."""
LOOK_SECONDS = 0.5
SLEPT_SECONDS = 3.0
"""A look that comes so long after the last one comes after a pause of this process."""
_MOST_TOLD = 300
"""Characters of what is wrong, in the line for systemd."""


class ChildProcess:
    """One process of a worker, and what it last said."""

    def __init__(self, order: ProcessOrder) -> None:
        heard, told = os.pipe()
        os.set_blocking(heard, False)
        self.heard = heard
        self._rest = b""
        self.status: WorkerStatus | None = None
        self._stopping_takes = order.plan.stop_timeout
        self.began = self.last_word = time.monotonic()
        command = [sys.executable, "-P", "-m", "allswell.worker.process"]
        begins_with = harmless(os.environ)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(told,), env=begins_with)
        os.close(told)
        assert self.process.stdin is not None  # noqa: S101 - asked for above
        with suppress(OSError):
            whole = msgspec.structs.replace(order, told_on=told, environment=packed(os.environ))
            self.process.stdin.write(msgspec.json.encode(whole) + b"\n")
            self.process.stdin.flush()

    def hear(self) -> None:
        """Take in what it said."""
        with suppress(BlockingIOError):
            while said := os.read(self.heard, 65_536):
                self._rest += said
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self.last_word = time.monotonic()
            with suppress(msgspec.DecodeError):
                self.status = msgspec.json.decode(lines[-1], type=WorkerStatus)

    def forgive(self) -> None:
        """Nothing could be heard of it for a while, which is not its fault."""
        self.last_word = time.monotonic()

    def hangs(self) -> str:
        """Why it must go; empty if it need not."""
        patience = START_SECONDS if self.status is None else SILENCE
        if self.status is not None and not self.status.alive:
            patience += self._stopping_takes  # it stops in good order now
        silent = time.monotonic() - self.last_word
        return f"has said nothing for {silent:.0f} s" if silent > patience else ""

    def abort(self) -> None:
        """Have it write where its threads stand, and end it."""
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(ABORT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Let go of its pipes."""
        os.close(self.heard)
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def seen(self) -> WorkerStatus | None:
        """What it last said; not alive where that is too long ago."""
        if self.status is None:
            return None
        return msgspec.structs.replace(self.status, alive=self.status.alive and not self.hangs())


class WorkerProcesses:
    """So many processes of one worker."""

    def __init__(self, order: ProcessOrder, processes: int, notice: ServiceNotice, tell: Callable[[str], None]) -> None:
        self._order = order
        self._tell_user = tell
        self.interrupted = False
        """Whether it was stopped from the keyboard."""
        self._notice = notice
        self._children: list[ChildProcess | None] = [None] * processes
        self._due = [0.0] * processes
        self._pauses = [FIRST_PAUSE] * processes
        self._stopping = False
        self._was_ready = False
        self._looked = time.monotonic()

    def run(self, health: HealthPort | None = None) -> int:
        """Keep them going until told to stop; the exit code."""
        with selectors.DefaultSelector() as selector:
            wake_read, wake_write = os.pipe()
            os.set_blocking(wake_write, False)
            selector.register(wake_read, selectors.EVENT_READ)
            before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
            kept = {number: signal.signal(number, self._told_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                code = 0
                while not self._stopping and not code:
                    code = self._look()
                    selector.select(LOOK_SECONDS)
                self._end()
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)
                signal.set_wakeup_fd(before)
                for end in (wake_read, wake_write):
                    os.close(end)
                if health is not None:
                    health.close()
        return code

    def statuses(self) -> list[WorkerStatus]:
        """How each is; one that has not spoken yet, or is dead, is told as not running."""
        return [self._status(child) for child in self._children]

    def _status(self, child: ChildProcess | None) -> WorkerStatus:
        seen = None if child is None else child.seen()
        if seen is not None:
            return seen
        pid = 0 if child is None else child.process.pid
        return msgspec.convert(
            {
                "pid": pid,
                "queue": self._order.plan.queue,
                "running": False,
                "alive": child is not None,
                "condition": "healthy",
                "why": "it starts",
                "counts": {},
                "since": time.time(),
            },
            WorkerStatus,
        )

    def _told_to_stop(self, number: int, _frame: object) -> None:
        self._stopping = True
        self.interrupted = number == signal.SIGINT

    def _look(self) -> int:
        """Hear, bury, start; an exit code if there is no use in going on."""
        now = time.monotonic()
        slept, self._looked = now - self._looked > SLEPT_SECONDS, now
        if slept:  # a container that was stopped, a machine that slept: the processes were stopped too
            for child in self._children:
                if child is not None:
                    child.forgive()
        for place, child in enumerate(self._children):
            if child is None:
                if time.monotonic() >= self._due[place]:
                    self._children[place] = ChildProcess(self._order)
                continue
            child.hear()
            code = child.process.poll()
            if code is None and (why := child.hangs()):
                self._tell_user(f"process {child.process.pid} {why}, and is replaced")
                child.abort()
                code = child.process.returncode
            if code is not None:
                self._bury(place, child, code)
                if code == WRONG:
                    return WRONG
        self._tell()
        return 0

    def _bury(self, place: int, child: ChildProcess, code: int) -> None:
        child.close()
        self._children[place] = None
        lived = time.monotonic() - child.began
        pause = FIRST_PAUSE if lived > GROWN_UP else self._pauses[place]
        self._pauses[place] = min(pause * 2, LONGEST_PAUSE)
        self._due[place] = time.monotonic() + pause
        if code != WRONG:
            how = "no longer did its work, and has stopped" if code == SPENT else f"ended with code {code}"
            self._tell_user(f"process {child.process.pid} {how}; the next comes in {pause:g} s")

    def _tell(self) -> None:
        """Say to systemd how it goes. It hears of life only while this loop turns and no process hangs."""
        now = self.statuses()
        told = summary(now)
        if not self._was_ready and all(one.ready for one in now):
            self._was_ready = True
            self._notice.ready(told)
            self._tell_user(f"ready: {told}; Ctrl-C stops")
        self._notice.alive(told)

    def _end(self) -> None:
        self._notice.stopping()
        seconds = self._order.plan.stop_timeout
        if self._stopping:
            self._tell_user(f"stopping: what runs may end within {seconds:g} s, the rest is given back")
        running = [child for child in self._children if child is not None]
        for child in running:
            child.process.terminate()
        give_up = time.monotonic() + seconds + 3.0
        for child in running:
            try:
                child.process.wait(max(give_up - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self._tell_user(f"process {child.process.pid} does not stop, and is killed")
                child.process.kill()
                child.process.wait()
            child.close()


def summary(statuses: Sequence[WorkerStatus]) -> str:
    """One line for `systemctl status`."""
    handled = sum(one.counts.get("handled", 0) for one in statuses)
    ready = sum(one.ready for one in statuses)
    told = f"{ready} of {len(statuses)} processes ready, {handled} messages handled"
    whys = sorted({one.why for one in statuses if one.why and not one.ready})
    return f"{told}; {'; '.join(whys)[:_MOST_TOLD]}" if whys else told
