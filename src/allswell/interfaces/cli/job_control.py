"""Ctrl-Z, and every other stop of `allswell run` or of its command: where one of them is stopped, both are.

Without Allswell a person stops a command and continues it later, and nothing is lost. With Allswell there are two
processes ("we" are `allswell run`, the other is its command), and neither stops the other by itself: Ctrl-Z at the
command's own terminal stops the command, SIGSTOP stops us. So:

    the command is stopped      its reaper sees it (it is the parent), stops all processes below it, and tells us;
                                we stop ourselves, so that the shell knows
    SIGTSTP comes to us         we have all its processes stopped, and stop ourselves
    we are stopped (SIGSTOP)    the reaper sees it within half a second, and stops them
    we are continued            we ask the store whether the attempt is still ours, and let them go on
    the command is continued    its reaper continues us

Limits are paused meanwhile: the clock by which the attempt is judged is (`PausableClock`), and so is the limit in the
store (`domain/lease/suspension.py`). The lease has to be renewed by another process: a stopped one does nothing. The
warden looks at us twice a second and starts that process (`renewer.py`). It is not there before, since most commands
are never stopped and each would cost 30 MB; it is no thread or child of ours, since those would be stopped with us or
would have to be started by us. After 24 hours it continues us, and we give the task back with its work kept.

A process group that no shell looks after cannot be stopped by a terminal: then a command that Ctrl-Z has stopped goes
on at once, as it would without us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from allswell.domain.duration import show
from allswell.domain.lease.suspension import LONGEST_STOP
from allswell.errors import AllswellError, LeaseLost
from allswell.runtime.process import KEEPER
from allswell.timing.clock import PausableClock

if TYPE_CHECKING:
    from allswell.runtime.attempt import AttemptRunner

_BEAT = 0.5
"""Seconds between two notes of when we last ran: the time from the last note to a SIGCONT was a stop."""
_TELLING = 1.0
"""Seconds for the store to be told, before we stop; else the process that renews the lease tells it."""
_ASKING = 30.0
"""Seconds for the store to say that the attempt is still ours."""
_TAKES_EFFECT = 0.2
"""Seconds in which a stop of ourselves takes effect, if the kernel lets it."""


class Stopping:
    """Stops and continues of one `allswell run`, for the attempt that runs."""

    def __init__(
        self,
        clock: PausableClock,
        *,
        give_back: Callable[[], None],
        take_again: Callable[[], None],
        whole_group: bool,
        store: str,
    ) -> None:
        self._clock = clock
        self._give_back = give_back
        """Gives the terminal back before we stop."""
        self._take_again = take_again
        """Takes the terminal, where we are in its foreground."""
        self._whole_group = whole_group
        """Whether no terminal has stopped the others of our process group, because the command has the terminal."""
        self._store = store
        self._attempt: AttemptRunner | None = None
        self._alive_at = 0
        self._beating: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None
        self._continued = False
        self._loop = asyncio.get_running_loop()

    def begin(self, attempt: AttemptRunner) -> None:
        """The command of an attempt is about to start: from its first moment on it may be stopped, and so may we."""
        self.end()
        self._attempt = attempt
        lease = attempt.lease
        words = (lease.task, str(lease.token), lease.agent, str(lease.length or 0), str(os.getpid()))
        env = {**os.environ, "ALLSWELL_STORE": self._store}
        KEEPER.follow([sys.executable, "-P", "-m", "allswell.interfaces.cli.renewer", *words], env)
        self._alive_at = self._clock.real()
        self._beating = asyncio.ensure_future(self._beat())
        signal.signal(signal.SIGCONT, self._on_continue)
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop_both, signal.SIGTSTP)

    def started(self, attempt: AttemptRunner) -> None:
        """The command runs; it may have been stopped before we knew that, or with us."""
        handle = attempt.handle
        if handle is None:
            return
        handle.on_stop, handle.on_continue = self._stop_both, self._go_on_soon
        if handle.stopped_by is not None:
            self._stop_both(handle.stopped_by)
        elif not attempt.stands:
            handle.go_on()

    def end(self) -> None:
        """The attempt is over; may be called more than once."""
        if self._attempt is None:
            return
        self._attempt = None
        self._loop.remove_signal_handler(signal.SIGTSTP)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        for task in (self._beating, self._changing):
            if task is not None:
                task.cancel()
        self._clock.go_on()

    async def _beat(self) -> None:
        while True:
            self._alive_at = self._clock.real()
            if self._attempt is not None and not self._attempt.stands and self._runs(self._attempt):
                self._take_again()  # `fg` of a command in the background sends no signal
            await asyncio.sleep(_BEAT)

    @staticmethod
    def _runs(attempt: AttemptRunner) -> bool:
        return attempt.handle is not None and attempt.handle.exited_at is None and attempt.handle.result is None

    # --- stopping -----------------------------------------------------------------------------------------------------

    def _stop_both(self, number: int) -> None:
        if self._attempt is not None and not self._attempt.stands:
            self._attempt.stands = True
            self._clock.stand()
            self._changing = asyncio.ensure_future(self._stop(self._attempt, number))

    async def _stop(self, attempt: AttemptRunner, number: int) -> None:
        if attempt.handle is not None:
            attempt.handle.stand()
        self._give_back()
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_TELLING):
                await attempt.lease.suspend(signal.Signals(number).name)
        self._continued = False
        self._stop_ourselves(number)
        await asyncio.sleep(_TAKES_EFFECT)
        if not self._continued and number != signal.SIGSTOP:
            self._changing = None
            self._go_on_soon()

    def _stop_ourselves(self, number: int) -> None:
        """Stop this process until it is continued; returns at once where the kernel does not stop it."""
        if number == signal.SIGSTOP:
            os.kill(os.getpid(), number)
            return
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(0 if self._whole_group else os.getpid(), signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop_both, signal.SIGTSTP)

    # --- going on -----------------------------------------------------------------------------------------------------

    def _on_continue(self, _number: int, _context: FrameType | None) -> None:
        """SIGCONT, at any moment of the loop: from here on nothing is judged until we know how it stands."""
        self._continued = True
        if self._attempt is not None:
            if not self._attempt.stands:  # we were stopped without being told
                self._clock.stand(self._alive_at)
                self._attempt.stands = True
            self._loop.call_soon_threadsafe(self._go_on_soon)

    def _go_on_soon(self) -> None:
        if self._attempt is not None and self._attempt.stands:
            if self._changing is not None:
                self._changing.cancel()
            self._changing = asyncio.ensure_future(self._go_on(self._attempt))

    async def _go_on(self, attempt: AttemptRunner) -> None:
        if self._clock.stands_for >= LONGEST_STOP:
            attempt.stop(f"it had been stopped for {show(LONGEST_STOP)}")
        with contextlib.suppress(LeaseLost, TimeoutError):  # a loss stands in the lease, and is judged
            async with asyncio.timeout(_ASKING):
                await self._ask(attempt)
        self._clock.go_on()
        attempt.stands = False
        if attempt.lease.lost is None and attempt.handle is not None:
            attempt.handle.go_on()
        self._alive_at = self._clock.real()
        if self._runs(attempt):
            self._take_again()
        attempt.judge_again()

    async def _ask(self, attempt: AttemptRunner) -> None:
        while True:
            try:
                await attempt.lease.go_on()
            except LeaseLost:
                raise
            except AllswellError:  # the store is away
                await asyncio.sleep(_BEAT)
            else:
                return
