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
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from allswell.domain.agents.status import named
from allswell.domain.ids import RunId, TaskId
from allswell.domain.question import ESCALATION_OPTIONS
from allswell.domain.receipts.receipt import CHANGES_LISTED
from allswell.domain.receipts.snapshot import Snapshot, SnapshotLimits, spell, unspell
from allswell.domain.receipts.step import ContextForResume, Phase, StepChanges, StepReceipt, StepStatus, WorkSpan
from allswell.domain.rules.command import NewTask
from allswell.domain.run.run import Run
from allswell.domain.task.model import Policy, State, TaskRow, carried
from allswell.engine.ids import task_for_key
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.flows.run.attempt import engine_name
from allswell.flows.run.folder import RunBase, RunRecord, moment
from allswell.flows.run.plan import CarriedSteps, FlowPlan, plan
from allswell.flows.run.runner import open_run, submit, this_runner
from allswell.flows.run.state import InterruptedStep, RunStatus, is_open, look, part_in
from allswell.flows.run.timeouts import begun, changes_of, uncommitted
from allswell.flows.spec import Flow, Step
from allswell.runtime.attempt import settle_left
from allswell.runtime.attempt.orphans import OrphanedAttempt
from allswell.runtime.deadlines import limits
from allswell.runtime.process.leftovers import end_orphans
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.baseline import Baseline, PathBefore, before, read_baseline
from allswell.runtime.workspace.files import stamp
from allswell.runtime.workspace.git import Git, git_of
from allswell.runtime.workspace.recover import RecoveryTarget
from allswell.runtime.workspace.snapshot import take


def changes_in_file(base: RunBase, now: bytes) -> str:
    """What has changed in the flow's file since the run was started, as a diff; empty if nothing has."""
    try:
        before = base.read_source()
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
    if orphans := await asyncio.to_thread(end_orphans, limits().grace):
        tell(f"{named(orphans)} of a function whose runner died: ended")
    for left in await settle_left(watch, StateDir(base.home), tell, places=[base.record.folder]):
        if left.flight.run in base.record.runs:
            made.append(await asyncio.to_thread(_keep_receipt, base, left, died, outputs))
        left.clear()
    return made


def _keep_receipt(base: RunBase, left: OrphanedAttempt, died: int, outputs: Outputs) -> StepReceipt:
    """Write down how a step was left; it blocks."""
    flight = left.flight
    at = WorkSpan(flight.name, _number(base, left), flight.began_at, max(died, flight.began_at))
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


def settle_functions(base: RunBase, standing: RunStatus, freed: Collection[str], wall: int, outputs: Outputs) -> None:
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
        at = WorkSpan(name, 1 + max((one.attempt for one in own), default=0), then.taken_at, died)
        changed = _changed(base, row.task.id, token, at, outputs)
        if changed:
            base.keep_receipt(_lost(base, at, "python", changed))


def _changed(base: RunBase, task: TaskId, attempt: int, at: WorkSpan, outputs: Outputs) -> tuple[str, ...] | None:
    """What an attempt has changed, written down; None where it is not known how things were when it began."""
    then = begun(base.home, task, attempt)
    if then is None:
        return None
    changes = changes_of(then, at, folder=base.record.folder, outputs=outputs.get(at.step, ()))
    if changes is None:
        return None
    base.keep_changes(changes)
    return tuple(left.path for left in changes.files)


def _lost(base: RunBase, at: WorkSpan, agent: str, changed: tuple[str, ...]) -> StepReceipt:
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


def _number(base: RunBase, left: OrphanedAttempt) -> int:
    """Which attempt of the folder it was: its own number, unless an attempt of an earlier run has that."""
    flight = left.flight
    earlier = [one for one in base.all_receipts() if one.step_id == flight.name]
    same = [one for one in earlier if one.attempt == flight.attempt]
    if all(one.completed_at >= stamp(flight.began_at) for one in same):
        return flight.attempt
    return 1 + max(one.attempt for one in earlier)


async def free_dead(watch: Watch, standing: RunStatus) -> list[str]:
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


