"""The report to the store about an attempt that has ended, on disk until the store has answered.

    keep     each command goes, with its id, into the note of the attempt, flushed, before it is sent
    send     it is sent until there is an answer: taken, refused, or too late, and then the store keeps it (O10)
    leave    a supervisor that stops while the store is away leaves the note where it is
    repeat   the next process that settles this home sends what such a note holds (`repeat_left`)

A command counts once however often it is sent, because it has an id. So a commit whose outcome is unknown is settled by
sending the command again, and it does not matter which process sends it (docs/adr/0072).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar, assert_never, get_args

import msgspec
from msgspec import UNSET

from allswell.domain.lease.cost import Spend
from allswell.domain.lease.verification import NEEDS_VERIFICATION, AfterCheck
from allswell.domain.receipts.receipt import End, Receipt, receipt_id
from allswell.domain.rules.command import Command, RecordReceipt, wire_name
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import TaskRow
from allswell.engine.lease import Held, LastWord, Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable
from allswell.runtime.attempt.launch import AttemptOutcome
from allswell.runtime.attempt.record import FlightFile, InFlightRecord, KeptCommand, flight_of, take_off
from allswell.runtime.receipts import StateDir
from allswell.timing.clock import Clock, SystemClock

T = TypeVar("T")
_AGAIN = 1.0
"""Seconds between two tries at a store that is away; each try waits for the store itself, too."""
_LOOK = 0.02
LEAVING = 5.0
"""Seconds that the store has to answer once its supervisor is to stop."""
_KINDS: dict[str, type[Command]] = {wire_name(kind): kind for kind in get_args(LastWord)}


class OutcomeReport:
    """What is still to be reported about one attempt; the attempt's supervisor makes it, and closes it."""

    def __init__(self, lease: Lease, home: StateDir, tell: Callable[[str], None], clock: Clock | None = None) -> None:
        self._lease = lease
        self._send = lease.send
        self._folder = home.attempts
        self._tell = tell
        self._clock = clock or SystemClock()
        self._commands: list[Command] = []
        """All that was to be sent, for the note: sending it all again reports nothing twice."""
        self._pending: list[Command] = []
        self._flight: InFlightRecord | None = None
        self._file: FlightFile | None = None
        self._leave_at: float | None = None
        self._leaving = asyncio.Event()
        self._is_waiting = False
        self._could_not_keep = False

    @property
    def pending(self) -> tuple[Command, ...]:
        """The commands that the store has not answered."""
        return tuple(self._pending)

    @property
    def commands(self) -> tuple[KeptCommand, ...]:
        """All commands of the report, as the note of the attempt has them."""
        return tuple(
            KeptCommand(wire_name(type(command)), msgspec.Raw(msgspec.json.encode(command)))
            for command in self._commands
        )

    @property
    def note(self) -> FlightFile | None:
        """The note of the attempt, where there is one."""
        return self._file

    def attach(self, flight: InFlightRecord, file: FlightFile | None) -> None:
        """Use the note of the attempt; without one, a note is made when there is something to keep."""
        self._flight, self._file = flight, file

    def leave(self) -> None:
        """The supervisor stops: the store has a moment to answer, then the report is left in the note."""
        if self._leave_at is None:
            self._leave_at = asyncio.get_running_loop().time() + LEAVING
            self._leaving.set()

    async def send(self, command: Command) -> object:
        """Send a command until it is answered; `Unavailable` only where the supervisor stops meanwhile."""
        return await self.wait_for(lambda: self.send_once(command))

    async def wait_for(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the store answers; `Unavailable` only where the supervisor stops meanwhile."""
        while True:
            try:
                return await call()
            except Unavailable as error:
                if self._leaving.is_set():
                    raise
                if not self._is_waiting:
                    self._is_waiting = True
                    kept = "is known to this process alone" if self._could_not_keep else "is kept"
                    self._tell(
                        f"the store does not answer; how {self._lease.agent} ended “{self._lease.name}” {kept},"
                        f" and the store is told when it is back: {error}"
                    )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await self._leaving.wait()

    async def send_once(self, command: Command) -> object:
        """Send a command; where the store is away (`Unavailable`), it stays to be sent."""
        if command not in self._pending:
            self._pending.append(command)
            self._commands.append(command)
            await asyncio.get_running_loop().run_in_executor(None, self._keep)
        try:
            answer = await self._answer(command)
        except Unavailable:
            raise
        except AllswellError:
            self._pending.remove(command)
            raise
        self._pending.remove(command)
        return answer

    async def send_pending(self) -> None:
        """Send what the agent itself has said while the store was away; `LeaseLost` where that came too late."""
        for command in self.pending:
            with contextlib.suppress(Refused):  # what it brought has to be verified: the store has kept it
                await self._lease.repeat(as_last_word(command))

    async def _answer(self, command: Command) -> object:
        sending = asyncio.ensure_future(self._send(command))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and self._leave_at is not None:
                left = max(self._leave_at - asyncio.get_running_loop().time(), LEAVING / 2)
                await asyncio.wait((sending,), timeout=left)
            if sending.done():
                return sending.result()
            raise Unavailable("the store did not answer before its supervisor stopped")
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    def _keep(self) -> None:
        """Write what is pending into the note; where that cannot be, this process alone knows of it."""
        lease = self._lease
        if self._flight is None:
            self._flight = flight_of(lease, self._clock.wall())
        flight = msgspec.structs.replace(self._flight, report=self.commands)
        try:
            if self._file is None:
                self._file = take_off(self._folder, flight)
            self._file.replace(flight)
        except OSError:
            self._could_not_keep = True

    def close(self) -> None:
        """Nothing more is sent from here: the note is removed, unless it still holds a report."""
        file, self._file = self._file, None
        if file is None:
            return
        if self._pending:
            self._tell(
                f"how {self._lease.agent} ended “{self._lease.name}” is kept in {file.path};"
                " the next `allswell up` or `allswell run` here sends it to the store"
            )
            file.close()
        else:
            file.remove()


def as_last_word(command: Command) -> LastWord:
    """A command that reports the end of an attempt."""
    assert isinstance(command, LastWord)  # noqa: S101 - nothing else is kept
    return command


async def repeat_left(held: Held, flight: InFlightRecord, home: StateDir) -> str | None:
    """Send what the note of an attempt holds, as a supervisor that is gone would have; what became of it, in words.

    None if the attempt is not over by it: it has said that it is done, and that has to be verified. `Unavailable` if
    the store is away: the note is as good as before.
    """
    outcome: str | None = None
    for kept in flight.report:
        command = _read(kept, flight)
        if command is None:
            continue
        ends = not isinstance(command, Spend | RecordReceipt)
        try:
            await held.repeat(command)
        except LeaseLost as lost:
            if ends:
                await asyncio.to_thread(receipt_of_refused, home, flight, lost.reason)
                outcome = f"what {flight.agent} brought of “{flight.name}” came too late, and is kept: {lost.reason}"
        except Refused as refused:
            if ends and refused.code != NEEDS_VERIFICATION:
                outcome = f"how {flight.agent} ended “{flight.name}” was refused: {refused.message}"
        else:
            if ends:
                outcome = f"the store knows now how {flight.agent} ended “{flight.name}”"
    return outcome


def _read(kept: KeptCommand, flight: InFlightRecord) -> LastWord | None:
    """A command of a note, if it is about the attempt of the note and no other."""
    kind = _KINDS.get(kept.command)
    if kind is None:
        return None
    try:
        command = as_last_word(msgspec.json.decode(kept.about, type=kind))
    except msgspec.DecodeError:
        return None
    same = (command.task, command.token, command.agent) == (flight.task, flight.token, flight.agent)
    return command if same else None


def receipt_of_refused(home: StateDir, flight: InFlightRecord, why: str) -> Receipt | None:
    """The receipt of an attempt whose result the store has refused, saying so; None if no receipt says otherwise."""
    kept = home.receipts.find(receipt_id(flight.task, flight.attempt))
    if kept is None or kept.receipt.token != flight.token:
        return None
    return refused_receipt(home, kept.receipt, why)


def refused_receipt(home: StateDir, receipt: Receipt, why: str) -> Receipt | None:
    """Have a receipt that says `done` say that this came too late; None if it says something else."""
    if receipt.status is not End.DONE:
        return None
    reason = f"{receipt.reason}; before that, {why}"
    told = msgspec.structs.replace(receipt, status=End.LEASE_LOST, reason=reason)
    with contextlib.suppress(OSError):
        home.receipts.write(told)
    return told


# What an outcome usually means for its task, said to the store under the attempt's lease.
#
# An attempt does not do this itself: flows and supervisors may mean something else. What the agent has said itself
# stands, and a lease that is over is left as it is.

_MESSAGE = 2_000
TRIED_AGAIN = (End.FAILED, End.SIGNALLED, End.LOST, End.ORPHANED, End.IDLE, End.COSTLY)
"""Ends after which a task may be tried again by itself."""
_LIMIT_NEAR = 1_000
"""Milliseconds by which the store's clock may be behind ours when a limit is reached."""


async def report(lease: Lease, outcome: AttemptOutcome) -> AfterCheck | None:
    """Complete, fail, give back or count, as the end was; and let the journal know of the receipt.

    What followed from the verification of its work is the answer, where there was one.
    """
    followed: AfterCheck | None = None
    outcome = await tell_expense(lease, outcome)
    if outcome.said is None and not lease.over:
        with suppress(LeaseLost):  # the store was quicker: it has judged the attempt already
            if lease.lost is None and outcome.over_cost and outcome.end in TRIED_AGAIN:
                await lease.end_costly()
            elif not was_taken_away(lease, outcome):
                followed = await _say(lease, outcome)
            else:
                followed = await offer(lease, outcome)
    if outcome.receipt is not None:
        with suppress(LeaseLost, Refused):
            await lease.keep(outcome.receipt.id, outcome.end.value, str(outcome.receipt_path or ""))
    return followed


def was_taken_away(lease: Lease, outcome: AttemptOutcome) -> bool:
    """Whether the task may be another's by now, as far as its holder knows: what an agent brought is offered then.

    The store may not have said so: it is slow, or away, when a supervisor wakes up that stood still for too long.
    """
    late = outcome.end is End.TIMEOUT and outcome.by_itself
    return lease.lost is not None or outcome.end is End.LEASE_LOST or late


async def tell_expense(lease: Lease, outcome: AttemptOutcome) -> AttemptOutcome:
    """Tell the store what an attempt has cost, where it was away when the attempt ended."""
    if outcome.expense is None or outcome.expense_told:
        return outcome
    with suppress(LeaseLost, Refused):  # money that is not taken is no reason to fail
        return replace(outcome, expense_told=True, over_cost=await lease.spend(outcome.expense))
    return outcome


async def finish(lease: Lease, outcome: AttemptOutcome) -> AfterCheck | None:
    """The attempt says that it is done; where that had to be verified, with the verdict, and what followed from it."""
    check = outcome.verification
    if check is None:
        await lease.complete(outcome.brings, warning=outcome.warning)
        return None
    return await lease.verified(
        passed=check.passed,
        why=check.why,
        said=check.output,
        elapsed=check.elapsed_ms,
        result=UNSET if outcome.brought else outcome.brings,
        warning=outcome.warning,
    )


async def ask_at_end(lease: Lease, outcome: AttemptOutcome) -> None:
    """Ask a human: whether a call that waits is allowed, or what the agent asked when it ended without a change."""
    if outcome.failure is not None:  # it says which call waits
        await lease.fail(outcome.failure)
    else:
        await lease.ask(outcome.message, result=outcome.brings)


async def offer(lease: Lease, outcome: AttemptOutcome) -> AfterCheck | None:
    """What an attempt brought whose lease is lost: the store refuses it (`LeaseLost`), and keeps it (O10).

    Where it brought nothing, and the task is still ours, that goes back.
    """
    well = outcome.end is End.DONE or (outcome.by_itself and outcome.exit_code == 0)
    if well and outcome.failure is None:
        try:
            return await finish(lease, outcome)
        except Refused as error:
            if error.code != NEEDS_VERIFICATION:  # else the store has it, and asks a human when the lease lapses
                raise
    elif outcome.failure is not None or outcome.by_itself:
        await lease.fail(_failure(outcome))
    elif lease.lost is None:
        await lease.release("supervisor_cut_off")
    return None


def _failure(outcome: AttemptOutcome) -> Failure:
    return outcome.failure or Failure(ErrorClass.TRANSIENT, outcome.reason[:_MESSAGE])


async def _give_back(lease: Lease, outcome: AttemptOutcome) -> None:
    """Back to the pool; or the task waits: for a request that no agent answers, or for a human who is asked."""
    if outcome.end is End.ASKED:  # and has not said so itself
        await ask_at_end(lease, outcome)
    elif lease.blocked_on is not None and outcome.end is End.RELEASED:
        await lease.wait_for(lease.blocked_on, claims=False)
    else:
        await lease.release(outcome.reason[:_MESSAGE])


async def _say(lease: Lease, outcome: AttemptOutcome) -> AfterCheck | None:
    match outcome.end:
        case End.DONE | End.UNVERIFIED:
            return await finish(lease, outcome)
        case End.FAILED | End.SIGNALLED | End.LOST | End.ORPHANED:
            await lease.fail(_failure(outcome))
        case End.NOT_STARTED:
            await lease.fail(Failure(ErrorClass.VALIDATION, outcome.reason[:_MESSAGE]))
        case End.TIMEOUT:
            # The limit is the store's own to declare (O4). Where an attempt had a nearer one of its own, it failed.
            if lease.until_limit > _LIMIT_NEAR:
                await lease.fail(Failure(ErrorClass.TRANSIENT, outcome.reason[:_MESSAGE]))
            else:
                await asyncio.sleep(lease.until_limit / 1_000)
        case End.IDLE:
            receipt = outcome.receipt
            circle = "" if outcome.standing is None else outcome.standing.repeats
            await lease.end_idle(None if receipt is None else receipt.limit_ms, outcome.last_words, circle)
        case End.STALLED:
            try:
                await lease.recover()
            except Refused:  # the store does not hold it for stalled: it has spoken since
                await lease.release(outcome.reason[:_MESSAGE])
        case End.INTERRUPTED | End.RELEASED | End.ASKED | End.COSTLY:
            await _give_back(lease, outcome)
        case End.LEASE_LOST | End.CANCELLED:
            pass
        case _:
            assert_never(outcome.end)
    return None


async def past_limit(watch: Watch, lease: Lease, patience: float) -> TaskRow | None:
    """A task once the store has ended an attempt at its limit, or after so many seconds.

    Its clock may be a little behind ours.
    """
    until = asyncio.get_running_loop().time() + patience
    while True:
        row = await watch.task(lease.task)
        over = row is None or row.lease is None or row.lease.token != lease.token
        if over or asyncio.get_running_loop().time() >= until:
            return row
        await watch.sweep_once()
        await asyncio.sleep(_LOOK)
