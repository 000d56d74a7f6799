"""Verification by hand: by a holder without a supervisor (`allswell done`), and by an operator (`allswell verify`).

And by the supervisor that comes after one that died: nobody else is left who could.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from allswell.domain.listing import TaskRow
from allswell.domain.names import TaskId
from allswell.domain.receipt import Verification
from allswell.domain.task import OPEN
from allswell.domain.verification import AfterCheck, claims_to_be_done, verify_of
from allswell.engine.held import Held
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.runtime.attempt.verifying import verify

_ALIVE = 10.0
"""Seconds between two check-ins of a holder that waits for its own verification."""


async def claim_to_verify(watch: Watch, task: TaskId) -> tuple[TaskRow, Held]:
    """What an operator can verify of a task: an attempt that says it is done; `Refused` where there is none."""
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
        text = f"nobody says that {name} is done"
    raise Refused("nothing_to_verify", text, where="task")


async def limit_of(watch: Watch, row: TaskRow) -> int:
    """How long the verification of a task may take, in ms: its own limit, and what its attempt has left."""
    own = row.task.spec.policy.verify_timeout
    return own if row.lease is None else max(min(own, row.lease.deadline - await watch.now()), 1)


async def verify_own(
    watch: Watch, held: Held, result: object, *, folder: str, env: Mapping[str, str]
) -> tuple[Verification, AfterCheck]:
    """Verify what a holder has done, who says so itself; where that fails it goes on, as long as it may."""
    row = await watch.task(held.task)
    if row is None or row.lease is None or row.lease.token != held.token:
        raise LeaseLost(held.task, held.token, "nobody holds the task")
    came = await _verify_alive(watch, row, held, folder, env)
    followed = await held.verified(
        passed=came.passed,
        why=came.why,
        said=came.output,
        elapsed=came.elapsed_ms,
        result=result,
        hold=True,
    )
    return came, followed


async def verify_for(
    watch: Watch, row: TaskRow, held: Held, *, folder: str, env: Mapping[str, str], by: str
) -> tuple[Verification, AfterCheck]:
    """Verify, as an operator, what somebody says is done."""
    came = await verify(verify_of(row.task), folder=folder, env=env, limit=await limit_of(watch, row))
    followed = await held.verified(passed=came.passed, why=came.why, said=came.output, elapsed=came.elapsed_ms, by=by)
    return came, followed


async def verify_left(
    watch: Watch, row: TaskRow, held: Held, *, folder: str, env: Mapping[str, str]
) -> tuple[Verification, AfterCheck]:
    """Verify what an agent said was done whose supervisor died, by the supervisor that came after it."""
    came = await _verify_alive(watch, row, held, folder, env)
    followed = await held.verified(passed=came.passed, why=came.why, said=came.output, elapsed=came.elapsed_ms)
    return came, followed


async def _verify_alive(watch: Watch, row: TaskRow, held: Held, folder: str, env: Mapping[str, str]) -> Verification:
    """Verify, and let the store know meanwhile that the attempt is attended to."""
    living = asyncio.ensure_future(_live(held))
    try:
        return await verify(verify_of(row.task), folder=folder, env=env, limit=await limit_of(watch, row))
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


async def _live(held: Held) -> None:
    while True:
        with contextlib.suppress(AllswellError):
            await held.checkin()
        await asyncio.sleep(_ALIVE)
