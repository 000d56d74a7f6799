"""Going on with a run that was cut off: by a kill, a signal, its deadline, a failure, or a question (F11).

The store knows which steps are done; those are never run again. If its run is still open and the flow's file is as it
was, the run simply goes on: what a dead runner held is given back. Its tasks are not submitted again: they came all
together, and made anew they might differ (in how often a step was tried, in a setting) from those that are there. Only
a run that was cut off before it had any gets them now. Otherwise a new run is opened for the steps that are left, in
the same folder and with a full budget of time.

Whoever runs a flow holds the lock of its folder, and the kernel lets go of that when a process dies. So the holder of
the lock knows that earlier runners on this machine are gone, and need not wait for their leases to lapse.
"""

from __future__ import annotations

import asyncio
import difflib
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from allswell.domain.capture import ContextForResume, Phase
from allswell.domain.names import RunId, TaskId
from allswell.domain.policy import Policy
from allswell.domain.question import ESCALATION_OPTIONS
from allswell.domain.receipt import CHANGES_LISTED
from allswell.domain.run import Run
from allswell.domain.step_changes import AtWork
from allswell.domain.step_receipt import StepReceipt, StepStatus
from allswell.domain.task import State
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused
from allswell.flows.run.attempt import engine_name
from allswell.flows.run.base import RunBase, RunRecord, moment, stamp
from allswell.flows.run.changes import begun, changes_of
from allswell.flows.run.plan import Carried, Planned, plan
from allswell.flows.run.standing import CutOff, RunStanding, is_open, look, tasks_of
from allswell.flows.run.start import open_run, submit, this_runner
from allswell.flows.run.timeouts import uncommitted
from allswell.flows.spec import Flow, Step
from allswell.runtime.attempt import Home, settle_left
from allswell.runtime.attempt.settle import Settled


def changes_in_file(base: RunBase, now: bytes) -> str:
    """What has changed in the flow's file since the run was started, as a diff; empty if nothing has."""
    try:
        before = base.source.read_bytes()
    except OSError:
        before = b""
    if before == now:
        return ""
    old, new = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (before, now))
    name = base.record.file or "flow.yaml"
    return "".join(difflib.unified_diff(old, new, f"{name} (as it was started)", name))


_SIGNS_APART = 1_500
"""Milliseconds: a runner that dies has given a sign of life so shortly before."""


def _died(base: RunBase, wall: int) -> int:
    """Until when the runner before can have been at work: what was changed later is not of its steps."""
    return wall if base.last_sign is None else min(base.last_sign + _SIGNS_APART, wall)


Outputs = Mapping[str, Sequence[str]]
"""What each step is to leave, as far as the flow's file says it."""


async def settle_dead(
    watch: Watch, base: RunBase, wall: int, outputs: Outputs, tell: Callable[[str], None] = lambda _: None
) -> list[StepReceipt]:
    """Put in order what a runner that was killed left behind: its trees are gone, its work kept."""
    made = []
    died = _died(base, wall)
    for left in await settle_left(watch, Home(base.home), tell, places=[base.record.folder]):
        if left.flight.run in base.record.runs:
            made.append(await asyncio.to_thread(_keep_receipt, base, left, died, outputs))
        left.clear()
    return made


def _keep_receipt(base: RunBase, left: Settled, died: int, outputs: Outputs) -> StepReceipt:
    """Write down how a step was left; it blocks."""
    flight = left.flight
    at = AtWork(flight.name, _number(base, left), flight.began_at, max(died, flight.began_at))
    changed = _changed(base, flight.task, flight.attempt, at, outputs)
    receipt = msgspec.structs.replace(
        _lost(base, at, "run", changed if changed is not None else uncommitted(left.receipt.snapshot)),
        provider="command",
        error=left.receipt.reason,
        transcript_path=None if left.receipt.stdout is None else base.shown(Path(left.receipt.stdout.path)),
        recovery=None if left.path is None else base.shown(left.path),
    )
    base.keep_receipt(receipt)
    return receipt


