"""The verification of an attempt's work: the command that must pass before "done" counts, under watch as the agent was.

It runs where the agent worked, with what the agent had in its environment but for the right to speak, as the user that
the agent was (`as_agent`), once the agent is gone: no agent changes a file under it. Its whole tree is ended at its own
limit (`verify_timeout`) or at the attempt's, whichever is sooner, when the lease is lost, and when a stop is ordered.
If we are killed, its reaper ends it, and the work does not count as done.

While it runs the store hears that the attempt lives; a command that hangs has its limit, and need not check in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from allswell.domain.agents.fleet import as_agent
from allswell.domain.duration import show
from allswell.domain.ids import Millis, TaskId
from allswell.domain.lease.verification import AfterCheck, claims_to_be_done, shown, verify_of
from allswell.domain.receipts.receipt import End, Verification
from allswell.domain.task.model import OPEN, TaskRow
from allswell.engine.lease import Held, Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused
from allswell.runtime.attempt.launch import AttemptOutcome, LaunchSpec, about, is_gone
from allswell.runtime.attempt.limits import as_the_store_has_it

if TYPE_CHECKING:
    from allswell.runtime.run_tool import ToolResult


OUTPUT_MAX = 32_768
"""Characters of what it printed that a receipt has: the end of it."""
_LOOK = 2_000
"""Milliseconds after which it is looked whether the machine has slept: our own clock stands still then."""
_KEPT = 262_144
"""Bytes of each stream that are kept while it runs."""
_SPEAKS = ("ALLSWELL_SOCKET", "ALLSWELL_SECRET", "ALLSWELL_TOKEN")


async def verify(argv: Sequence[str], *, folder: str, env: Mapping[str, str], limit: int) -> Verification:
    """Run the command, and say what came of it; `limit` in ms. A cancel ends its whole tree, and is passed on."""
    from allswell.runtime.run_tool import Output, ToolTimeout, run_tool  # most tasks want no verification

    loop = asyncio.get_running_loop()
    began = loop.time()
    about = {name: value for name, value in env.items() if name not in _SPEAKS}
    done: ToolResult | None = None
    try:
        done = await run_tool(argv, timeout_override=max(limit, 1), cwd=folder, env=about, output=Output(cap=_KEPT))
        why = _ended(done)
    except ToolTimeout as late:
        done, why = late.result, f"not done after {show(limit)}"
    except AllswellError as error:
        why = f"it could not be started: {error}"
    elapsed = Millis(round((loop.time() - began) * 1_000))
    printed = "" if done is None else _printed(done)
    return Verification(
        argv=tuple(argv),
        passed=done is not None and done.ok and not why.startswith("not done"),
        why=why,
        elapsed_ms=elapsed,
        output=printed[-OUTPUT_MAX:],
        left_out=max(len(printed) - OUTPUT_MAX, 0),
    )


def _ended(done: ToolResult) -> str:
    if done.exit_code is not None:
        return f"exit code {done.exit_code}"
    number = done.ended.signal
    with contextlib.suppress(ValueError):
        return f"ended by {signal.Signals(number or 0).name}"
    return "it was ended"


def _printed(done: ToolResult) -> str:
    """Both streams, that of errors last."""
    return "\n".join(part.rstrip() for part in (done.stdout, done.stderr) if part.strip()).replace("\0", "�")


class VerificationStopped(msgspec.Struct, frozen=True):
    """How an attempt ended before there was a verdict."""

    end: End
    reason: str
    limit: int | None = None


class Verifying:
    """Verifies the work of one attempt that says it is done, if its task wants that."""

    def __init__(self, order: LaunchSpec, lease: Lease, heard: Callable[[str], None]) -> None:
        self.on_begin: Callable[[Sequence[str]], None] | None = None
        """Called with the command when it is run."""
        self._order = order
        self._lease = lease
        self._heard = heard
        self._stopped = asyncio.Event()
        self._end = (End.INTERRUPTED, "")

    def stop(self, reason: str, end: End = End.INTERRUPTED) -> None:
        """End it, if it runs; nothing is begun any more."""
        if not self._stopped.is_set():
            self._end = (end, reason)
            self._stopped.set()

    async def verified(self, ended: AttemptOutcome, remaining: int | None, *, said: bool) -> AttemptOutcome:
        """How the attempt ended, once its work was verified; `remaining` is what it has left, in ms, or None.

        `said` is whether its agent has said itself that it is done: the store knows that then, and what it brought.
        """
        lease = self._lease
        if ended.end is not End.DONE or is_gone(lease) or not lease.verify:
            return ended
        argv = as_agent(self._order.argv, self._order.verify or lease.verify)
        self._heard(f"verifying: {shown(tuple(argv))}")
        if self.on_begin is not None:
            self.on_begin(argv)
        env = {**self._order.env, **about(lease, remaining, "", "")}
        came = await watch_over(lease, argv, folder=self._order.cwd, env=env, stop=self._stopped, said=said)
        if came is None:
            end, reason = self._end
            return replace(ended, end=end, reason=reason)
        return await as_the_store_has_it(lease, judged(ended, came))


def judged(ended: AttemptOutcome, came: Verification | VerificationStopped) -> AttemptOutcome:
    """How an attempt ended that said it was done, once its work was verified, or was not."""
    if isinstance(came, VerificationStopped):
        return replace(ended, end=came.end, reason=came.reason, limit=came.limit)
    if came.passed:
        return replace(ended, verification=came)
    reason = f"it said done, and `{shown(came.argv)}` failed ({came.why})"
    return replace(ended, end=End.UNVERIFIED, reason=reason, verification=came)


async def watch_over(
    lease: Lease, argv: Sequence[str], *, folder: str, env: Mapping[str, str], stop: asyncio.Event, said: bool = False
) -> Verification | VerificationStopped | None:
    """Verify under a lease: what came of it, or how the attempt ended meanwhile; None if it was stopped.

    Unless it is `said` already, the store first gets the attempt's report that it is done.
    """
    if not said:
        with contextlib.suppress(AllswellError):
            await lease.complete()
    lost = asyncio.Event()
    lease.on_end = lost.set
    checking = asyncio.ensure_future(verify(argv, folder=folder, env=env, limit=lease.verify_timeout))
    beside = [asyncio.ensure_future(work) for work in (_keep_alive(lease, lease.tells_every / 1_000), lease.follow())]
    over = [asyncio.ensure_future(event.wait()) for event in (stop, lost)]
    try:
        while True:
            left = min(lease.until_limit, lease.until_stop or lease.until_limit, _LOOK) / 1_000
            await asyncio.wait((checking, *over), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return None
            if is_gone(lease):
                return VerificationStopped(
                    End.LEASE_LOST, "its lease was ended" if lease.lost is None else lease.lost.reason
                )
            if checking.done():
                return checking.result()
            if lease.until_stop == 0 and not await lease.renew_in_time():
                return VerificationStopped(End.LEASE_LOST, "its lease could not be renewed in time")
            if lease.until_limit == 0 and not await lease.confirm():
                reached, limit = lease.limit_reached
                return VerificationStopped(End.TIMEOUT, f"{reached} while `{shown(tuple(argv))}` ran", limit)
    finally:
        lease.on_end = None
        for one in (checking, *beside, *over):
            one.cancel()
        await asyncio.gather(checking, *beside, *over, return_exceptions=True)


async def _keep_alive(held: Held, every: float) -> None:
    """Tell the store that the attempt lives, as long as its verification runs; its agent's last note stays."""
    while True:
        with contextlib.suppress(AllswellError):
            await held.checkin()
        await asyncio.sleep(every)


