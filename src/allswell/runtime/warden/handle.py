"""A command that runs under its reaper, as its supervisor holds it.

The handle is one end of a socket; the reaper holds the other. To let go of it, by `close()` or by dying, ends the tree.
`start` and `wait` block; async code uses `begin` and awaits `started()` and `ended()`. No thread is behind any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

import msgspec

from allswell.errors import Unavailable
from allswell.runtime.warden.apart.tree import look
from allswell.runtime.warden.apart.wire import Message, Unpacker, pack
from allswell.runtime.warden.command import WardenCommand, marked, not_started
from allswell.runtime.warden.keeper import KEEPER
from allswell.runtime.warden.left_over import end_left_over
from allswell.runtime.warden.record import Record, new_record
from allswell.runtime.warden.result import Ending, Printed, Result

_TRIES = 3
_LONGEST_SLEEP = 86_400.0  # poll counts milliseconds in an int


class Handle:
    """One process tree."""

    def __init__(self, command: WardenCommand) -> None:
        self.command = command
        self.began = time.monotonic()
        self.record: Record = new_record(os.urandom(16).hex())
        """What to write down, so that a later supervisor can find what is left; whole once it has started."""
        self.result: Result | None = None
        self.exited_at: float | None = None
        """When the command itself ended, on the monotonic clock; those it left may take longer."""
        self.frozen: int | None = None
        """How many processes stand still, once the reaper has said so."""
        self._error: Exception | None = None
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
        """End the whole tree: TERM to everybody, KILL after the grace; a second call can only shorten that."""
        self._send({"do": "stop", "grace": max(grace_ms, 0.0) / 1_000})

    def freeze(self) -> None:
        """Stop everybody where they stand, and put what they printed into the files; `frozen` says when it is done."""
        self.frozen = None
        self._send({"do": "freeze"})

    def thaw(self) -> None:
        """Let everybody go on."""
        self.frozen = None
        self._send({"do": "thaw"})

    def close(self) -> None:
        """Let go of the tree; if it has not ended, its reaper ends it."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- waiting, in a thread -----------------------------------------------------------------------------------------

    def wait(self, seconds: float | None = None) -> Result | None:
        """The end of the whole tree; None if it has not come within so many seconds."""
        self._until(lambda: self.result is not None, seconds)
        return self.result

    def wait_started(self, seconds: float | None = None) -> bool:
        """Wait until the command runs; raises what stood in its way. False if that takes longer."""
        return self._until(lambda: self.has_started or self.result is not None, seconds)

    def wait_frozen(self, seconds: float | None = None) -> bool:
        """Wait until everybody stands still, or has ended; False if that takes longer."""
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
            if poll.poll(None if left is None else min(left, _LONGEST_SLEEP) * 1_000 + 0.5):
                self._receive()
        return True

    # --- waiting, on an event loop ------------------------------------------------------------------------------------

    async def started(self) -> None:
        """Wait until the command runs; raises what stood in its way."""
        await self._awaited(lambda: self.has_started or self.result is not None)

    async def stood_still(self) -> None:
        """Wait until everybody stands still after `freeze`, or has ended. Nobody else may wait meanwhile."""
        await self._awaited(lambda: self.frozen is not None or self.result is not None)

    async def ended(self) -> Result:
        """The end of the whole tree."""
        await self._awaited(lambda: self.result is not None)
        return cast("Result", self.result)

    async def _awaited(self, reached: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not self._lost and not self._settled(reached):
            self._check_open()
            heard = loop.create_future()
            loop.add_reader(self._channel, _wake, heard)
            try:
                await heard
            finally:
                loop.remove_reader(self._channel)
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
            KEEPER.hand_over(handles, cap=command.cap, grace_ms=command.grace_ms)
            its.close()
            with contextlib.suppress(OSError):  # whoever was to hear it is gone: that is noticed below
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
            case "started":
                self._note_start(cast("int", message["pid"]), cast("int", message["reaper"]))
            case "refused":
                self._error = not_started(self.command, cast("str", message["stage"]), cast("int", message["errno"]))
                self._channel.close()
            case "frozen":
                self.frozen = cast("int", message["processes"])
            case "exited":
                self.exited_at = time.monotonic()
            case "ended" if self._error is None:
                self.result = self._read(message)
                self._channel.close()

    def _note_start(self, pid: int, reaper: int) -> None:
        """Complete the record. A command that has ended already has no start time any more, and needs none."""
        own, main = look(reaper), look(pid)
        self.record = msgspec.structs.replace(
            self.record,
            pid=pid,
            start=main.start if main is not None and main.parent == reaper else 0,
            reaper=reaper,
            reaper_start=0 if own is None else own.start,
        )

    def _read(self, message: Message) -> Result:
        status = cast("int | None", message["status"])
        by_signal = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        ending = Ending.EXITED if by_signal is None else Ending.SIGNALLED
        told = {name: message[name] for name in ("killed", "left_behind", "survivors")}
        used = {name: message[name] for name in ("user_seconds", "system_seconds", "max_rss_kb")}
        stdout, stderr = cast("list[Message]", message["streams"])
        return msgspec.convert(
            {
                "ending": Ending.STOPPED if message["ordered"] else ending,
                "exit_code": None if status is None or by_signal is not None else os.WEXITSTATUS(status),
                "signal": by_signal,
                **told,
                "seconds": time.monotonic() - self.began,
                **used,
                "stdout": msgspec.convert(stdout, Printed),
                "stderr": msgspec.convert(stderr, Printed),
            },
            Result,
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
        """Somebody killed the reaper. The warden kills those below it; should that be dead too, we do."""
        end_left_over(self.record, grace_ms=0)
        self.result = Result(Ending.LOST, None, None, killed=True, seconds=time.monotonic() - self.began)

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


def begin(command: WardenCommand) -> Handle:
    """Have a command started, without waiting until it runs."""
    return Handle(command)


def start(command: WardenCommand) -> Handle:
    """Start a command; raises `Refused` if it cannot be run, and nothing ran then."""
    handle = Handle(command)
    try:
        handle.wait_started()
    except BaseException:
        handle.close()
        raise
    return handle
