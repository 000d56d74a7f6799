"""An attempt by a command: its words filled in, run under the warden, heard and spoken to.

A sync function of Python is a command, too: it is called in a process of its own, so that it can be ended for real.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Mapping

import msgspec

from allswell.domain.evidence import Evidence, Sign, Standing
from allswell.domain.fleet import AgentSpec, fill, word_of
from allswell.domain.quota import DEFAULT as QUOTA
from allswell.domain.quota import Quota
from allswell.domain.receipt import End
from allswell.domain.retry import ErrorClass, Failure
from allswell.engine.handle import Lease
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.runtime.agents.brief import Brief
from allswell.runtime.agents.ears import Ears, Heard
from allswell.runtime.agents.function import told_of
from allswell.runtime.agents.unstarted import unstarted
from allswell.runtime.attempt import Attempt, AttemptLimits, Outcome, Tower, order_for
from allswell.runtime.attempt.order import Order
from allswell.runtime.own_files import rewrite_file, write_file
from allswell.runtime.receipts import Home
from allswell.timing.clock import SystemClock

CALLED = ("-m", "allswell.runtime.agents.called")
_TAIL = 2_000
"""Bytes of its last output that a failure is told with."""
_ARGUMENT_MOST = 128 * 1024 - 1
"""Bytes that the kernel takes as one argument."""


def order_of(spec: AgentSpec, brief: Brief) -> Order:
    """The order for an attempt, or `Refused`."""
    argv = (sys.executable, *CALLED, spec.function) if spec.function else spec.command
    words = [word_of(word, brief.places, after_dashes="--" in argv[:number]) for number, word in enumerate(argv)]
    for word in words:
        if len(os.fsencode(word)) > _ARGUMENT_MOST:
            text = f"the prompt has {len(os.fsencode(word)):,} bytes, and an argument at most {_ARGUMENT_MOST:,}"
            raise Refused("bad_command", f"{text}; let the command read {{prompt_file}}", where="command")
    env = {name: fill(value, brief.places) for name, value in spec.env.items()}
    env |= {"ALLSWELL_ORDERS": str(brief.orders_file), "ALLSWELL_PROMPT": str(brief.prompt_file)}
    if spec.function:
        env["ALLSWELL_WORK"] = str(brief.work_file)
    limits = AttemptLimits(idle=spec.idle, grace=spec.grace)
    return order_for(words, cwd=brief.folder, env=env, hand_on=spec.pass_env, limits=limits, folder=brief.folder)


class CommandRun:
    """One attempt by a command."""

    def __init__(
        self,
        spec: AgentSpec,
        brief: Brief,
        lease: Lease,
        home: Home,
        heard: Heard,
        tower: Tower | None = None,
        quota: Quota = QUOTA,
    ) -> None:
        self.lease = lease
        self.result: object = None
        self.failure: Failure | None = None
        self.inbox: tuple[str, ...] = ()
        self._spec = spec
        self._brief = brief
        self._home = home
        self._ears = Ears(heard, spec.context_window)
        self._started = heard.started
        self._tower = tower
        self._quota = quota
        self._attempt: Attempt | None = None
        self._asked = ""
        self._asked_at = 0
        self._input: int | None = None
        self._began = Standing(SystemClock().monotonic())
        self._tail = bytearray()

    @property
    def standing(self) -> Standing:
        """What it has shown so far."""
        return self._began if self._attempt is None else self._attempt.standing

    @property
    def waits_for(self) -> str | None:
        """Another agent's answer that it waits for."""
        requests = () if self._attempt is None else self._attempt.requests
        return f"asked for help: {', '.join(requests)}" if requests else None

    async def run(self) -> Outcome:
        """From the order to the outcome."""
        source: int | None = None
        try:
            try:
                self._brief.write()
                if self._spec.function:
                    write_file(self._brief.work_file, msgspec.json.encode(told_of(self._brief, self.lease)))
                order = dataclasses.replace(order_of(self._spec, self._brief), echo=self._hear, quota=self._quota)
                if self._spec.hears == "stdin":
                    source, self._input = os.pipe2(os.O_CLOEXEC)
                    os.set_blocking(self._input, False)
                    order = dataclasses.replace(order, stdin=source)
            except (AllswellError, OSError) as error:
                told = error if isinstance(error, AllswellError) else Unavailable(f"the brief: {error.strerror}")
                return unstarted(self._spec, self.lease, self._home, SystemClock(), told)
            self._attempt = Attempt(order, self.lease, self._home, orders=self._orders, tower=self._tower)
            self._attempt.on_start = self._started
            outcome = await self._attempt.run()
        finally:
            for handle in (source, self._input):
                if handle is not None:
                    os.close(handle)
            self._input = None
            self._ears.last()
            self._brief.remove()
        self.result = {"exit_code": outcome.exit_code}
        if outcome.failure is not None:
            self.failure = outcome.failure
        elif outcome.end in (End.FAILED, End.SIGNALLED, End.LOST) or (outcome.by_itself and outcome.exit_code != 0):
            tail = self._tail.decode("utf-8", "replace").strip()
            said = f"{outcome.reason}:\n{tail}" if tail else outcome.reason
            self.failure = Failure(ErrorClass.TRANSIENT, said)
        return outcome

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; what it was up to is kept first."""
        if self._attempt is not None:
            self._attempt.stop(reason, end, grace=grace)

    def ask(self, words: str) -> tuple[str, ...]:
        """Ask by the socket (the answer to any call says so), by a line on its input, and in its file."""
        self._asked = words
        self._asked_at = SystemClock().monotonic()
        ways = ["socket"]
        if self._input is not None:
            with contextlib.suppress(OSError):  # it does not read, or is gone: then it has not heard
                os.write(self._input, words.replace("\n", " ").encode() + b"\n")
                ways.append("stdin")
        with contextlib.suppress(OSError):
            rewrite_file(self._brief.orders_file, words.encode() + b"\n")
            if self._spec.hears == "file":
                ways.append("file")
        return tuple(ways)

    def answered(self, note: str) -> None:
        """It has checked in, in its own output."""
        if self._attempt is not None:
            self._attempt.note(Evidence(Sign.CHECKIN, SystemClock().monotonic(), f"“{note[:400]}”"))

    def _orders(self) -> Mapping[str, object]:
        """What the answer to any call carries: what it is asked for, until it has checked in, and its inbox."""
        answer = self.standing.answer
        owed = bool(self._asked) and (answer is None or answer.at < self._asked_at)
        return {**({"order": self._asked} if owed else {}), "inbox": self.inbox}

    def _hear(self, stream: int, piece: bytes) -> None:
        self._tail += piece[-_TAIL:]
        del self._tail[:-_TAIL]
        self._ears(stream, piece)