# Verification when the attempt's own supervisor does not: by a holder without one and by an operator (actions/), and by
# the supervisor that comes after one that died.

_ALIVE = 10.0
"""Seconds between two check-ins of a holder that waits for its own verification."""


async def claim_to_verify(watch: Watch, task: TaskId) -> tuple[TaskRow, Held]:
    """What an operator can verify of a task: an attempt that says it is done; `Refused` if no attempt says so."""
    row = await watch.task(task)
    if row is None:
        raise Refused("unknown_task", f"there is no task {task}", where="task")
    name, record = row.task.name, row.task.record
    if not verify_of(row.task):
        text = f"{name} names no command that verifies it; `allswell submit --verify` does"
        raise Refused("not_asked_for", text, where="task")
    if row.task.state != OPEN:
        raise Refused("task_ended", f"task {name} is already {row.task.state}", where="task")
    said, lease = record.said_done, row.lease
    if lease is not None and said is not None and said.token == lease.token:
        return row, watch.held(task, lease.token, lease.agent)
    waits = any(wait.kind == "question" for wait in row.waits)
    if lease is None and waits and claims_to_be_done(row.task) and record.handover is not None:
        return row, watch.held(task, record.token, record.handover.agent)
    if lease is not None:
        text = f"{lease.agent} holds {name}, and does not say that it is done"
    else:
        text = f"no agent has reported that {name} is done"
    raise Refused("nothing_to_verify", text, where="task")


def environment_by_hand() -> dict[str, str]:
    """What the command gets that a person has run: all that they have, but for what is ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}


async def limit_of(watch: Watch, row: TaskRow) -> int:
    """How long the verification of a task may take, in ms: its own limit, and what its attempt has left."""
    own = row.task.spec.policy.verify_timeout
    return own if row.lease is None else max(min(own, row.lease.deadline - await watch.now()), 1)


async def verify_left(
    watch: Watch, row: TaskRow, held: Held, *, agent: Sequence[str], folder: str, env: Mapping[str, str]
) -> tuple[Verification, AfterCheck]:
    """Verify what an agent said was done whose supervisor died, by the supervisor that came after it.

    `agent` is the command by which the agent was started.
    """
    came = await verify_alive(watch, row, held, folder, env, agent)
    followed = await held.verified(passed=came.passed, why=came.why, said=came.output, elapsed=came.elapsed_ms)
    return came, followed


async def verify_alive(
    watch: Watch, row: TaskRow, held: Held, folder: str, env: Mapping[str, str], agent: Sequence[str] = ()
) -> Verification:
    """Verify, and let the store know meanwhile that the attempt is attended to."""
    living = asyncio.ensure_future(_keep_alive(held, _ALIVE))
    try:
        argv = as_agent(agent, verify_of(row.task))
        return await verify(argv, folder=folder, env=env, limit=await limit_of(watch, row))
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