def settle_functions(base: RunBase, standing: RunStanding, freed: Collection[str], wall: int, outputs: Outputs) -> None:
    """The same for steps of functions, which ended with the process that called them; it blocks.

    Only where it was noted how things were when one began, and something has changed, is there anything to say.
    """
    receipts = base.all_receipts()
    for name, row in standing.rows.items():
        if row.task.state == State.DONE or (row.lease is not None and name not in freed):
            continue
        token = row.task.record.token if row.lease is None else row.lease.token
        then = begun(base.home, row.task.id, token) if token else None
        own = [one for one in receipts if one.step_id == name]
        if then is None or any(moment(one.completed_at) >= then.taken_at for one in own):
            continue  # nothing was noted, or the attempt has said itself how it ended
        died = max(_died(base, wall), then.taken_at)
        at = AtWork(name, 1 + max((one.attempt for one in own), default=0), then.taken_at, died)
        changed = _changed(base, row.task.id, token, at, outputs)
        if changed:
            base.keep_receipt(_lost(base, at, "python", changed))


def _changed(base: RunBase, task: TaskId, attempt: int, at: AtWork, outputs: Outputs) -> tuple[str, ...] | None:
    """What an attempt has changed, written down; None where it is not known how things were when it began."""
    then = begun(base.home, task, attempt)
    if then is None:
        return None
    changes = changes_of(then, at, folder=base.record.folder, outputs=outputs.get(at.step, ()))
    if changes is None:
        return None
    base.keep_changes(changes)
    return tuple(left.path for left in changes.files)


def _lost(base: RunBase, at: AtWork, agent: str, changed: tuple[str, ...]) -> StepReceipt:
    return StepReceipt(
        engine=engine_name(),
        provider=agent,
        agent=agent,
        run_id=base.record.run,
        flow_key=base.record.flow,
        step_id=at.step,
        attempt=at.number,
        started_at=stamp(at.began_at),
        completed_at=stamp(at.ended_at),
        duration_ms=max(at.ended_at - at.began_at, 0),
        status=StepStatus.LOST,
        phase=Phase.WORK,
        tokens=None,
        error="its runner died while it ran",
        transcript_path=None,
        git=None,
        context_for_resume=ContextForResume(None, changed[:CHANGES_LISTED], None),
    )


def _number(base: RunBase, left: Settled) -> int:
    """Which attempt of the folder it was: its own number, unless an attempt of an earlier run has that."""
    flight = left.flight
    earlier = [one for one in base.all_receipts() if one.step_id == flight.name]
    same = [one for one in earlier if one.attempt == flight.attempt]
    if all(one.completed_at >= stamp(flight.began_at) for one in same):
        return flight.attempt
    return 1 + max(one.attempt for one in earlier)


async def free_dead(watch: Watch, standing: RunStanding) -> list[str]:
    """Give back what earlier runners on this machine still hold; the caller holds the folder's lock."""
    ours = f"flow-{socket.gethostname()}-"
    freed = []
    for name, row in standing.rows.items():
        lease = row.lease
        if lease is not None and lease.agent.startswith(ours):
            try:
                await watch.held(lease.task, lease.token, lease.agent).release("its runner died")
                freed.append(name)
            except LeaseLost:
                pass  # it has lapsed in this very moment
    return freed


async def as_it_is(watch: Watch, base: RunBase, standing: RunStanding, source: bytes) -> bool:
    """Whether the store's run goes on as it is; otherwise what is left is done in another one."""
    if not standing.open or standing.stuck or standing.row is None or await _is_used_up(watch, standing.row):
        return False
    return base.source.is_file() and base.source.read_bytes() == source


