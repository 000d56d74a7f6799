"""A command that runs under its reaper, as its supervisor holds it.

The handle is one end of a socket; the reaper holds the other. To let go of it, by `close()` or by dying, ends the tree.
`start` and `wait` block; async code makes a `Handle`, which does not wait, and awaits `started()` and `ended()`. No
thread is behind any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec

from allswell.domain.agents.status import Survivor, short_command
from allswell.errors import Refused, Unavailable
from allswell.runtime.host import soft_limit_of_commands
from allswell.runtime.process.apart.stops import FOLLOW
from allswell.runtime.process.apart.tree import freeze, look, send, start_of
from allswell.runtime.process.apart.wire import PID_BYTES, Message, Unpacker, pack
from allswell.runtime.process.command import EndCause, ProcessResult, StreamEnd, WardenCommand, marked, not_started
from allswell.runtime.process.identity import TreeMarks, TreeRecord, new_record, survivors_of
from allswell.runtime.process.leftovers import end_left_over, wake

# The supervisor's side of the warden: started on first need, started again when it was killed.
#
# It is started by `subprocess` and let go at once: what we start only forks the warden and ends, and is waited for by
# its own number. So the host has no child that it does not know of, and its own children and their exit codes are its
# own.

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
        """Start it, if it does not run; takes a few hundredths of a second."""
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
        """Have a reaper made that gets these descriptors; with `follows`, it stops the whole tree when we are stopped.

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
            return  # the warden was killed: the next command has another, which gets its orders again
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
            # Nothing of ours: a reader of the host's output must not wait for the warden's end.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=handles,
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            start_new_session=True,
            timeout=_STARTING,
            check=False,  # a host that waits for all children may have taken the exit code
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


_TRIES = 3
_LOOK_AGAIN = 0.25
"""Seconds between two looks at whether the reaper was stopped, once it has the order to end the tree."""
_STARTED_WITHIN = 0.5
"""Seconds in which a command has started; else it is checked whether a process, perhaps the command itself, has stopped
the warden, which continues the reaper."""
_HELPED = 1.0
"""Seconds after the grace in which a reaper must have answered, or it is helped."""
BEYOND = 10.0
"""Seconds after the grace in which it must have answered, or the tree is ended from here."""
_LONGEST_SLEEP = 86_400.0  # poll counts milliseconds in an int