async def as_it_is(watch: Watch, base: RunBase, standing: RunStatus, source: bytes) -> bool:
    """Whether the store's run goes on as it is; otherwise what is left is done in another one."""
    if not standing.open or standing.stuck or standing.row is None or await _is_used_up(watch, standing.row):
        return False
    try:
        return base.read_source() == source
    except OSError:
        return False


async def go_on(watch: Watch, base: RunBase, flow: Flow, source: bytes, policy: Policy) -> tuple[RunBase, RunId]:
    """Make the store ready for the steps that are left; the folder and the run in which they are."""
    standing = await look(watch, base)
    run = RunId(base.record.runs[-1])
    if standing.row is None or (standing.open and not standing.own):  # it was cut off before it had any tasks
        base.files.replace(base.source, source)
        if standing.row is None:
            await open_run(watch, base, flow, run)
        await submit(watch, await _left(watch, flow, base, run, policy, standing))
        return base, run
    if await as_it_is(watch, base, standing, source):
        return base, run  # all its tasks are there: they came together
    if standing.open:
        await watch.end_run(run, "it goes on in another run")
        standing = await look(watch, base)  # what was done until then need not be done again
    return await _another(watch, base, flow, source, policy, standing)


async def _is_used_up(watch: Watch, row: Run | None) -> bool:
    """Whether a run has no time left, and nobody has ended it yet."""
    return row is not None and row.limit is not None and row.limit <= await watch.now()


async def _another(
    watch: Watch, base: RunBase, flow: Flow, source: bytes, policy: Policy, standing: RunStatus
) -> tuple[RunBase, RunId]:
    run = watch.new_run()
    record: RunRecord = msgspec.structs.replace(base.record, flow=flow.name, runs=(*base.record.runs, run))
    if flow.name != base.record.flow:
        text = f"the flow is called {flow.name} now, and its run's folder is that of {base.record.flow}; run it anew"
        raise Refused("other_flow", text, where="name")
    planned = await _left(watch, flow, base, run, policy, standing)
    again = RunBase(base.home, record, base.files)
    again.files.replace(again.source, source)
    again.keep_record()
    await open_run(watch, again, flow, run)
    await submit(watch, planned)
    return again, run


def _with_attempts(base: RunBase, carried: Mapping[str, CarriedSteps]) -> dict[str, CarriedSteps]:
    """What steps take along into another run, with how often each was tried: no receipt is written over another."""
    found = dict(carried)
    for receipt in base.all_receipts():
        known = found.get(receipt.step_id, CarriedSteps())
        if receipt.attempt > known.tried:
            found[receipt.step_id] = msgspec.structs.replace(known, tried=receipt.attempt)
    return found


def left_out(flow: Flow, standing: RunStatus) -> set[str]:
    """The steps that are not run any more: those that a human has skipped, and what comes after them."""
    out = set(standing.skipped)
    for step in _in_order(flow):
        members = [member.id for member in step.members()]
        needed = [one for need in step.needs for one in out if one == need or one.startswith(f"{need}@")]
        if needed:
            out |= {one for one in members if one not in standing.done}
    return out


async def _left(watch: Watch, flow: Flow, base: RunBase, run: RunId, policy: Policy, standing: RunStatus) -> FlowPlan:
    """The tasks of what is left: steps that are neither done nor skipped by a human, nor after one that was; and parts.

    A step that a human has split stays split: what is left of its parts goes along, and those after it wait for that.
    """
    out = left_out(flow, standing)
    split = {name: standing.rows[name].task.id for name in standing.split}
    done = {**standing.done, **dict.fromkeys(out, TaskId("")), **split}
    taken = [row for some in standing.split.values() for row in some if _is_taken_along(row, standing)]
    ids = {row.task.id: part_in(run, row.task.id) for row in taken}
    parts = {name: _stand_in(some, ids) for name, some in standing.split.items()}
    steps = plan(flow, base, run, policy, done=done, carried=_with_attempts(base, standing.carried), parts=parts)
    made = [await _part(watch, row, run, ids, standing) for row in taken]
    return FlowPlan((*made, *steps.tasks), steps.ids)