async def go_on(watch: Watch, base: RunBase, flow: Flow, source: bytes, policy: Policy) -> tuple[RunBase, RunId]:
    """Make the store ready for the steps that are left; the folder and the run in which they are."""
    standing = await look(watch, base)
    run = RunId(base.record.runs[-1])
    if standing.row is None or (standing.open and not standing.own):  # it was cut off before it had any tasks
        base.files.replace(base.source, source)
        if standing.row is None:
            await open_run(watch, base, flow, run)
        await submit(watch, _left(flow, base, run, policy, standing, _with_attempts(base, standing.carried)))
        return base, run
    if await as_it_is(watch, base, standing, source):
        return base, run  # all its tasks are there: they came together
    if standing.open:
        await watch.end_run(run, "it goes on in another run")
    return await _another(watch, base, flow, source, policy, standing)


async def _is_used_up(watch: Watch, row: Run | None) -> bool:
    """Whether a run has no time left, and nobody has ended it yet."""
    return row is not None and row.limit is not None and row.limit <= await watch.now()


async def _another(
    watch: Watch, base: RunBase, flow: Flow, source: bytes, policy: Policy, standing: RunStanding
) -> tuple[RunBase, RunId]:
    run = watch.new_run()
    record: RunRecord = msgspec.structs.replace(base.record, flow=flow.name, runs=(*base.record.runs, run))
    if flow.name != base.record.flow:
        text = f"the flow is called {flow.name} now, and its run's folder is that of {base.record.flow}; run it anew"
        raise Refused("other_flow", text, where="name")
    planned = _left(flow, base, run, policy, standing, _with_attempts(base, standing.carried))
    again = RunBase(base.home, record, base.files)
    again.files.replace(again.source, source)
    again.keep_record()
    await open_run(watch, again, flow, run)
    await submit(watch, planned)
    return again, run


def _with_attempts(base: RunBase, carried: Mapping[str, Carried]) -> dict[str, Carried]:
    """What steps take along into another run, with how often each was tried: no receipt is written over another."""
    found = dict(carried)
    for receipt in base.all_receipts():
        known = found.get(receipt.step_id, Carried())
        if receipt.attempt > known.tried:
            found[receipt.step_id] = msgspec.structs.replace(known, tried=receipt.attempt)
    return found


def _left(
    flow: Flow, base: RunBase, run: RunId, policy: Policy, standing: RunStanding, carried: Mapping[str, Carried]
) -> Planned:
    """The tasks of the steps that are left: neither done nor skipped by a human, nor after one that was."""
    out = set(standing.skipped)
    for step in _in_order(flow):
        members = [member.id for member in step.members()]
        needed = [one for need in step.needs for one in out if one == need or one.startswith(f"{need}@")]
        if needed:
            out |= {one for one in members if one not in standing.done}
    done = {**standing.done, **dict.fromkeys(out, TaskId(""))}
    return plan(flow, base, run, policy, done=done, carried=carried)


def _in_order(flow: Flow) -> list[Step]:
    """Steps after all that they need."""
    steps = {step.id: step for step in flow.steps}
    found: dict[str, None] = {}
    pending = list(reversed(steps))
    while pending:
        at = pending[-1]
        missing = [need for need in steps[at].needs if need not in found]
        if at in found or not missing:
            found.setdefault(at)
            pending.pop()
        else:
            pending += missing
    return [steps[id_] for id_ in found]


async def escalate(watch: Watch, cut: CutOff, run: RunId) -> str:
    """Put a step that was cut off before a human, with the other steps left to go on; the question's id."""
    standing = [row for row in await tasks_of(watch, run) if row.task.name == cut.step and is_open(row)]
    if not standing:
        raise Refused("task_ended", f"step {cut.step} has ended; there is nothing to decide", where="--choose")
    task = standing[0].task.id
    lease = await watch.claim(agent=this_runner(), task=task)
    if lease is None:
        raise Refused("not_ready", f"step {cut.step} is not ready to be decided about; resume first", where="--choose")
    files = ", ".join(cut.context.uncommitted_changes[:5])
    text = f"Step {cut.step} was cut off and left uncommitted changes ({files}). How should we proceed?"
    return await lease.ask(text, ESCALATION_OPTIONS)