class Handle:
    """One process tree."""

    def __init__(self, command: WardenCommand) -> None:
        self.command = command
        self.began = time.monotonic()
        self.record: TreeRecord = new_record(os.urandom(16).hex())
        """What to write down, so that a later supervisor can find what is left; whole once it has started."""
        self.result: ProcessResult | None = None
        self.exited_at: float | None = None
        """When the command itself ended, on the monotonic clock; those it left may take longer."""
        self.on_exit: Callable[[], None] | None = None
        """Called when the command itself has ended."""
        self.frozen: int | None = None
        """How many processes stand still, once the reaper has said so."""
        self.stopped_by: int | None = None
        """The signal by which the command was stopped from outside, if it is and that is followed."""
        self.on_stop: Callable[[int], None] | None = None
        """Called with that signal."""
        self.on_continue: Callable[[], None] | None = None
        """Called when a command that was stopped is continued from outside."""
        self.background: tuple[Survivor, ...] = ()
        """Whom the command left running when it ended by itself, the first of them."""
        self.on_left: Callable[[tuple[Survivor, ...]], None] | None = None
        """Called with them, before they are ended."""
        self.on_wake: Callable[[int], None] | None = None
        """Called once with the reaper's number, when it was stopped and has been continued."""
        self._error: Exception | None = None
        self._marks = TreeMarks()
        self._end_by = float("inf")
        """When the grace is over, once it was asked to stop."""
        self._interrupt_due = False
        """Whether it is to be interrupted as soon as its start is reported."""
        self._tries = 0
        self._taken = False
        self._lost = False
        self._sending = threading.Lock()
        self._channel = self._order()

    @property
    def pid(self) -> int:
        """The command's process id."""
        return self.record.pid

    @property
    def has_started(self) -> bool:
        """Whether the command runs, or has run."""
        return self.record.pid != 0

    # --- giving orders ------------------------------------------------------------------------------------------------

    def stop(self, grace_ms: float) -> None:
        """End the whole tree: TERM to all its processes, KILL after the grace; a second call can only shorten that."""
        self._end_by = min(self._end_by, time.monotonic() + max(grace_ms, 0.0) / 1_000)
        wake(self.record)
        self._send({"do": "stop", "grace": max(grace_ms, 0.0) / 1_000})

    def freeze(self) -> None:
        """Freeze the whole tree, and write its output into the files; `frozen` says when it is done."""
        self.frozen = None
        wake(self.record)
        self._send({"do": "freeze"})

    def remember(self, processes: Iterable[tuple[int, int]]) -> None:
        """Note who was seen in the tree, by number and start time: so they are known even without their reaper."""
        wake(self.record)
        self._marks.see((pid, start) for pid, start in processes if pid != self.record.reaper)

    def hold_still(self) -> None:
        """Freeze the whole tree from here, then continue the reaper: what stops it again is in its own tree."""
        if self.record.reaper:
            freeze(self.record.reaper)
            wake(self.record)

    def thaw(self) -> None:
        """Let the whole tree go on."""
        self.frozen = None
        self._send({"do": "thaw"})

    def give_up(self) -> ProcessResult:
        """The reaper does not answer: end the tree from here, and say who is left."""
        if self.result is None:
            self.result = self._ended_from_here(EndCause.STOPPED)
            self._channel.close()
            KEEPER.wake()
        return self.result

    def stand(self) -> None:
        """Stop the whole tree, as if the command had been stopped."""
        self._send({"do": "stand"})

    def go_on(self) -> None:
        """Let all processes go on that were stopped with the command."""
        self.stopped_by = None
        self._send({"do": "go_on"})

    def interrupt(self) -> None:
        """Send SIGINT to the command alone, once it is known: one that knows what it means ends by itself."""
        self._interrupt_due = not self.has_started
        if self.record.pid and self.record.start:
            send(self.record.pid, self.record.start, signal.SIGINT)

    def close(self) -> None:
        """Let go of the tree; if it has not ended, its reaper ends it."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- ending it, with proof ----------------------------------------------------------------------------------------

    async def end(self, grace_ms: float, *, beyond: float = BEYOND) -> ProcessResult:
        """Stop the tree and wait for the proof that it is gone; processes that still run then are named in the result.

        A reaper that does not answer is helped: it was stopped from within its tree, or the machine hangs. `beyond` are
        the seconds after the grace in which it must have answered.
        """
        self.stop(grace_ms)
        loop = asyncio.get_running_loop()
        ending = asyncio.ensure_future(self.ended())
        helped = False
        try:
            while not ending.done() and time.monotonic() < self._end_by + beyond:
                await asyncio.wait((ending,), timeout=_LOOK_AGAIN)
                if not ending.done():
                    wake(self.record)
                    if not helped and time.monotonic() > self._end_by + min(_HELPED, beyond / 2):
                        helped = True
                        await loop.run_in_executor(None, self.hold_still)
            return ending.result() if ending.done() else await loop.run_in_executor(None, self.give_up)
        finally:
            ending.cancel()

    def end_now(self, grace_ms: float, *, beyond: float = BEYOND) -> ProcessResult:
        """The same, in a thread."""
        self.stop(grace_ms)
        helped = False
        while (result := self.wait(_LOOK_AGAIN)) is None and time.monotonic() < self._end_by + beyond:
            wake(self.record)
            if not helped and time.monotonic() > self._end_by + min(_HELPED, beyond / 2):
                helped = True
                self.hold_still()
        return result or self.give_up()

    # --- waiting, in a thread -----------------------------------------------------------------------------------------

    def wait(self, seconds: float | None = None) -> ProcessResult | None:
        """The end of the whole tree; None if it has not come within so many seconds."""
        self._until(lambda: self.result is not None, seconds)
        return self.result

    def wait_started(self, seconds: float | None = None) -> bool:
        """Wait until the command runs; raises what stood in its way. False if that takes longer."""
        return self._until(lambda: self.has_started or self.result is not None, seconds)

    def wait_frozen(self, seconds: float | None = None) -> bool:
        """Wait until every process is frozen or has ended; False if that takes longer."""
        return self._until(lambda: self.frozen is not None or self.result is not None, seconds)

    def _until(self, reached: Callable[[], bool], seconds: float | None) -> bool:
        end = None if seconds is None else time.monotonic() + seconds
        while not self._settled(reached):
            self._check_open()
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            longest = _LONGEST_SLEEP if self.has_started else _STARTED_WITHIN
            if poll.poll(min(longest if left is None else left, longest) * 1_000 + 0.5):
                self._receive()
            elif not self.has_started:
                KEEPER.wake()
        return True

    # --- waiting, on an event loop ------------------------------------------------------------------------------------

    async def started(self) -> None:
        """Wait until the command runs; raises what stood in its way."""
        await self._awaited(lambda: self.has_started or self.result is not None)

    async def stood_still(self) -> None:
        """Wait until every process is frozen after `freeze`, or has ended. No second caller may wait meanwhile."""
        await self._awaited(lambda: self.frozen is not None or self.result is not None)

    async def ended(self) -> ProcessResult:
        """The end of the whole tree."""
        await self._awaited(lambda: self.result is not None)
        return cast("ProcessResult", self.result)

    async def _awaited(self, reached: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not self._lost and not self._settled(reached):
            self._check_open()
            heard = loop.create_future()
            loop.add_reader(self._channel, _wake, heard)
            late = None if self.has_started else loop.call_later(_STARTED_WITHIN, _wake, heard)
            try:
                await heard
            finally:
                loop.remove_reader(self._channel)
                if late is not None:
                    late.cancel()
            if not self.has_started:
                KEEPER.wake()
            self._receive()
        if self._lost and self.result is None:  # looking through all processes is no work for a loop
            await loop.run_in_executor(None, self._settle_lost)
        self._settled(reached)

    # --- what the reaper says -----------------------------------------------------------------------------------------

    def _order(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        command = self.command
        stdin = nothing if command.stdin is None else command.stdin
        order: Message = {
            "path": command.path,
            "argv": list(command.argv),
            "cwd": command.cwd,
            "env": marked(command, self.record.marker),
        }
        try:
            at_terminal = () if command.terminal is None else (command.terminal,)
            handles = [its.fileno(), stdin, command.stdout, command.stderr, *(command.live or ()), *at_terminal]
            KEEPER.hand_over(
                handles,
                cap=command.cap,
                grace_ms=command.grace_ms,
                follows=command.follows,
                keep_children=command.keep_children,
            )
            its.close()
            with contextlib.suppress(OSError):  # the receiver is gone: that is noticed below
                ours.sendall(pack(order))
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
            os.close(nothing)
        self._unpacker = Unpacker()
        return ours

    def _send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(OSError):  # it has ended, or is about to be found lost
            self._channel.sendall(pack(message))

    def _receive(self) -> None:
        try:
            piece = self._channel.recv(65_536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        for message in self._unpacker.feed(piece):
            self._hear(message)
        if not piece and self.result is None and self._error is None:
            self._reaper_is_gone()

    def _hear(self, message: Message) -> None:
        match message["event"]:
            case "taken":
                self._taken = True
                self._note_reaper(cast("int", message["reaper"]))
            case "started":
                self._note_reaper(cast("int", message["reaper"]))
                self._note_start(cast("int", message["pid"]))
            case "refused":
                self._error = not_started(self.command, cast("str", message["stage"]), cast("int", message["errno"]))
                self._channel.close()
            case "frozen":
                self.frozen = cast("int", message["processes"])
            case "stopped" | "continued":
                self._note_stop(cast("int | None", message.get("signal")))
            case "woken":
                if self.on_wake is not None:
                    self.on_wake(self.record.reaper)
            case "left":
                self._note_background(cast("list[tuple[int, str]]", message["processes"]))
            case "exited":
                self.exited_at = time.monotonic()
                if self.on_exit is not None:
                    self.on_exit()
            case "ended" if self._error is None:
                self.result = self._read(message)
                self._channel.close()
                KEEPER.wake()  # who may have stopped it is gone, and the next command need not wait for it

    def _note_stop(self, number: int | None) -> None:
        """The command was stopped from outside; or, without a signal, was continued."""
        self.stopped_by = number
        if number is None and self.on_continue is not None:
            self.on_continue()
        elif number is not None and self.on_stop is not None:
            self.on_stop(number)

    def _note_background(self, processes: Sequence[tuple[int, str]]) -> None:
        self.background = tuple(Survivor(pid, 0, short_command(command)) for pid, command in processes)
        if self.on_left is not None and self.background:
            self.on_left(self.background)

    def _note_reaper(self, reaper: int) -> None:
        """Note which process will start the command: a command may stop its reaper before that is reported."""
        if self.record.reaper == reaper and self.record.reaper_start:
            return
        own = look(reaper)
        parent = KEEPER.warden if own is None else own.parent  # a reaper may have been killed by now
        self.record = msgspec.structs.replace(
            self.record,
            reaper=reaper,
            reaper_start=0 if own is None else own.start,
            warden=parent,
            warden_start=start_of(parent) if parent else 0,
        )

    def _note_start(self, pid: int) -> None:
        """Complete the record. A command that has ended already has no start time any more, and needs none."""
        main = look(pid)
        started = main.start if main is not None and main.parent == self.record.reaper else 0
        self.record = msgspec.structs.replace(self.record, pid=pid, start=started)
        if self.record.start:
            self._marks.see([(pid, self.record.start)])
        if self._interrupt_due:
            self.interrupt()

    def _read(self, message: Message) -> ProcessResult:
        status = cast("int | None", message["status"])
        by_signal = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        ending = EndCause.EXITED if by_signal is None else EndCause.SIGNALLED
        told = {name: message[name] for name in ("killed", "left_behind")}
        used = {name: message[name] for name in ("user_seconds", "system_seconds", "max_rss_kb")}
        stdout, stderr = cast("list[Message]", message["streams"])
        running = survivors_of(cast("list[int]", message["survivors"]))
        return msgspec.convert(
            {
                "ending": EndCause.STOPPED if message["ordered"] else ending,
                "exit_code": None if status is None or by_signal is not None else os.WEXITSTATUS(status),
                "signal": by_signal,
                **told,
                "survivors": tuple(one.pid for one in running),
                "running": running,
                "background": self.background,
                "seconds": time.monotonic() - self.began,
                **used,
                "stdout": msgspec.convert(stdout, StreamEnd),
                "stderr": msgspec.convert(stderr, StreamEnd),
            },
            ProcessResult,
        )

    def _reaper_is_gone(self) -> None:
        self._channel.close()
        if self._taken:
            self._lost = True
            return
        self._tries += 1
        if self._tries >= _TRIES:
            self._error = Unavailable("the warden, which starts commands, was killed each time it was to start one")
        else:  # nothing ran yet: the warden was killed with our order in its hands
            self._channel = self._order()

    def _settle_lost(self) -> None:
        """The reaper was killed. The warden kills those below it, and we kill those that are known by their marks."""
        self.result = self._ended_from_here(EndCause.LOST)

    def _ended_from_here(self, ending: EndCause) -> ProcessResult:
        """End the tree without its reaper; who is left of it."""
        left = end_left_over(self.record, grace_ms=0, marks=self._marks)
        running = survivors_of(left.processes)
        return ProcessResult(
            ending,
            None,
            None,
            killed=True,
            survivors=tuple(one.pid for one in running),
            running=running,
            proven=left.proven,
            seconds=time.monotonic() - self.began,
        )

    def _settled(self, reached: Callable[[], bool]) -> bool:
        if self._lost and self.result is None:
            self._settle_lost()
        if self._error is not None:
            raise self._error
        return reached()

    def _check_open(self) -> None:
        if self._channel.fileno() == -1:
            raise Unavailable(f"the handle of {self.command.argv[0]} was closed; its reaper ends the tree")


def _wake(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)


def start(command: WardenCommand) -> Handle:
    """Start a command; raises `Refused` if it cannot be run, and nothing ran then."""
    handle = Handle(command)
    try:
        handle.wait_started()
    except BaseException:
        handle.close()
        raise
    return handle