def _is_taken_along(row: TaskRow, standing: RunStatus) -> bool:
    """Whether a part is left to be done, and not on its way outside of the run's own tasks, where it was retried."""
    parts = standing.parts
    if row.task.state == State.DONE or parts.is_skipped(row):
        return False
    return row.task.run in parts.runs or not is_open(row)


def _stand_in(rows: Sequence[TaskRow], ids: Mapping[TaskId, TaskId]) -> tuple[TaskId, ...]:
    """What is waited for in place of these tasks: those that go along, under their new ids, and those on their way."""
    return tuple(ids.get(row.task.id, row.task.id) for row in rows if row.task.id in ids or is_open(row))


async def _part(watch: Watch, row: TaskRow, run: RunId, ids: Mapping[TaskId, TaskId], standing: RunStatus) -> NewTask:
    """A part of a step that was split, as it goes on in another run."""
    task, spec = row.task, row.task.spec
    payload, _ = await watch.views.view_payload(task.id)
    return NewTask(
        ids[task.id],
        task.name,
        run,
        task.role,
        spec.services,
        task.priority,
        _stand_in(standing.parts.last(*spec.needs), ids),
        payload=payload or "null",
        critical=spec.critical,
        if_need_fails=spec.if_need_fails,
        policy=spec.policy,
        keyed=True,
        carried=carried(task.record),
    )


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


async def escalate(watch: Watch, cut: InterruptedStep, run: RunId) -> str:
    """Put a step that was cut off before a human, with the other steps left to go on; the question's id."""
    row = await watch.task(task := task_for_key(f"{run}/{cut.step}"))
    if row is None or not is_open(row):
        raise Refused("task_ended", f"step {cut.step} has ended; there is nothing to decide", where="--choose")
    lease = await watch.claim(agent=this_runner(), task=task)
    if lease is None:
        raise Refused("not_ready", f"step {cut.step} is not ready to be decided about; resume first", where="--choose")
    files = ", ".join(cut.context.uncommitted_changes[:5])
    text = f"Step {cut.step} was cut off and left uncommitted changes ({files}). How should we proceed?"
    return await lease.ask(text, ESCALATION_OPTIONS)


# Discarding what steps left: kept in a snapshot first, then put back as it was when each attempt began (F11).
#
# Only what those attempts changed is touched, and only if it is still as they left it. What another step may have done
# too is put back only if that step's work is discarded as well; the outputs of finished steps, and whatever was there
# before the attempt began, stay as they are. Where it is not certain how things were, nothing is discarded.

_LIMITS = SnapshotLimits()
_NO_FILTER = (b"unspecified", b"unset")


class DiscardResult(msgspec.Struct, frozen=True):
    """What was done."""

    kept: Snapshot
    """What holds all that was there before anything was put back."""
    left: tuple[str, ...] = ()
    """Paths that stay as they are: another step may have made them, how they were is not known, something else is in
    their place, or a filter makes them."""


def discard(home: Path, folder: Path, cuts: Sequence[InterruptedStep]) -> list[DiscardResult]:
    """Put back what these steps changed; where it is kept, and what was left alone. It blocks."""
    known = [(cut, *_begun(home, cut)) for cut in cuts]
    discarded = {cut.step for cut in cuts}
    found = []
    for cut, changes, then in known:
        why = "discarded, to be tried again"
        kept = take(folder, cut.task, cut.attempt, reason=why, limits=_LIMITS, home=home)
        missing = {left.path for left in kept.left_out}
        lost = [left.path for left, _ in cut.own if left.path in missing and left.how != "D"]
        if lost:
            text = f"{lost[0]} could not be kept in a snapshot, so nothing was discarded; move it away yourself"
            raise Refused("not_kept", text, where="--choose")
        mine = [left.path for left, also in cut.own if set(also) <= discarded]
        others = [left.path for left, also in cut.own if not set(also) <= discarded]
        unknown = _put_back(StateDir(home).baselines, then, changes, mine)
        found.append(DiscardResult(kept, tuple(sorted([*others, *unknown]))))
    return found


def _begun(home: Path, cut: InterruptedStep) -> tuple[StepChanges, Baseline]:
    """What it changed and how things were when it began; `Refused` where that is not certain."""
    changes = cut.changes
    then = None if changes is None else read_baseline(StateDir(home).baselines, changes.task, changes.attempt)
    if changes is None or then is None:
        why = "the state before it began was not recorded"
    elif changes.gap:
        why = changes.gap
    elif changes.more:
        why = f"it changed {len(changes.files) + changes.more:,} files, which is more than is kept track of"
    else:
        return changes, then
    text = (
        f"what {cut.step} changed is not certain ({why}), so nothing was discarded; put its files back, or retry_step"
    )
    raise Refused("not_certain", text, where="--choose")


def _put_back(place: Path, then: Baseline, changes: StepChanges, paths: Sequence[str]) -> list[str]:
    """Make paths what they were; those that stay as they are, because nobody knows."""
    top = Path(os.fsdecode(unspell(changes.top)))
    safe = [path for path in paths if _is_inside(top, path)]
    noted = {one.path for one in then.noted}
    head = then.head
    tracked = set[str]() if head is None else _tracked(top, head, [path for path in safe if path not in noted])
    with closing(RecoveryTarget(top)) as target:
        # First, as a file may have to come back where a step has made a folder, or a folder where it has made a file.
        made = {path for path in safe if path not in tracked and _made(target, path, before(place, then, path))}
    if head is not None and tracked:
        made |= _check_out(top, head, [path for path in sorted(tracked) if _has_room(top, path)])
    return [path for path in paths if path not in made]


def _has_room(top: Path, path: str) -> bool:
    """Whether git can put a file at a path without removing anything but what has that very path.

    Git would remove a whole folder in its place, with what is ignored there, and a file in the place of its folder.
    """
    place = top / os.fsdecode(unspell(path))
    for folder in place.relative_to(top).parents:
        if os.path.lexists(top / folder) and (not (top / folder).is_dir() or (top / folder).is_symlink()):
            return False
    if place.is_symlink() or not place.is_dir():
        return True
    return all(entry.is_dir() and not entry.is_symlink() for entry in place.rglob("*"))


def _is_inside(top: Path, path: str) -> bool:
    """Whether a path's folder is where it seems to be: an attempt may have put a link in its place."""
    folder = (top / os.fsdecode(unspell(path))).parent
    return folder.resolve() == folder


def _made(top: RecoveryTarget, path: str, was: PathBefore) -> bool:
    """Make one path what it was, wholly or not at all; whether that went well."""
    if was.where not in ("absent", "kept"):
        return False
    try:
        if was.where == "absent":
            top.remove(unspell(path))
        else:
            top.write(unspell(path), was.kind, was.mode or 0o644, (was.content or b"",), replace=True)
    except OSError:
        return False
    return True


def _tracked(top: Path, head: str, paths: Sequence[str]) -> set[str]:
    """Those of the paths that a commit has."""
    wanted = set(paths)
    with _git_that_puts_back(top) as git:
        listed = git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", head).split(b"\0")
    return wanted & {spell(path) for path in listed if path}


def _check_out(top: Path, head: str, paths: Sequence[str]) -> set[str]:
    """Give files what a commit has of them, by an index of our own: the repository's stays as it is. Which it has."""
    wanted = {unspell(path) for path in paths}
    with _git_that_puts_back(top) as git:
        git.run("read-tree", head)
        there = wanted & set(git.run("ls-files", "-z", "--cached").split(b"\0"))
        # What a filter makes of a commit's bytes (LFS) cannot be made here: no program of the repository's runs.
        listed = b"".join(path + b"\0" for path in sorted(there))
        filters = git.run("check-attr", "-z", "--stdin", "filter", stdin=listed).split(b"\0")
        there -= {path for path, name in zip(filters[::3], filters[2::3], strict=False) if name not in _NO_FILTER}
        if there:
            git.run("checkout-index", "-f", "-z", "--stdin", stdin=b"\0".join(sorted(there)) + b"\0")
    return {spell(path) for path in there}


@contextmanager
def _git_that_puts_back(top: Path) -> Iterator[Git]:
    try:
        with git_of(top, _LIMITS.git_timeout) as git:
            yield git
    except AllswellError as error:
        text = f"git could not put the files back ({error}); all of them are kept: `allswell recover`"
        raise Refused("not_put_back", text, where="--choose") from error
